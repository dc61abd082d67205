//! Several ranks: clocks, collectives, who waited for whom, what one rank's pauses cost another.

mod common;
mod ranks_job;

use gctrace_analysis::Analysis;
use gctrace_analysis::gpu::collect::About;
use gctrace_analysis::gpu::collect::Collector;
use gctrace_analysis::gpu::ranks::Jobs;
use gctrace_analysis::gpu::ranks::jobs;
use gctrace_analysis::gpu::timeline::Timeline;
use gctrace_analysis::report::RankedJob;
use gctrace_event::Process;
use gctrace_event::Record;
use gctrace_event::read::Item;
use gctrace_event::read::TraceReader;
use ranks_job::Plan;
use ranks_job::Planned;
use ranks_job::RankRun;
use ranks_job::run;

/// The timeline of a real profile.
fn real(name: &str, rank: u32) -> Timeline {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto");
    let path = data.join(format!("{name}.json.gz"));
    let mut reader = TraceReader::open(&path).expect("a trace");
    let mut collector = Collector::default();
    while let Some(item) = reader.next_item().expect("an item") {
        match item {
            Item::Record(Record::GpuOp(op)) => collector.add_op(&op),
            Item::Record(Record::CudaCall(call)) => collector.add_call(&call),
            Item::Record(Record::Annotation(annotation)) => collector.add_annotation(&annotation),
            Item::Record(Record::GpuSync(sync)) => collector.add_sync(sync),
            _ => {}
        }
    }
    let mut timelines = collector.finish(&About {
        trace: rank as usize,
        rank: Some(rank),
        ..About::default()
    });
    timelines.retain(Timeline::has_gpu_times);
    assert_eq!(timelines.len(), 1, "{name}");
    timelines.remove(0)
}

#[test]
fn real_ranks() {
    let timelines = [real("sampled_rank0", 0), real("sampled_rank1", 1)];
    let jobs = found(&timelines);
    eprintln!("{jobs:#?}");
    for other in ["nccl_rank0", "ns_resolution_rank0"] {
        let timelines = [real("sampled_rank0", 0), real(other, 1)];
        assert_eq!(found(&timelines).jobs.len(), 0, "{other} is of another job");
    }
}

const MS: u64 = 1_000_000;
const BEGIN: u64 = 100_000 * MS;

fn timelines(runs: &[RankRun]) -> Vec<Timeline> {
    let timelines = runs.iter().enumerate();
    timelines.map(|(trace, run)| run.timeline(trace)).collect()
}

fn found(timelines: &[Timeline]) -> Jobs {
    jobs(&timelines.iter().collect::<Vec<_>>())
}

/// Pauses of 8 to 30 ms: two on rank 1, one on rank 0, none on others.
fn paused(plan: Plan) -> Plan {
    let pause = |rank, step, launch, length_ms| Planned {
        rank,
        step,
        launch,
        length_ns: length_ms * MS,
    };
    Plan {
        pauses: vec![pause(1, 4, 3, 30), pause(0, 9, 12, 8), pause(1, 13, 20, 15)],
        ..plan
    }
}

#[test]
fn clocks_seconds_apart_are_recovered_from_the_ends_of_collectives() {
    for numbered in [false, true] {
        let plan = paused(Plan {
            ranks: 4,
            numbered,
            ..Plan::default()
        });
        let shifts = [0, -7_654_321_000, 3_000_000_017, 86_399_999_999_999];
        let runs: Vec<RankRun> = run(&plan, BEGIN)
            .iter()
            .zip(shifts)
            .map(|(run, shift)| run.on_clock(shift))
            .collect();
        let jobs = found(&timelines(&runs));
        assert_eq!((jobs.jobs.len(), jobs.alone.len()), (1, 0));
        let job = &jobs.jobs[0];
        for (member, shift) in job.members.iter().zip(shifts) {
            let off = member.offset_ns + shift;
            assert!(off.abs() < 2_000, "rank {}: {off} ns off", member.rank);
            assert!(member.error_ns < 2_000 && !member.ambiguous, "{member:?}");
        }
        assert_eq!(job.collectives.len(), 60);
        assert!(job.collectives.iter().all(|one| one.members.len() == 4));
        assert_eq!((job.unmatched, job.unmatched_outside), (0, 0));
    }
}

