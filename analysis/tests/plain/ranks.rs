//! Several ranks: which traces are one job's, how their clocks lie, which collectives are the same.

use crate::ranks_job;

use gctrace_analysis::gpu::collect::TimelineContext;
use gctrace_analysis::gpu::timeline::Timeline;
use gctrace_event::{GpuOp, Record};
use ranks_job::{MS, Plan, RankRun, START, found, paused, run, timelines};

#[test]
fn clocks_seconds_apart_are_recovered_from_the_ends_of_collectives() {
    for numbered in [false, true] {
        let plan = paused(Plan { ranks: 4, numbered, ..Plan::default() });
        let shifts = [0, -7_654_321_000, 3_000_000_017, 86_399_999_999_999];
        let runs: Vec<RankRun> =
            run(&plan, START).iter().zip(shifts).map(|(run, shift)| run.on_clock(shift)).collect();
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

/// Shifted by one collective, two of three all-reduces still match: the right offset is the one that
/// leaves the fewest unmatched.
#[test]
fn a_clock_is_not_off_by_one_collective() {
    for kernel_ns in [15_000, 25_000, 60_000] {
        let plan = Plan { steps: 36, kernels: [20, 10, 10], kernel_ns, ..Plan::default() };
        let shift = 2_345_678_901;
        let [first, second] = &run(&plan.with_random_pauses(8), START)[..] else {
            panic!("two ranks");
        };
        let jobs = found(&timelines(&[first.clone(), second.on_clock(shift)]));
        let member = jobs.jobs[0].members[1];
        let off = member.offset_ns + shift;
        assert!(off.abs() < 2_000, "{off} ns off");
        assert_eq!(jobs.jobs[0].collectives.len(), 36 * 3);
    }
}

#[test]
fn heads_and_tails_that_the_others_lack_stay_unmatched() {
    let plan = paused(Plan::default());
    let runs = run(&plan, START);
    let (third, fifteenth) = (runs[0].steps[3].0, runs[1].steps[15].0);
    let cut =
        [runs[0].between(third, u64::MAX), runs[1].between(0, fifteenth).on_clock(-55_555_555_555)];
    let jobs = found(&timelines(&cut));
    let job = &jobs.jobs[0];
    assert!((job.members[1].offset_ns - 55_555_555_555).abs() < 2_000);
    // According to the true collectives.
    let kept = |run: &RankRun| run.timeline(0).ops.len();
    assert!(kept(&cut[0]) < kept(&runs[0]) && kept(&cut[1]) < kept(&runs[1]));
    let both = runs[0].collectives.iter().zip(&runs[1].collectives);
    let both = both.filter(|(first, second)| first.0 >= third && second.1 <= fifteenth);
    let both = both.count();
    assert!(both > 20 && job.collectives.len().abs_diff(both) <= 2, "{both} {job:?}");
    assert!(job.unmatched > 10);
    assert!(job.unmatched - job.unmatched_outside <= 2);
}

#[test]
fn a_rank_that_is_not_there() {
    let plan = paused(Plan { ranks: 3, ..Plan::default() });
    let runs = run(&plan, START);
    let jobs = found(&timelines(&[runs[0].clone(), runs[2].clone()]));
    let job = &jobs.jobs[0];
    let ranks: Vec<u32> = job.members.iter().map(|member| member.rank).collect();
    assert_eq!(ranks, [0, 2]);
    assert_eq!(job.collectives.len(), 60);
}

#[test]
fn one_clock_where_the_ranks_are_of_one_trace() {
    let runs = run(&paused(Plan::default()), START);
    let timelines: Vec<Timeline> = runs.iter().map(|run| run.timeline(0)).collect();
    let job = &found(&timelines).jobs[0];
    assert!(job.members.iter().all(|member| member.offset_ns == 0));
    assert!(job.members.iter().all(|member| member.aligned_by == 0));
    assert_eq!(job.collectives.len(), 60);
}

#[test]
fn unrelated_traces_are_no_job() {
    let first = run(&paused(Plan::default()), START);
    let numbered = Plan { numbered: true, ..paused(Plan::default()) };
    let first_numbered = run(&numbered, START);
    for seed in 2..22 {
        for numbered in [false, true] {
            let other = Plan { seed, numbered, ..Plan::default() };
            let second = run(&other, START + 17 * MS);
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
    // Nor do two timelines of one rank, or of none.
    let same = [first[0].timeline(0), first[0].timeline(1)];
    assert_eq!(found(&same).jobs.len(), 0);
    let unranked = |trace| TimelineContext { trace, ..TimelineContext::default() };
    let none = [first[0].timeline_about(unranked(0)), first[1].timeline_about(unranked(1))];
    assert!(found(&none).jobs.is_empty() && found(&none).alone.is_empty());
}

#[test]
fn hosts_whose_wall_clocks_are_an_hour_apart_are_not_one_job() {
    let runs = run(&paused(Plan::default()), START);
    let about = |trace, unix_offset_ns| TimelineContext {
        trace,
        rank: u32::try_from(trace).ok(),
        unix_offset_ns: Some(unix_offset_ns),
        ..TimelineContext::default()
    };
    for (apart, jobs) in [(0, 1), (3_000_000_000, 1), (3_600_000_000_000, 0)] {
        let timelines = [
            runs[0].timeline_about(about(0, 1_700_000_000_000_000_000)),
            runs[1].timeline_about(about(1, 1_700_000_000_000_000_000 + apart)),
        ];
        assert_eq!(found(&timelines).jobs.len(), jobs, "{apart} ns apart");
    }
}

/// Steps of exactly the same length match at any number of steps apart: only the profiler's numbers
/// of steps decide.
#[test]
fn even_steps_need_the_numbers_of_steps() {
    let plan = Plan { even: true, blocking: true, ..Plan::default() };
    let runs = run(&plan, START);
    let shift = 5_000_000_017;
    let cut = [
        runs[0].between(runs[0].steps[4].0, u64::MAX),
        runs[1].between(0, runs[1].steps[16].0).on_clock(shift),
    ];
    let numbered = &found(&timelines(&cut)).jobs[0];
    assert!((numbered.members[1].offset_ns + shift).abs() < 2_000);
    assert!(!numbered.members[1].ambiguous);
    let without_steps = cut.map(|mut run| {
        run.records.retain(|record| match record {
            Record::Annotation(one) => !one.name.starts_with("ProfilerStep"),
            _ => true,
        });
        run
    });
    let evenly = &found(&timelines(&without_steps)).jobs[0];
    assert!(evenly.members[1].ambiguous, "{:?}", evenly.members);
    // Correct wall clocks decide as well; those that are off by more than a step do not.
    for (wrong_by_ns, ambiguous) in [(300_000, false), (2_345_678_901, true)] {
        let about = |trace, unix_offset_ns| TimelineContext {
            trace,
            rank: u32::try_from(trace).ok(),
            unix_offset_ns: Some(unix_offset_ns),
            ..TimelineContext::default()
        };
        let unix_ns = 1_700_000_000_000_000_000;
        let timelines = [
            without_steps[0].timeline_about(about(0, unix_ns)),
            without_steps[1].timeline_about(about(1, unix_ns - shift + wrong_by_ns)),
        ];
        let member = found(&timelines).jobs[0].members[1];
        assert_eq!(member.ambiguous, ambiguous, "{member:?}");
        assert!(ambiguous || (member.offset_ns + shift).abs() < 2_000, "{member:?}");
    }
}

/// The profiler's `SendRecv` without the operation of the program is between two ranks.
#[test]
fn point_to_point_is_left_out() {
    let runs = run(&paused(Plan::default()), START);
    let with = runs.iter().map(|run| {
        let mut with = run.clone();
        let ops: Vec<&GpuOp> = run.records.iter().filter_map(op).collect();
        let sends = ops.iter().step_by(50).map(|op| {
            Record::GpuOp(GpuOp {
                name: "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)".to_owned(),
                stream: 30,
                correlation: None,
                ..GpuOp::clone(op)
            })
        });
        with.records.extend(sends.collect::<Vec<_>>());
        with
    });
    let job = &found(&timelines(&with.collect::<Vec<_>>())).jobs[0];
    assert_eq!((job.collectives.len(), job.unmatched), (60, 0));
    assert!(job.members.iter().all(|member| member.point_to_point == 13));
}

fn op(record: &Record) -> Option<&GpuOp> {
    match record {
        Record::GpuOp(op) => Some(op),
        _ => None,
    }
}

/// Timelines of other jobs next to one: each rank is assigned to its own.
#[test]
fn two_jobs_at_once() {
    let first = run(&paused(Plan::default()), START);
    let other = Plan { seed: 5, ranks: 3, ..Plan::default() };
    let second = run(&other, START + 3 * MS);
    let runs: Vec<RankRun> = first.into_iter().chain(second).collect();
    let found = found(&timelines(&runs));
    let members = |job: usize| {
        let members = found.jobs[job].members.iter();
        members.map(|member| member.timeline).collect::<Vec<_>>()
    };
    assert_eq!((members(0), members(1)), (vec![0, 1], vec![2, 3, 4]));
}
