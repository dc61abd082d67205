//! Groups of ranks that run in step, pipelines, uneven ranks: all matches are right, and undecided
//! kernels are reported as such.

use crate::ranks_layouts;

use gctrace_analysis::gpu::ranks::{RankJobs, jobs, report};
use gctrace_analysis::gpu::timeline::Timeline;
use proptest::prelude::*;
use ranks_layouts::schedules::{expert_parallel, in_step, interleaved};
use ranks_layouts::{Act, Found, Layout, Naming, Trace, US, compare, random, simulate, truths};

/// What is found in the traces of some ranks, each on a clock of its own.
fn found(traces: &[(u32, Trace)], layout: &Layout, naming: Naming) -> (RankJobs, Vec<Timeline>) {
    let timelines = traces.iter().map(|(rank, trace)| {
        let shift_ns = random(layout.seed, [u64::from(*rank), 5, 5], 3_000_000_000);
        trace.timeline(*rank, naming, layout, shift_ns)
    });
    let timelines: Vec<Timeline> = timelines.collect();
    let jobs = jobs(&timelines.iter().collect::<Vec<_>>());
    (jobs, timelines)
}

fn all(layout: &Layout) -> Vec<(u32, Trace)> {
    (0..).zip(simulate(layout)).collect()
}

fn right(count: usize) -> Found {
    Found { right: count, wrong: 0 }
}

/// With names everything is matched; without, what is matched is right, the rest is ambiguous.
#[track_caller]
fn assert_truth(traces: &[(u32, Trace)], layout: &Layout) -> usize {
    let [collectives, transfers] = truths(traces);
    for naming in [Naming::Group, Naming::Sequence] {
        let (jobs, timelines) = found(traces, layout, naming);
        assert_eq!((jobs.jobs.len(), jobs.alone.len()), (1, 0), "{naming:?}");
        let found = compare(&jobs, traces, &timelines);
        assert_eq!(found, [right(collectives), right(transfers)], "{naming:?}");
        assert_eq!(jobs.jobs[0].ambiguous, 0);
        assert!(jobs.jobs[0].members.iter().all(|member| !member.ambiguous));
    }
    let (jobs, timelines) = found(traces, layout, Naming::Nothing);
    let [found, transfers] = compare(&jobs, traces, &timelines);
    assert_eq!((found.wrong, transfers), (0, right(0)));
    let ambiguous: u64 = jobs.jobs.iter().map(|job| job.ambiguous).sum();
    assert!(found.right == collectives || ambiguous > 0, "{found:?}");
    found.right
}

/// Tensor-parallel groups that compute for about as long as each other: their ends agree within
/// some microseconds.
#[test]
fn groups_in_step_are_ambiguous_without_names() {
    let layout = in_step(16, 4, 12, 40 * US, 8 * US, 1);
    let right = assert_truth(&all(&layout), &layout);
    // The communicator of all ranks may be distinguished, the groups of four of them are not.
    assert!(right <= 12, "{right}");
    let (jobs, timelines) = found(&all(&layout), &layout, Naming::Nothing);
    assert!(jobs.jobs[0].ambiguous >= 16 * 12 * 5);
    let timelines: Vec<&Timeline> = timelines.iter().collect();
    let report = report(&timelines).expect("ranks");
    let job = &report.jobs[0];
    assert_eq!(job.collectives.kernels_ambiguous, jobs.jobs[0].ambiguous);
    assert!(job.ranks.iter().all(|rank| rank.collectives == right as u64));
}

/// Groups that compute for clearly different times are distinguished by their ends.
#[test]
fn groups_that_differ_are_matched_without_names() {
    let layout = in_step(8, 4, 20, 300 * US, 400 * US, 2);
    let traces = all(&layout);
    assert_eq!(assert_truth(&traces, &layout), truths(&traces)[0]);
}

/// All ranks compute for exactly as long: nothing shows which of them wait for each other.
#[test]
fn lockstep_is_ambiguous_without_names() {
    let layout = in_step(8, 2, 10, 200 * US, 0, 3);
    assert_eq!(assert_truth(&all(&layout), &layout), 0);
}

