//! What the ranks of each communicator waited for each other, and for whose pauses: against the runs
//! themselves, and runs without the pauses.

#![expect(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use crate::{ranks_job, ranks_layouts};

use gctrace_analysis::gpu::ranks::report;
use gctrace_analysis::gpu::timeline::Timeline;
use gctrace_analysis::report::{CollectiveWaits, CommunicatorKind, CommunicatorReport, RankedJob};
use ranks_job::{MS, Plan, Planned, RankRun, START, paused, run, timelines};
use ranks_layouts::schedules::{expert_parallel, interleaved};
use ranks_layouts::{Layout, Naming, Trace, simulate};
use std::collections::BTreeMap;

/// The one job in timelines.
fn job(timelines: &[Timeline]) -> RankedJob {
    let report = report(&timelines.iter().collect::<Vec<_>>());
    let mut report = report.expect("a report on ranks");
    assert_eq!((report.jobs.len(), report.unrelated.len()), (1, 0));
    report.jobs.remove(0)
}

/// The job's ranks, each on a clock of its own.
fn report_of(runs: &[RankRun]) -> RankedJob {
    let moved: Vec<RankRun> =
        runs.iter().map(|run| run.on_clock(i64::from(run.rank) * 2_345_678_901)).collect();
    job(&timelines(&moved))
}

/// What the ranks of each group of a run waited: from each start to the last one.
fn truth(runs: &[RankRun]) -> BTreeMap<String, i64> {
    let mut starts: BTreeMap<(&String, usize), Vec<u64>> = BTreeMap::new();
    for run in runs {
        for (at, (group, (start_ns, _))) in run.groups.iter().zip(&run.collectives).enumerate() {
            starts.entry((group, at)).or_default().push(*start_ns);
        }
    }
    let mut waits = BTreeMap::new();
    for ((group, _), starts) in starts {
        let last_ns = starts.iter().max().expect("a start");
        let wait_ns: u64 = starts.iter().map(|start_ns| last_ns - start_ns).sum();
        *waits.entry(group.clone()).or_default() += wait_ns.cast_signed();
    }
    waits
}

fn less(before: &BTreeMap<String, i64>, after: &BTreeMap<String, i64>) -> BTreeMap<String, i64> {
    let groups = before.iter();
    groups.map(|(group, before_ns)| (group.clone(), before_ns - after[group])).collect()
}

fn named(kinds: &[CommunicatorKind]) -> BTreeMap<String, &CommunicatorReport> {
    let all = kinds.iter().flat_map(|kind| &kind.longest);
    all.map(|all| (all.name.clone().expect("a name"), all)).collect()
}

#[track_caller]
fn assert_close(what: &str, found_ns: i64, truth_ns: i64, allowed_ns: u64) {
    let allowed_ns = allowed_ns.max(truth_ns.unsigned_abs() / 1_000);
    assert!(
        found_ns.abs_diff(truth_ns) <= allowed_ns,
        "{what}: {found_ns} ns, truly {truth_ns} ns, allowed {allowed_ns} ns"
    );
}

/// By communicator, against runs without the pauses of each rank, and without any.
fn assert_plan(plan: &Plan) -> RankedJob {
    let runs = run(plan, START);
    let job = report_of(&runs);
    let waited = truth(&runs);
    let pauses = job.pauses.as_ref().expect("pauses");
    let all = less(&waited, &truth(&run(&plan.without_all(), START)));
    let without = pauses.sources.iter().map(|source| {
        let others = source.ranks.iter();
        let other = others.fold(plan.clone(), |plan, rank| plan.without(*rank));
        less(&waited, &truth(&run(&other, START)))
    });
    let without: Vec<BTreeMap<String, i64>> = without.collect();
    let found = named(&job.communicators);
    assert_eq!(found.len(), waited.len());
    for (name, truth_ns) in &waited {
        let found = found[name];
        // Each start is placed by its clock, with an error of some microseconds.
        let members = found.waits.collectives * found.ranks;
        let (waits, allowed_ns) = (&found.waits, members * 3_000);
        let wait_ns = waits.wait_ns.cast_signed();
        assert_close(name, wait_ns, *truth_ns, allowed_ns);
        let for_pauses_ns = waits.for_pauses_ns.expect("pauses");
        assert_close(name, for_pauses_ns, all[name], allowed_ns);
        assert_eq!(waits.for_sources_ns.len(), pauses.sources.len());
        let rows = pauses.sources.iter().zip(&waits.for_sources_ns);
        for ((source, found_ns), truth) in rows.zip(&without) {
            let what = format!("{name}, without pauses of {:?}", source.ranks);
            assert_close(&what, *found_ns, truth[name], allowed_ns);
        }
    }
    assert_sums(&job);
    job
}

