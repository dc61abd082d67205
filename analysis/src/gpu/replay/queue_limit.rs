//! Launches that wait because the queue of their stream is full.
//!
//! The driver accepts a limited number of operations for each stream; the call that enqueues one
//! more returns once an earlier one is done.

use super::layout::ReplayLayout;
use super::network::{NetworkBuilder, NetworkNodeId};
use super::streams::StreamQueue;
use crate::gpu::calls::CallEffect;
use crate::gpu::timeline::{Call, CallIndex, OpIndex, Timeline};
use crate::time::times;

/// Operations that a stream accepts, if the trace does not show another number: CUDA's driver
/// blocks launches beyond about 1,024 that wait.
const DEPTH: usize = 1_024;
/// A launch waited if it took this many times the median, and at least this many ns.
const LONG_FACTOR: u64 = 10;
const LONG_NS: u64 = 50_000;
/// This many launches that waited at about the same depth show the limit.
const EVIDENCE: usize = 3;

/// A launch that may have had to wait: its thread goes on after the wait.
struct QueuedLaunch {
    /// Place of its operation in the stream.
    place: usize,
    /// Node and time of the thread continuing.
    returned: NetworkNodeId,
    returned_ns: u64,
    /// Operations in the stream at that time, its own included.
    depth: usize,
    long: bool,
}

/// Links launches to the operations that had to be done first.
pub(super) fn learn(
    timeline: &Timeline,
    layout: &ReplayLayout<'_>,
    queues: &[StreamQueue],
    builder: &mut NetworkBuilder,
) {
    let next = next_calls(timeline, layout);
    let long_ns = long_ns(timeline);
    for queue in queues {
        let launches = launches(queue, timeline, layout, &next, long_ns);
        let depth = limit(&launches);
        for launch in &launches {
            let Some(done) = launch.place.checked_sub(depth) else { continue };
            let done = queue.ops[done];
            if layout.op_span(done).1 <= launch.returned_ns {
                builder.edge(layout.op(done).1, launch.returned, 0);
            }
        }
    }
}

/// Per call: the one after it on its thread.
fn next_calls(timeline: &Timeline, layout: &ReplayLayout<'_>) -> Vec<Option<CallIndex>> {
    let mut next = vec![None; timeline.calls.len()];
    for pair in layout.chains.iter().flat_map(|chain| chain.calls.windows(2)) {
        next[pair[0].at()] = Some(pair[1]);
    }
    next
}

fn long_ns(timeline: &Timeline) -> u64 {
    let launches =
        timeline.calls.iter().filter(|call| call.kind == CallEffect::Launch && call.timed);
    let mut lengths: Vec<u64> = launches.map(Call::duration_ns).collect();
    let median = gctrace_stats::median_high(&mut lengths);
    if let Some(median_ns) = median { times(median_ns, LONG_FACTOR).max(LONG_NS) } else { LONG_NS }
}

fn launches(
    queue: &StreamQueue,
    timeline: &Timeline,
    layout: &ReplayLayout<'_>,
    next: &[Option<CallIndex>],
    long_ns: u64,
) -> Vec<QueuedLaunch> {
    let mut done = 0;
    let mut launches = Vec::new();
    for (place, op) in queue.ops.iter().enumerate() {
        let Some(index) = timeline.ops[*op].call else { continue };
        let call = &timeline.calls[index];
        let Some((returned, returned_ns)) = returned(index, call, layout, next) else { continue };
        let ended = |op: OpIndex| layout.op_span(op).1 <= returned_ns;
        while done < place && ended(queue.ops[done]) {
            done += 1;
        }
        launches.push(QueuedLaunch {
            place,
            returned,
            returned_ns,
            depth: place + 1 - done,
            long: call.timed && call.duration_ns() >= long_ns,
        });
    }
    launches
}

/// When a thread went on after a call: at its end, or where that is unknown, at the next call.
fn returned(
    index: CallIndex,
    call: &Call,
    layout: &ReplayLayout<'_>,
    next: &[Option<CallIndex>],
) -> Option<(NetworkNodeId, u64)> {
    if call.timed {
        return Some((layout.call(index).1, layout.call_span(index).1));
    }
    let next = next[index.at()]?;
    Some((layout.call(next).0, layout.call_span(next).0))
}

/// Operations that the stream accepts: the greatest depth, if launches waited at it repeatedly;
/// otherwise [`DEPTH`], or more if more were seen.
fn limit(launches: &[QueuedLaunch]) -> usize {
    let depths = launches.iter().map(|launch| launch.depth);
    let deepest = depths.fold(0, usize::max);
    let waited =
        launches.iter().filter(|launch| launch.long && launch.depth + deepest / 50 >= deepest);
    if waited.count() >= EVIDENCE && deepest > DEPTH / 16 { deepest } else { deepest.max(DEPTH) }
}
