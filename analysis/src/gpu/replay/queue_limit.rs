//! Launches that wait because the queue of their stream is full.
//!
//! The driver accepts a limited number of operations for each stream; the call that enqueues one
//! more returns once an earlier one is done.

use super::layout::CallChain;
use super::layout::ReplayLayout;
use super::network::NONE;
use super::network::NetworkBuilder;
use super::streams::StreamQueue;
use crate::gpu::calls::CallEffect;
use crate::gpu::timeline::Call;
use crate::gpu::timeline::Timeline;
use crate::time::stats;

/// Operations that a stream accepts, if the trace does not show another number: CUDA's driver
/// blocks launches beyond about 1,024 that wait.
const DEPTH: usize = 1_024;
/// A launch waited if it took this many times the median, and at least this many ns.
const LONG_FACTOR: u64 = 10;
const LONG_NS: u64 = 50_000;
/// This many launches that waited at about the same depth show the limit.
const EVIDENCE: usize = 3;

/// A launch that may have had to wait: the time from which its thread goes on.
struct QueuedLaunch {
    /// Place of its operation in the stream.
    place: usize,
    /// Node and time at which the thread went on.
    returned: u32,
    returned_ns: u64,
    /// Operations in the stream at that time, its own included.
    depth: usize,
    long: bool,
}

/// Links launches to the operations that had to be done first.
pub(super) fn learn(
    timeline: &Timeline,
    layout: &ReplayLayout,
    queues: &[StreamQueue],
    builder: &mut NetworkBuilder,
) {
    let places = CallPositions::of(layout, timeline);
    let long_ns = long_ns(timeline);
    for queue in queues {
        let launches = launches(queue, timeline, layout, &places, long_ns);
        let depth = limit(&launches);
        for launch in &launches {
            let done = launch.place.checked_sub(depth);
            let Some(done) = done.and_then(|done| queue.ops.get(done)) else {
                continue;
            };
            if let (Some((_, end)), Some((_, end_ns))) = (layout.op(*done), layout.op_span(*done))
                && end_ns <= launch.returned_ns
            {
                builder.edge(end, launch.returned, 0);
            }
        }
    }
}

/// The place of every call on its thread.
struct CallPositions {
    place: Vec<u32>,
}

impl CallPositions {
    fn of(layout: &ReplayLayout, timeline: &Timeline) -> Self {
        let mut place = vec![NONE; timeline.calls.len()];
        for chain in &layout.chains {
            for (at, call) in (0u32..).zip(&chain.calls) {
                if let Some(slot) = place.get_mut(*call as usize) {
                    *slot = at;
                }
            }
        }
        Self { place }
    }

    /// The call after one on its thread.
    fn next(&self, chain: &CallChain, call: u32) -> Option<u32> {
        let place = self.place.get(call as usize)?;
        chain.calls.get(*place as usize + 1).copied()
    }
}

fn long_ns(timeline: &Timeline) -> u64 {
    let launches = timeline
        .calls
        .iter()
        .filter(|call| call.kind == CallEffect::Launch && call.timed);
    let mut lengths: Vec<u64> = launches.map(Call::duration_ns).collect();
    let long_ns = stats::median_high(&mut lengths).map(|median| median.saturating_mul(LONG_FACTOR));
    long_ns.map_or(LONG_NS, |long_ns| long_ns.max(LONG_NS))
}

fn launches(
    queue: &StreamQueue,
    timeline: &Timeline,
    layout: &ReplayLayout,
    places: &CallPositions,
    long_ns: u64,
) -> Vec<QueuedLaunch> {
    let mut done = 0;
    let mut launches = Vec::new();
    for (place, op) in queue.ops.iter().enumerate() {
        let Some(index) = timeline.ops.get(*op as usize).map(|op| op.call) else {
            continue;
        };
        let Some(call) = timeline.calls.get(index as usize) else {
            continue;
        };
        let Some((returned, returned_ns)) = returned(index, call, layout, places) else {
            continue;
        };
        let ended = |op: &u32| {
            let span = layout.op_span(*op);
            span.is_some_and(|(_, end)| end <= returned_ns)
        };
        while done < place && queue.ops.get(done).is_some_and(ended) {
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
    index: u32,
    call: &Call,
    layout: &ReplayLayout,
    places: &CallPositions,
) -> Option<(u32, u64)> {
    if call.timed {
        return Some((layout.call(index)?.1, layout.call_span(index)?.1));
    }
    let chain = layout.chains.get(call.thread as usize)?;
    let next = places.next(chain, index)?;
    Some((layout.call(next)?.0, layout.call_span(next)?.0))
}

/// Operations that the stream accepts: the greatest depth, if launches waited at it repeatedly;
/// otherwise [`DEPTH`], or more if more were seen.
fn limit(launches: &[QueuedLaunch]) -> usize {
    let deepest = launches.iter().map(|launch| launch.depth).max();
    let deepest = deepest.unwrap_or(0);
    let waited = launches
        .iter()
        .filter(|launch| launch.long && launch.depth + deepest / 50 >= deepest);
    match waited.count() >= EVIDENCE && deepest > DEPTH / 16 {
        true => deepest,
        false => deepest.max(DEPTH),
    }
}