/// Kinds add up to what the ranks waited, and communicators to their kinds.
fn assert_sums(job: &RankedJob) {
    let total = |waits: &[&CollectiveWaits]| -> u64 { waits.iter().map(|wait| wait.wait_ns).sum() };
    let kinds: Vec<&CollectiveWaits> = job.communicators.iter().map(|kind| &kind.waits).collect();
    let ranks_ns: u64 = job.ranks.iter().map(|rank| rank.peer_wait_ns).sum();
    assert_eq!(total(&kinds), ranks_ns);
    for kind in &job.communicators {
        let waits: Vec<&CollectiveWaits> =
            kind.longest.iter().map(|longest| &longest.waits).collect();
        assert!(
            kind.longest
                .is_sorted_by_key(|communicator| std::cmp::Reverse(communicator.waits.wait_ns))
        );
        if kind.communicators == waits.len() as u64 {
            assert_eq!(total(&waits), kind.waits.wait_ns);
        }
    }
}

/// Tensor-parallel groups of neighbors, and data-parallel ones across them.
fn grid(ranks: u32, together: u32) -> Plan {
    paused(Plan {
        ranks,
        together,
        across: true,
        blocking: true,
        numbered: true,
        ..Plan::default()
    })
}

#[test]
fn waits_by_communicator_are_those_of_runs_without_the_pauses() {
    for (ranks, together) in [(4, 2), (8, 4), (12, 3)] {
        let job = assert_plan(&grid(ranks, together));
        let shapes = job.communicators.iter().map(|kind| {
            let shape = (kind.size, kind.stride, kind.communicators);
            (shape.0.expect("a size"), shape.1.expect("a stride"), shape.2)
        });
        let mut shapes: Vec<(u64, u32, u64)> = shapes.collect();
        shapes.sort_unstable();
        let (together, across) = (u64::from(together), u64::from(ranks / together));
        let mut truly = [(together, 1, across), (across, ranks / across as u32, together)];
        truly.sort_unstable();
        assert_eq!(shapes, truly);
    }
}

/// Rank 1 pauses in the middle of a step. Its neighbor waits for it, and then ranks of other
/// communicators for that neighbor, which never paused.
#[test]
fn pauses_delay_communicators_that_the_rank_is_not_in() {
    let plan = Plan {
        pauses: vec![Planned { rank: 1, step: 4, launch: 3, length_ns: 30 * MS }],
        ..grid(4, 2)
    };
    let job = assert_plan(&plan);
    let found = named(&job.communicators);
    let across = found["across 0"];
    assert_eq!((across.first_rank, across.last_rank), (0, 2));
    let for_pauses_ns = across.waits.for_pauses_ns.expect("pauses");
    assert!(for_pauses_ns > 20 * MS.cast_signed(), "{for_pauses_ns}");
    assert_eq!(across.waits.for_sources_ns, [for_pauses_ns]);
}