/// Of a job of two ranks, collectives can only be with the other, even in lockstep. Two ranks of a
/// larger job may be of different groups.
#[test]
fn two_ranks_of_a_job_of_two() {
    for more_ns in [0, 8 * US] {
        for (world_size, matched) in [(None, 0), (Some(8), 0), (Some(2), 60)] {
            let layout = Layout { world_size, ..in_step(2, 2, 10, 200 * US, more_ns, 3) };
            let traces = all(&layout);
            let (jobs, timelines) = found(&traces, &layout, Naming::Nothing);
            let [found, _] = compare(&jobs, &traces, &timelines);
            assert_eq!((jobs.jobs.len(), found), (1, right(matched)), "{world_size:?}");
            let ambiguous = jobs.jobs[0].ambiguous;
            assert_eq!(ambiguous, if matched == 0 { 120 } else { 0 });
        }
    }
}

/// Two steps: two ranks of different groups have two collectives in common.
#[test]
fn profiles_of_two_steps_are_one_job() {
    let layout = in_step(32, 8, 2, 100 * US, 300 * US, 4);
    let traces = all(&layout);
    let (jobs, timelines) = found(&traces, &layout, Naming::Sequence);
    assert_eq!((jobs.jobs.len(), jobs.alone.len()), (1, 0));
    let [collectives, _] = truths(&traces);
    assert_eq!(compare(&jobs, &traces, &timelines)[0], right(collectives));
}

/// A rank that ends early, one that starts late, ranks that are missing.
#[test]
fn uneven_ranks() {
    for (mean_ns, more_ns) in [(40 * US, 8 * US), (300 * US, 400 * US)] {
        let layout = in_step(12, 4, 16, mean_ns, more_ns, 5);
        let mut traces = all(&layout);
        traces[1].1.kernels.truncate(6 * 9);
        traces[6].1.kernels.drain(..6 * 5 + 2);
        traces.retain(|(rank, _)| ![4, 9, 11].contains(rank));
        assert_truth(&traces, &layout);
    }
}

/// Expert-parallel groups across the data-parallel ones, with loads that differ from step to step.
#[test]
fn expert_parallel_groups() {
    let layout = expert_parallel(6);
    assert_truth(&all(&layout), &layout);
}

/// Sends and receives of an interleaved pipeline are matched, and waited for.
#[test]
fn an_interleaved_pipeline() {
    let layout = interleaved(4, 2, 8, 2, 7);
    let traces = all(&layout);
    assert!(truths(&traces)[1] > 400);
    assert_truth(&traces, &layout);
    let (_, timelines) = found(&traces, &layout, Naming::Sequence);
    let timelines: Vec<&Timeline> = timelines.iter().collect();
    let report = report(&timelines).expect("ranks");
    let job = &report.jobs[0];
    let kernels: usize = traces
        .iter()
        .map(|(_, trace)| trace.kernels.iter().filter(|kernel| kernel.is_transfer()).count())
        .sum();
    assert_eq!(job.collectives.point_to_point, kernels as u64);
    assert_eq!(job.collectives.point_to_point_matched, kernels as u64);
    for (rank, (_, trace)) in job.ranks.iter().zip(&traces) {
        let allowed_ns = trace.kernels.len() as u64 * 4 * US;
        assert!(trace.wait_ns > 10 * allowed_ns);
        assert!(rank.peer_wait_ns.abs_diff(trace.wait_ns) < allowed_ns, "{rank:?}");
    }
}

/// Profiles of a pipeline that start and end at different sends.
#[test]
fn a_pipeline_whose_profiles_differ() {
    let layout = interleaved(4, 2, 8, 1, 8);
    let mut traces = all(&layout);
    traces[1].1.kernels.drain(..37);
    traces[2].1.kernels.truncate(150);
    let [collectives, transfers] = truths(&traces);
    let (jobs, timelines) = found(&traces, &layout, Naming::Sequence);
    assert_eq!((jobs.jobs.len(), jobs.alone.len()), (1, 0));
    let found = compare(&jobs, &traces, &timelines);
    assert_eq!(found, [right(collectives), right(transfers)]);
}

