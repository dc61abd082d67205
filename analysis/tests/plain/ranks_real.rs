//! Two real ranks of one job, by the PyTorch profiler.

#![expect(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use crate::ranks_job;

use gctrace_analysis::gpu::collect::{TimelineCollector, TimelineContext};
use gctrace_analysis::gpu::ranks::{jobs, report};
use gctrace_analysis::gpu::replay::{InsertedPause, ReplayChange, ReplayModel};
use gctrace_analysis::gpu::timeline::{CallIndex, OpIndex, Timeline};
use gctrace_analysis::spans::PauseSpan;
use gctrace_analysis::spans::index::{Index, SmallNumber};
use gctrace_event::read::{DecodedItem, TraceReader};
use gctrace_event::{GcReason, Record};
use ranks_job::{MS, found};
use std::sync::{Arc, LazyLock};

/// The timeline of a real profile.
fn real(name: &str, rank: u32) -> Timeline {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto");
    let path = data.join(format!("{name}.json.gz"));
    let mut reader = TraceReader::open(&path).expect("a trace");
    let mut collector = TimelineCollector::default();
    while let Some(item) = reader.next_item().expect("an item") {
        match item {
            DecodedItem::Record(Record::GpuOp(op)) => collector.add_op(&op),
            DecodedItem::Record(Record::CudaCall(call)) => collector.add_call(&call),
            DecodedItem::Record(Record::Annotation(annotation)) => {
                collector.add_annotation(&annotation)
            }
            DecodedItem::Record(Record::GpuSync(sync)) => collector.add_sync(sync),
            _ => {}
        }
    }
    let mut timelines = collector.finish(&TimelineContext {
        trace: rank as usize,
        rank: Some(rank),
        ..TimelineContext::default()
    });
    timelines.retain(Timeline::has_gpu_times);
    assert_eq!(timelines.len(), 1, "{name}");
    timelines.remove(0)
}

/// Read once for all tests.
static REAL: LazyLock<[Timeline; 2]> =
    LazyLock::new(|| [real("sampled_rank0", 0), real("sampled_rank1", 1)]);

/// The same as PyTorch 2.12 would have written it: kernels of one operation on one stream that end
/// within 0.4 ms of each other have equal sequence numbers.
static NAMED: LazyLock<[Timeline; 2]> = LazyLock::new(|| {
    let mut named = REAL.clone();
    let mut ends: Vec<(u64, u64)> = Vec::new();
    for (rank, timeline) in named.iter_mut().enumerate() {
        let group = Arc::make_mut(&mut timeline.names).intern("0");
        let nccl: Vec<OpIndex> = Index::enumerate(&timeline.ops)
            .filter(|(_, op)| timeline.op_name(op).starts_with("nccl"))
            .map(|(at, _)| at)
            .collect();
        for at in nccl {
            let stream = timeline.streams[timeline.ops[at].stream].number;
            let op = &mut timeline.ops[at];
            let equal = |(of, end_ns): &(u64, u64)| {
                rank > 0 && *of == stream && end_ns.abs_diff(op.end_ns) < 400_000
            };
            let sequence = ends.iter().position(equal).unwrap_or_else(|| {
                ends.push((stream, op.end_ns));
                ends.len() - 1
            });
            (op.group, op.sequence) = (Some(group), SmallNumber::new(sequence as u64));
        }
    }
    named
});

/// Two ranks of one job, thinned out: of ten collectives on each, five are in both (by hand: ends
/// of the same operation on the same stream within 0.4 ms).
#[test]
fn real_ranks() {
    let unnamed = found(&*REAL);
    let job = &unnamed.jobs[0];
    // Five ends do not show that no other group of the job's 128 ranks ran in step.
    assert_eq!((job.collectives.len(), job.ambiguous), (0, 20));
    assert_eq!(job.members[1].aligned_by, 5);
    let jobs = found(&*NAMED);
    let job = &jobs.jobs[0];
    assert_eq!((job.collectives.len(), job.unmatched), (5, 10));
    // Their clocks were synchronized well.
    assert!(job.members[1].offset_ns.abs() < 400_000, "{:?}", job.members);
    assert_eq!(job.members[1].aligned_by, 5);
    // Starts of the later rank minus the earlier's, in microseconds, computed by hand.
    let by_hand_us = [4_859, 3_302, 84, 22_328, 1_292];
    let timelines: Vec<&Timeline> = NAMED.iter().collect();
    let report = report(&timelines).expect("ranks");
    let [first, second] = report.jobs[0].ranks.as_slice() else {
        panic!("two ranks");
    };
    let by_hand_ns = by_hand_us.iter().sum::<u64>() * 1_000;
    assert_eq!((first.peer_wait_ns, second.peer_wait_ns), (by_hand_ns, 0));
    assert_eq!((first.last, second.last), (0, 5));
    for other in ["nccl_rank0", "ns_resolution_rank0"] {
        let timelines = [REAL[0].clone(), real(other, 1)];
        assert_eq!(found(&timelines).jobs.len(), 0, "{other} is of another job");
    }
}