/// Of many sources and communicators: rows of several ranks, and kinds that have more than are listed.
#[test]
fn of_many_communicators_those_that_waited_longest_are_listed() {
    let pauses = (0..20).map(|rank| Planned {
        rank,
        step: u64::from(rank) % 6,
        launch: 3 + u64::from(rank) % 9,
        length_ns: u64::from(rank + 1) * MS,
    });
    let plan = Plan { steps: 6, pauses: pauses.collect(), ..grid(40, 2) };
    let runs = run(&plan, START);
    let job = report_of(&runs);
    let waited = truth(&runs);
    let few = job.communicators.iter().find(|kind| kind.size == Some(2));
    let few = few.expect("groups of two");
    assert_eq!((few.communicators, few.longest.len()), (20, 16));
    assert_eq!(few.waits.for_sources_ns.len(), 17);
    let of_few = waited.iter().filter(|(name, _)| name.starts_with("few"));
    let truth_ns: i64 = of_few.clone().map(|(_, wait_ns)| *wait_ns).sum();
    let wait_ns = few.waits.wait_ns.cast_signed();
    assert_close("all", wait_ns, truth_ns, few.waits.collectives * 6_000);
    let most = of_few.max_by_key(|(_, wait_ns)| **wait_ns).expect("one");
    assert_eq!(few.longest[0].name.as_ref(), Some(most.0));
    assert_sums(&job);
}

/// What the ranks of each group of a layout waited, and of all sends and receives, if each waits.
fn truth_of(traces: &[Trace]) -> BTreeMap<Option<usize>, u64> {
    let kernels = || traces.iter().flat_map(|trace| &trace.kernels);
    let mut lasts: BTreeMap<usize, u64> = BTreeMap::new();
    for kernel in kernels() {
        let last_ns = lasts.entry(kernel.truth).or_default();
        *last_ns = kernel.start_ns.max(*last_ns);
    }
    let mut waits = BTreeMap::new();
    for kernel in kernels() {
        *waits.entry(kernel.group).or_default() += lasts[&kernel.truth] - kernel.start_ns;
    }
    waits
}

fn assert_layout(layout: &Layout) {
    let traces = simulate(layout);
    for naming in [Naming::Group, Naming::Sequence] {
        let timelines = (0..)
            .zip(&traces)
            .map(|(rank, trace)| trace.timeline(rank, naming, layout, u64::from(rank) * 1_234_567));
        let job = job(&timelines.collect::<Vec<_>>());
        let found = named(&job.communicators);
        let truth = truth_of(&traces);
        assert_eq!(found.len(), truth.len());
        for (group, truth_ns) in truth {
            let found = found[&group.map_or(0, |group| group + 1).to_string()];
            let ranks = group.map(|group| &layout.groups[group]);
            let ranks = ranks.map(|ranks| (ranks.first(), ranks.last(), ranks.len() as u64));
            if let Some((first, last, count)) = ranks {
                let bounds = (Some(&found.first_rank), Some(&found.last_rank), found.ranks);
                assert_eq!(bounds, (first, last, count));
            }
            let kernels = found.waits.collectives * ranks.map_or(2, |(.., count)| count);
            let wait_ns = found.waits.wait_ns.cast_signed();
            let what = format!("{naming:?}, {group:?}");
            assert_close(&what, wait_ns, truth_ns.cast_signed(), kernels * 3_000);
            assert_eq!((found.waits.for_pauses_ns, found.waits.for_sources_ns.len()), (None, 0));
        }
        assert_sums(&job);
    }
}

#[test]
fn groups_of_experts_and_of_a_pipeline() {
    assert_layout(&expert_parallel(6));
    assert_layout(&interleaved(4, 2, 8, 2, 7));
}

/// Without names, collectives of the same ranks are of one communicator.
#[test]
fn communicators_without_names() {
    let plan = paused(Plan { ranks: 3, think_ns: 110_000, ..Plan::default() });
    let runs = run(&plan, START);
    let job = report_of(&runs);
    assert_eq!(job.communicators.len(), 1);
    let kind = &job.communicators[0];
    let shape = (kind.size, kind.stride, kind.communicators);
    assert_eq!(shape, (Some(3), Some(1), 1));
    assert_eq!(kind.longest[0].name, None);
    let wait_ns = kind.waits.wait_ns.cast_signed();
    assert_close("all", wait_ns, truth(&runs)["0"], 3 * 60 * 3_000);
    assert_sums(&job);
}