proptest! {

    /// A job of two ranks, whose profiles start and end anywhere.
    #[test]
    fn no_collective_of_two_ranks_is_wrong(
        seed in any::<u64>(),
        steps in 2..24u64,
        mean_us in 20..300u64,
        more_us in prop_oneof![Just(0u64), 1..30u64, 30..600u64],
        noise_us in 0..5u64,
        one_stream in any::<bool>(),
        left_out in prop::array::uniform4(0..40usize),
    ) {
        let layout = Layout {
            noise_ns: noise_us * US,
            world_size: Some(2),
            one_stream,
            ..in_step(2, 2, steps, mean_us * US, more_us * US, seed)
        };
        let mut traces = all(&layout);
        for ((_, trace), [first, last]) in traces.iter_mut().zip([[0, 1], [2, 3]]) {
            let count = trace.kernels.len();
            trace.kernels.truncate((count - left_out[last].min(count / 3)).max(1));
            trace.kernels.drain(..left_out[first].min(count / 3));
        }
        let (jobs, timelines) = found(&traces, &layout, Naming::Nothing);
        let [found, _] = compare(&jobs, &traces, &timelines);
        prop_assert_eq!(found.wrong, 0, "{:?}", found);
    }

    /// Whatever the groups, their computing and the ranks that are missing: no collective with
    /// other members than it has.
    #[test]
    fn no_collective_without_names_is_wrong(
        seed in any::<u64>(),
        // NCCL launches no kernel for a communicator of one rank (src/enqueue.cc, ncclLaunchOneRank).
        sizes in prop::collection::vec(2..5usize, 2..6),
        steps in 2..24u64,
        mean_us in 20..300u64,
        more_us in prop_oneof![Just(0u64), 1..30u64, 30..600u64],
        own_us in prop_oneof![Just(0u64), 1..400u64],
        noise_us in 0..5u64,
        [one_stream, pauses] in prop::array::uniform2(any::<bool>()),
        missing in prop::collection::vec(any::<bool>(), 24),
    ) {
        let mut groups: Vec<Vec<u32>> = Vec::new();
        for size in sizes {
            let first = groups.iter().map(Vec::len).sum::<usize>() as u32;
            groups.push((first..first + size as u32).collect());
        }
        let ranks: Vec<u32> = groups.concat();
        let few = groups.len();
        groups.push(ranks.clone());
        let acts = ranks.iter().map(|rank| {
            let group_of_rank = groups[..few].iter().position(|group| group.contains(rank));
            let group_of_rank = group_of_rank.expect("a group");
            let rank = u64::from(*rank);
            // Some ranks are always slower.
            let own_ns = random(seed, [rank % 3, 9, 9], own_us * US + 1);
            let steps = (0..steps).flat_map(|step| {
                let buckets = 2 + random(seed, [step % 2, 8, 8], 3);
                let few = (0..=buckets).flat_map(move |bucket| {
                    let more_ns = random(seed, [rank, step, bucket], more_us * US + 1);
                    let length_ns = (mean_us + bucket * 13) * US + more_ns + own_ns;
                    let group = if bucket == buckets { few } else { group_of_rank };
                    [Act::Compute(length_ns), Act::Together(group)]
                });
                let is_late = pauses && random(seed, [rank, step, 7], 10) == 0;
                let late_ns = 5_000 * US + random(seed, [rank, step, 6], 35_000 * US);
                let late = is_late.then_some(Act::Compute(late_ns));
                few.chain(late).chain([Act::Step])
            });
            steps.collect()
        });
        let layout = Layout {
            acts: acts.collect(),
            groups: groups.clone(),
            noise_ns: noise_us * US,
            one_stream,
            seed,
            ..Layout::default()
        };
        let mut traces = all(&layout);
        traces.retain(|(rank, _)| !missing[*rank as usize] || *rank < 2);
        let (jobs, timelines) = found(&traces, &layout, Naming::Nothing);
        let [found, _] = compare(&jobs, &traces, &timelines);
        prop_assert_eq!(found.wrong, 0, "{:?}", found);
    }
}
