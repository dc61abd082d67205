//! The replay on real traces: pauses put in and taken out again. `examples/replay_errors.rs` prints
//! the whole table.

use crate::inserted;

use gctrace_analysis::gpu::timeline::{ThreadIndex, Timeline};
use inserted::{InsertionMethod, Outcome, Pause};
use std::path::Path;

const MS: u64 = 1_000_000;

fn trace(name: &str) -> Timeline {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto");
    let mut timelines = inserted::read(&path.join(name)).unwrap_or_default();
    assert_eq!(timelines.len(), 1, "{name}");
    timelines.remove(0)
}

/// Outcomes at three positions on every thread.
fn outcomes(timeline: &Timeline, length_ns: u64, way: InsertionMethod) -> Vec<Outcome> {
    let (first, last) = timeline.gpu_span().unwrap_or_default();
    let mut threads: Vec<ThreadIndex> = timeline.calls.iter().map(|call| call.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    let pauses = threads.into_iter().flat_map(|thread| {
        (1..4).map(move |position| Pause {
            thread,
            at_ns: first + (last - first) / 5 * position + thread.at() as u64,
            length_ns,
        })
    });
    let outcomes = pauses.filter_map(|pause| inserted::one(timeline, pause, way));
    outcomes.collect()
}

/// Mean absolute errors of the replay and of the overlap rule.
fn errors(outcomes: &[Outcome]) -> (i64, i64) {
    let mean = |error: fn(&Outcome) -> i64| {
        let sum: i64 = outcomes.iter().map(|outcome| error(outcome).abs()).sum();
        sum / i64::try_from(outcomes.len()).unwrap_or(1)
    };
    (
        mean(|outcome| outcome.replayed_ns - outcome.cost_ns),
        mean(|outcome| outcome.overlap_ns - outcome.cost_ns),
    )
}

fn check(name: &str, length_ns: u64, bound_ns: i64) {
    let timeline = trace(name);
    for way in [InsertionMethod::Replay, InsertionMethod::OneHost] {
        let outcomes = outcomes(&timeline, length_ns, way);
        assert!(outcomes.len() >= 4, "{name}: {outcomes:?}");
        let (replay, overlap) = errors(&outcomes);
        assert!(replay <= bound_ns, "{name} {way:?}: {replay} {outcomes:?}");
        assert!(replay < overlap, "{name} {way:?}: {replay} {overlap}");
    }
}

#[test]
fn threads_with_collectives() {
    check("nccl_rank0.json.gz", 20 * MS, 100_000);
    check("nccl_rank0.json.gz", 100 * MS, 200_000);
}

#[test]
fn a_host_far_ahead() {
    check("ns_resolution_rank0.json.gz", 20 * MS, 50_000);
    check("ns_resolution_rank0.json.gz", 100 * MS, 5_000_000);
}

#[test]
fn streams_without_events() {
    for name in ["sampled_rank0.json.gz", "sampled_rank1.json.gz"] {
        // A thread may be quiet for longer than the pause: then it is undecided whether it was
        // blocked.
        check(name, 20 * MS, 4_000_000);
        check(name, 100 * MS, 1_000_000);
    }
}