#[test]
fn heads_and_tails_that_the_others_lack_stay_unmatched() {
    let plan = paused(Plan::default());
    let runs = run(&plan, BEGIN);
    let (third, fifteenth) = (runs[0].steps[3].0, runs[1].steps[15].0);
    let cut = [
        runs[0].between(third, u64::MAX),
        runs[1].between(0, fifteenth).on_clock(-55_555_555_555),
    ];
    let jobs = found(&timelines(&cut));
    let job = &jobs.jobs[0];
    assert!((job.members[1].offset_ns - 55_555_555_555).abs() < 2_000);
    // As the true collectives say.
    let kept = |run: &RankRun| run.timeline(0).ops.len();
    assert!(kept(&cut[0]) < kept(&runs[0]) && kept(&cut[1]) < kept(&runs[1]));
    let both = runs[0].collectives.iter().zip(&runs[1].collectives);
    let both = both.filter(|(first, second)| first.0 >= third && second.1 <= fifteenth);
    let both = both.count();
    assert!(
        both > 20 && job.collectives.len().abs_diff(both) <= 2,
        "{both} {job:?}"
    );
    assert!(job.unmatched > 10);
    assert!(job.unmatched - job.unmatched_outside <= 2);
}

#[test]
fn a_rank_that_is_not_there() {
    let plan = paused(Plan {
        ranks: 3,
        ..Plan::default()
    });
    let runs = run(&plan, BEGIN);
    let jobs = found(&timelines(&[runs[0].clone(), runs[2].clone()]));
    let job = &jobs.jobs[0];
    let ranks: Vec<u32> = job.members.iter().map(|member| member.rank).collect();
    assert_eq!(ranks, [0, 2]);
    assert_eq!(job.collectives.len(), 60);
}

#[test]
fn one_clock_where_the_ranks_are_of_one_trace() {
    let runs = run(&paused(Plan::default()), BEGIN);
    let timelines: Vec<Timeline> = runs.iter().map(|run| run.timeline(0)).collect();
    let job = &found(&timelines).jobs[0];
    assert!(job.members.iter().all(|member| member.offset_ns == 0));
    assert!(job.members.iter().all(|member| member.aligned_by == 0));
    assert_eq!(job.collectives.len(), 60);
}

#[test]
fn unrelated_traces_are_no_job() {
    let first = run(&paused(Plan::default()), BEGIN);
    let numbered = Plan {
        numbered: true,
        ..paused(Plan::default())
    };
    let first_numbered = run(&numbered, BEGIN);
    for seed in 2..22 {
        for numbered in [false, true] {
            let other = Plan {
                seed,
                numbered,
                ..Plan::default()
            };
            let second = run(&other, BEGIN + 17 * MS);
            let first = if numbered { &first_numbered } else { &first };
            let timelines = timelines(&[first[0].clone(), second[1].clone()]);
            let jobs = found(&timelines);
            assert_eq!(
                (jobs.jobs.len(), jobs.alone.len()),
                (0, 2),
                "seed {seed}, {numbered}: {jobs:?}"
            );
        }
    }
    // Nor those of one rank, or of none.
    let same = [first[0].timeline(0), first[0].timeline(1)];
    assert_eq!(found(&same).jobs.len(), 0);
    let unranked = |trace| About {
        trace,
        ..About::default()
    };
    let none = [
        first[0].timeline_about(unranked(0)),
        first[1].timeline_about(unranked(1)),
    ];
    assert!(found(&none).jobs.is_empty() && found(&none).alone.is_empty());
}

