//! Several ranks: which ranks waited for which, and what one rank's pauses cost another.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use crate::ranks_job;

use gctrace_analysis::Analysis;
use gctrace_analysis::report::RankedJob;
use gctrace_event::{Process, Record};
use ranks_job::{MS, Plan, Planned, RankRun, START, found, paused, run, timelines};
use test_kit::reports;

/// The report on a job's ranks, each in a trace of its own.
fn report(runs: &[RankRun]) -> RankedJob {
    let mut analysis = Analysis::default();
    for run in runs {
        let Record::Process(process) = reports::process(1000 + run.rank, 0, "generational") else {
            panic!("a process");
        };
        let mut records = vec![Record::Process(Process { rank: Some(run.rank), ..process })];
        records.extend(run.records.iter().cloned());
        reports::add(&mut analysis, "t.json", records, Some(reports::end(200_000)));
    }
    analysis.settle();
    let ranks = analysis.report().gpu.and_then(|gpu| gpu.ranks);
    let mut ranks = ranks.expect("a report on ranks");
    assert_eq!((ranks.jobs.len(), ranks.unrelated.len()), (1, 0));
    ranks.jobs.remove(0)
}

/// How much earlier each rank truly ends under another plan.
fn truth(runs: &[RankRun], other: &Plan) -> Vec<i64> {
    let other = run(other, START);
    let ends = runs.iter().zip(&other);
    ends.map(|(run, other)| run.end_ns.cast_signed() - other.end_ns.cast_signed()).collect()
}

fn assert_close(what: &str, found: &[i64], truth: &[i64]) {
    for (found, truth) in found.iter().zip(truth) {
        let allowed = (truth.unsigned_abs() / 1_000).max(10_000);
        assert!(found.abs_diff(*truth) <= allowed, "{what}: {found} ns, truly {truth} ns");
    }
}

/// The report on a plan against runs without the pauses of one rank, and without any.
fn assert_victims(plan: &Plan) {
    let runs = run(plan, START);
    let moved: Vec<RankRun> =
        runs.iter().map(|run| run.on_clock(i64::from(run.rank) * 2_345_678_901)).collect();
    let pauses = report(&moved).pauses.expect("pauses");
    for source in &pauses.sources {
        let truth = truth(&runs, &plan.without(source.ranks[0]));
        assert_close(&format!("{plan:?}, rank {:?}", source.ranks), &source.earlier_ns, &truth);
    }
    let all = truth(&runs, &plan.without_all());
    assert_close(&format!("{plan:?}, all"), &pauses.all.earlier_ns, &all);
    let steps = pauses.all.steps.expect("steps");
    assert_eq!(steps.steps, plan.steps * u64::from(plan.ranks));
    let shorter_ns = steps.mean_ns.cast_signed() - steps.mean_without_ns.cast_signed();
    let truly_ns = all.iter().sum::<i64>() / steps.steps.cast_signed();
    assert_close("step", &[shorter_ns], &[truly_ns]);
}

/// What the pauses of each rank cost the others, according to runs without the pauses of one rank.
#[test]
fn victims_are_those_of_runs_without_the_pauses() {
    for (one_stream, blocking, think_ns, ranks) in [
        (true, false, 20_000, 2),
        (true, false, 110_000, 2),
        (true, true, 20_000, 3),
        (false, false, 20_000, 2),
        (false, false, 110_000, 2),
        (false, true, 20_000, 3),
        (false, true, 90_000, 4),
    ] {
        assert_victims(&paused(Plan { ranks, one_stream, blocking, think_ns, ..Plan::default() }));
    }
}

#[test]
fn victims_of_random_pauses() {
    for seed in 1..25 {
        let plan = Plan {
            ranks: 2 + u32::try_from(seed % 3).unwrap_or(0),
            blocking: seed % 2 == 0,
            think_ns: [15_000, 60_000, 120_000][usize::try_from(seed % 5 % 3).unwrap_or(0)],
            numbered: seed % 4 == 1,
            seed,
            ..Plan::default()
        };
        assert_victims(&plan.with_random_pauses(1 + seed % 6));
    }
}

/// Ranks 0 and 1, and 2 and 3, have collectives of their own in addition to the collectives of all.
#[test]
fn communicators_of_few_and_of_all() {
    for numbered in [false, true] {
        let plan = paused(Plan { ranks: 4, together: 2, numbered, ..Plan::default() });
        let runs = run(&plan, START);
        let jobs = found(&timelines(&runs));
        let sizes = |size| {
            let of_size = jobs.jobs[0].collectives.iter();
            of_size.filter(|one| one.members.len() == size).count()
        };
        assert_eq!((jobs.jobs.len(), jobs.jobs[0].unmatched), (1, 0));
        assert_eq!((sizes(2), sizes(3), sizes(4)), (80, 0, 20));
        assert_victims(&plan);
    }
}

/// Waits and last ranks, according to the run itself.
#[test]
fn waits_and_the_last_rank() {
    let plan = paused(Plan { ranks: 3, think_ns: 110_000, ..Plan::default() });
    let runs = run(&plan, START);
    let job = report(&runs);
    let count = runs[0].collectives.len();
    for (rank, found) in runs.iter().zip(&job.ranks) {
        let mut wait_ns = 0;
        let mut last = 0;
        for at in 0..count {
            let starts = runs.iter().map(|run| run.collectives[at].0);
            let latest = starts.max().expect("a begin");
            wait_ns += latest - rank.collectives[at].0;
            last += u64::from(rank.collectives[at].0 == latest);
        }
        assert!(found.peer_wait_ns.abs_diff(wait_ns) < 60 * 3_000, "{found:?} {wait_ns}");
        let undecided = job.collectives.last_undecided;
        assert!((last - undecided..=last + undecided).contains(&found.last), "{found:?} {last}");
        let in_collectives: u64 = rank.collectives.iter().map(|(start, end)| end - start).sum();
        assert_eq!(found.peer_wait_ns + found.transfer_ns, in_collectives);
        assert!(found.devices[0].useful_busy_ns <= found.devices[0].busy_ns);
    }
    assert!(job.collectives.last_undecided < 6);
    assert!(job.ranks[1].last_after_pause >= 2 && job.ranks[2].last_after_pause == 0);
}

/// Of many ranks those with most time in pauses are removed one by one, the others together.
#[test]
fn of_many_ranks_some_are_removed_together() {
    let pauses = (0..20).map(|rank| Planned {
        rank,
        step: u64::from(rank) % 6,
        launch: 3 + u64::from(rank) % 9,
        length_ns: u64::from(rank + 1) * MS,
    });
    let plan =
        Plan { ranks: 20, steps: 6, blocking: true, pauses: pauses.collect(), ..Plan::default() };
    let runs = run(&plan, START);
    let pauses = report(&runs).pauses.expect("pauses");
    assert_eq!((pauses.sources.len(), pauses.victims.len()), (17, 20));
    let together = pauses.sources.iter().find(|source| source.ranks.len() > 1);
    let together = together.expect("a row of several");
    assert_eq!((together.ranks.as_slice(), together.pauses), (&[0, 1, 2, 3][..], 4));
    let without = together.ranks.iter().fold(plan, |plan, rank| plan.without(*rank));
    assert_close("together", &together.earlier_ns, &truth(&runs, &without));
}