/// A pause of 200 ms put into one of two real ranks before a collective: the other one is a victim.
#[test]
fn a_pause_of_one_real_rank_makes_the_other_wait() {
    let timelines = NAMED.clone();
    for source in 0..2 {
        let changed = with_pause(&timelines, source, 200 * MS);
        let changed: Vec<&Timeline> = changed.iter().collect();
        let report = report(&changed).expect("ranks");
        let job = &report.jobs[0];
        assert_eq!(job.collectives.matched, 5);
        let found = &job.pauses.as_ref().expect("pauses").sources[0];
        let end_ns = |timeline: &Timeline| timeline.gpu_span().expect("work").1.cast_signed();
        for (at, timeline) in timelines.iter().enumerate() {
            let later_ns = end_ns(changed[at]) - end_ns(timeline);
            assert!(later_ns > 20 * i64::try_from(MS).expect("a time"), "{later_ns}");
            assert!(found.earlier_ns[at].abs_diff(later_ns) < later_ns.unsigned_abs() / 20 + MS);
        }
        assert!(found.amplification_ratio.is_some_and(|ratio| ratio > 1.2), "{found:?}");
    }
}

/// The timelines as they would be if the thread that launched the second common collective of one
/// had paused before.
fn with_pause(timelines: &[Timeline], source: usize, length_ns: u64) -> Vec<Timeline> {
    let timelines: Vec<&Timeline> = timelines.iter().collect();
    let found = jobs(&timelines);
    let job = found.jobs[0].job(&timelines);
    let op = job.collectives[1].members[source].op;
    let launch = *timelines[source].call(&timelines[source].ops[op]).expect("a launch");
    let inserted = InsertedPause {
        timeline: u32::try_from(source).expect("an index"),
        thread: launch.thread,
        at_ns: launch.start_ns - 1,
        length_ns,
    };
    let schedule = ReplayModel::learn(&job)
        .replay(&ReplayChange { inserted: vec![inserted], ..ReplayChange::default() });
    let mut changed: Vec<Timeline> = Vec::new();
    for (at, timeline) in timelines.iter().enumerate() {
        let on_rank_clock = |(start, end): (u64, u64)| {
            let back = job.offsets_ns[at].checked_neg().expect("an offset");
            let moved_back = |at_ns: u64| at_ns.checked_add_signed(back).expect("a time");
            (moved_back(start), moved_back(end))
        };
        let mut moved = Timeline::clone(timeline);
        let mut order: Vec<CallIndex> = Index::all(&moved.calls).collect();
        order.sort_by_key(|call| schedule.call(at, *call));
        let mut place = order.clone();
        for (new, old) in Index::all(&timeline.calls).zip(&order) {
            place[old.at()] = new;
            let mut call = timeline.calls[*old];
            (call.start_ns, call.end_ns) = on_rank_clock(schedule.call(at, *old));
            moved.calls[new] = call;
        }
        for (index, op) in Index::all(&timeline.ops).zip(&mut moved.ops) {
            (op.start_ns, op.end_ns) = on_rank_clock(schedule.op(at, index));
            op.call = op.call.map(|call| place[call.at()]);
        }
        moved.ops.sort_by_key(|op| (op.start_ns, op.end_ns));
        for span in &mut moved.annotations {
            let timestamp = |at_ns| schedule.timestamp(at, span.thread, at_ns);
            (span.start_ns, span.end_ns) =
                on_rank_clock((timestamp(span.start_ns), timestamp(span.end_ns)));
        }
        moved.annotations.sort_by_key(|span| span.start_ns);
        if at == source {
            moved.pauses.push(PauseSpan {
                start_ns: inserted.at_ns,
                end_ns: inserted.at_ns + length_ns,
                thread: launch.thread,
                cpu_ns: None,
                collected: None,
                objects: None,
                freed_kib: None,
                generation: 2,
                reason: GcReason::Automatic,
                stack: None,
            });
        }
        changed.push(moved);
    }
    changed
}