#[test]
fn hosts_whose_wall_clocks_are_an_hour_apart_are_not_one_job() {
    let runs = run(&paused(Plan::default()), BEGIN);
    let about = |trace, unix_offset_ns| About {
        trace,
        rank: u32::try_from(trace).ok(),
        unix_offset_ns: Some(unix_offset_ns),
        ..About::default()
    };
    for (apart, jobs) in [(0, 1), (3_000_000_000, 1), (3_600_000_000_000, 0)] {
        let timelines = [
            runs[0].timeline_about(about(0, 1_700_000_000_000_000_000)),
            runs[1].timeline_about(about(1, 1_700_000_000_000_000_000 + apart)),
        ];
        assert_eq!(found(&timelines).jobs.len(), jobs, "{apart} ns apart");
    }
}

/// The report on a job's ranks, each in a trace of its own.
fn report(runs: &[RankRun]) -> RankedJob {
    let mut analysis = Analysis::default();
    for run in runs {
        let Record::Process(process) = common::process(1000 + run.rank, 0, "generational") else {
            panic!("a process");
        };
        let mut records = vec![Record::Process(Process {
            rank: Some(run.rank),
            ..process
        })];
        records.extend(run.records.iter().cloned());
        common::add(&mut analysis, "t.json", records, Some(common::end(200_000)));
    }
    let ranks = analysis.report().gpu.and_then(|gpu| gpu.ranks);
    let mut ranks = ranks.expect("a report on ranks");
    assert_eq!((ranks.jobs.len(), ranks.unrelated.len()), (1, 0));
    ranks.jobs.remove(0)
}

/// How much earlier each rank truly ends under another plan.
fn truth(runs: &[RankRun], other: &Plan) -> Vec<i64> {
    let other = run(other, BEGIN);
    let ends = runs.iter().zip(&other);
    ends.map(|(run, other)| run.end_ns.cast_signed() - other.end_ns.cast_signed())
        .collect()
}

fn assert_close(what: &str, found: &[i64], truth: &[i64]) {
    for (found, truth) in found.iter().zip(truth) {
        if found.abs_diff(*truth) > 20_000 { let w = what.split("pauses").next().unwrap(); eprintln!("OFF {} of {} {}", found.abs_diff(*truth), truth, w); }
        let allowed = (truth.unsigned_abs() / 2).max(9_200_000);
        assert!(
            found.abs_diff(*truth) <= allowed,
            "{what}: {found} ns, truly {truth} ns"
        );
    }
}

/// The report on a plan against runs without the pauses of one rank, and without any.
fn assert_victims(plan: &Plan) {
    let runs = run(plan, BEGIN);
    let moved: Vec<RankRun> = runs
        .iter()
        .map(|run| run.on_clock(i64::from(run.rank) * 2_345_678_901))
        .collect();
    let pauses = report(&moved).pauses.expect("pauses");
    for source in &pauses.sources {
        let truth = truth(&runs, &plan.without(source.ranks[0]));
        assert_close(
            &format!("{plan:?}, rank {:?}", source.ranks),
            &source.earlier_ns,
            &truth,
        );
    }
    let all = truth(&runs, &plan.without_all());
    assert_close(&format!("{plan:?}, all"), &pauses.all.earlier_ns, &all);
    let steps = pauses.all.steps.expect("steps");
    assert_eq!(steps.steps, plan.steps * u64::from(plan.ranks));
    let shorter_ns = steps.mean_ns.cast_signed() - steps.mean_without_ns.cast_signed();
    let truly_ns = all.iter().sum::<i64>() / steps.steps.cast_signed();
    assert_close("step", &[shorter_ns], &[truly_ns]);
}

/// Whose pauses cost whom how much: as runs without the pauses of one rank say.
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
        assert_victims(&paused(Plan {
            ranks,
            one_stream,
            blocking,
            think_ns,
            ..Plan::default()
        }));
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

/// Ranks 0 and 1, and 2 and 3, have collectives of their own besides those of all.
#[test]
fn communicators_of_few_and_of_all() {
    for numbered in [false, true] {
        let plan = paused(Plan {
            ranks: 4,
            together: 2,
            numbered,
            ..Plan::default()
        });
        let runs = run(&plan, BEGIN);
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

/// Waits and the last to come, as the run itself tells.
#[test]
fn waits_and_the_last_rank() {
    let plan = paused(Plan {
        ranks: 3,
        think_ns: 110_000,
        ..Plan::default()
    });
    let runs = run(&plan, BEGIN);
    let job = report(&runs);
    let count = runs[0].collectives.len();
    for (rank, found) in runs.iter().zip(&job.ranks) {
        let mut wait_ns = 0;
        let mut last = 0;
        for at in 0..count {
            let begins = runs.iter().map(|run| run.collectives[at].0);
            let latest = begins.max().expect("a begin");
            wait_ns += latest - rank.collectives[at].0;
            last += u64::from(rank.collectives[at].0 == latest);
        }
        assert!(found.peer_wait_ns.abs_diff(wait_ns) < 60 * 3_000, "{found:?} {wait_ns}");
        let undecided = job.collectives.last_undecided;
        assert!((last - undecided..=last + undecided).contains(&found.last), "{found:?} {last}");
        let in_collectives: u64 = rank.collectives.iter().map(|(begin, end)| end - begin).sum();
        assert_eq!(found.peer_wait_ns + found.transfer_ns, in_collectives);
        assert!(found.devices[0].useful_busy_ns <= found.devices[0].busy_ns);
    }
    assert!(job.collectives.last_undecided < 6);
    assert!(job.ranks[1].last_after_pause >= 2 && job.ranks[2].last_after_pause == 0);
}
#[test]
fn debug_divergence() {
    use gctrace_analysis::gpu::replay::*;
    for seed in 1..25 {
        let plan = Plan {
            ranks: 2 + u32::try_from(seed % 3).unwrap_or(0),
            blocking: seed % 2 == 0,
            think_ns: [15_000, 60_000, 120_000][usize::try_from(seed % 5 % 3).unwrap_or(0)],
            numbered: seed % 4 == 1,
            seed,
            ..Plan::default()
        };
        let plan = plan.with_random_pauses(1 + seed % 6);
        let runs = run(&plan, BEGIN);
        let tls = timelines(&runs);
        let refs: Vec<&Timeline> = tls.iter().collect();
        let jobs = jobs(&refs);
        let job = jobs.jobs[0].job(&refs);
        let model = Model::learn(&job);
        for source in 0..plan.ranks {
            let other = run(&plan.without(source), BEGIN);
            let schedule = model.replay(&Change::without(&job, |at, _| at == source as usize));
            let mut worst = (0, String::new());
            let mut first = String::new();
            for (at, o) in other.iter().enumerate() {
                let t2 = o.timeline(at);
                // ops by correlation order: ops sorted by begin per stream equal order
                for s in 0..t2.streams.len() as u32 {
                    let a: Vec<usize> = tls[at].ops.iter().enumerate().filter(|(_, x)| x.stream == s).map(|x| x.0).collect();
                    let b: Vec<usize> = t2.ops.iter().enumerate().filter(|(_, x)| x.stream == s).map(|x| x.0).collect();
                    for (k, (a, b)) in a.iter().zip(&b).enumerate() {
                        let r = schedule.op(at, *a);
                        let t = t2.ops[*b];
                        let off = r.0.abs_diff(t.begin_ns);
                        if off > 20_000 && (first.is_empty()) {
                            first = format!("rank {at} stream {s} op {k}: replay {} truth {} measured {} call {:?} truecall {:?} rcall {:?}", r.0 - BEGIN, t.begin_ns - BEGIN, tls[at].ops[*a].begin_ns - BEGIN, tls[at].calls[tls[at].ops[*a].call as usize].begin_ns - BEGIN, t2.calls[t.call as usize].begin_ns - BEGIN, schedule.call(at, tls[at].ops[*a].call as usize).0 - BEGIN);
                        }
                        if off > worst.0 { worst = (off, format!("{at} {s} {k}")); }
                    }
                }
            }
            if worst.0 > 20_000 { eprintln!("DIV seed {seed} source {source} worst {worst:?} first {first} plan {:?}", plan.pauses); }
        }
    }
}
