//! Waits of operations for other streams: events in the trace, and events inferred from the measured times.
//!
//! Many traces show that a stream was made to wait, but not its reason. Then an operation that starts later than its
//! call and its stream explain, right after an operation of another stream, waits for that one. A call that makes a
//! stream wait refers to the other stream with the latest work, if no measured time contradicts it.

use super::layout::ReplayLayout;
use super::network::NetworkBuilder;
use super::streams::{StreamQueue, TypicalLatency};
use crate::gpu::calls::CallEffect;
use crate::gpu::timeline::{CallIndex, EventWait, Op, OpIndex, StreamIndex, Timeline};
use crate::spans::index::Index;
use crate::time::duration_ns;
use std::collections::HashMap;

/// An operation, and one of another stream that waits for it.
type WaitingPair = (OpIndex, OpIndex);

/// From the end of an operation to the start of one in another stream that waits for it, if the trace does not show
/// it: about the time that a stream needs between two of its own operations.
const HAND_OVER_NS: i64 = 1_500;
/// An operation is late from this long after it could have started ...
const LATE_NS: u64 = 10_000;
/// ... and waited for another operation that ended at most this long before it started.
const SHORTLY_NS: u64 = 10_000;
/// Stamps of one GPU disagree by no more.
const CLOCK_NS: u64 = 1_000;

/// Links operations across streams.
pub(super) fn learn(
    timeline: &Timeline,
    layout: &ReplayLayout<'_>,
    queues: &[StreamQueue],
    typical: &TypicalLatency,
    builder: &mut NetworkBuilder,
) {
    for (source, waiting) in from_trace(timeline, queues)
        .into_iter()
        .chain(recorded(timeline, layout, queues))
        .chain(late(timeline, queues, typical))
    {
        let ((_, end), (start, _)) = (layout.op(source), layout.op(waiting));
        builder.edge(end, start, HAND_OVER_NS);
    }
}

/// Whether one operation can have waited for another.
fn possible(timeline: &Timeline, (source, waiting): WaitingPair) -> bool {
    let (source, waiting) = (&timeline.ops[source], &timeline.ops[waiting]);
    source.stream != waiting.stream && duration_ns(waiting.start_ns, source.end_ns) <= CLOCK_NS
}

/// The operation with its completion marked by an event.
pub(super) fn event_op(
    wait: &EventWait,
    timeline: &Timeline,
    queues: &[StreamQueue],
) -> Option<OpIndex> {
    let recorded = &timeline.calls[wait.event_call?];
    queues[wait.event_stream?.at()].last_before(recorded.start_ns)
}

/// Waits recorded in the trace.
fn from_trace(timeline: &Timeline, queues: &[StreamQueue]) -> Vec<WaitingPair> {
    let pair = |wait: &EventWait| {
        let call = &timeline.calls[wait.call];
        let waiting = queues[wait.stream?.at()].first_from(call.start_ns)?;
        let pair = (event_op(wait, timeline, queues)?, waiting);
        if possible(timeline, pair) { Some(pair) } else { None }
    };
    timeline.waits.iter().filter_map(pair).collect()
}

/// Waits between streams by calls that do not state the operation they wait for: the last one
/// enqueued in the other stream, if that is possible for every such call between the two.
fn recorded(
    timeline: &Timeline,
    layout: &ReplayLayout<'_>,
    queues: &[StreamQueue],
) -> Vec<WaitingPair> {
    let mut by_streams: HashMap<(StreamIndex, StreamIndex), Vec<WaitingPair>> = HashMap::new();
    for (source, waiting) in guesses(timeline, layout, queues) {
        let (from, to) = (&timeline.ops[source], &timeline.ops[waiting]);
        let pairs = by_streams.entry((from.stream, to.stream)).or_default();
        pairs.push((source, waiting));
    }
    let pairs = by_streams.into_values();
    let hold = pairs.filter(|pairs| pairs.iter().all(|pair| possible(timeline, *pair)));
    let mut pairs: Vec<WaitingPair> = hold.flatten().collect();
    pairs.sort_unstable();
    pairs
}

fn guesses(
    timeline: &Timeline,
    layout: &ReplayLayout<'_>,
    queues: &[StreamQueue],
) -> Vec<WaitingPair> {
    let mut first_op: Vec<Option<OpIndex>> = vec![None; timeline.calls.len()];
    for (index, op) in Index::enumerate(&timeline.ops).rev() {
        if let Some(call) = op.call {
            first_op[call.at()] = Some(index);
        }
    }
    let from_trace = |call: CallIndex| {
        let waits = &timeline.waits;
        waits.binary_search_by_key(&call, |wait| wait.call).is_ok()
    };
    let mut guesses = Vec::new();
    for chain in &layout.chains {
        let mut next_op = None;
        for index in chain.calls.iter().rev() {
            let call = &timeline.calls[*index];
            next_op = first_op[index.at()].or(next_op);
            if call.kind == CallEffect::StreamWaitEvent
                && !from_trace(*index)
                && let Some(waiting) = next_op
                && let Some(source) = latest_elsewhere(call.start_ns, waiting, timeline, queues)
            {
                guesses.push((source, waiting));
            }
        }
    }
    guesses
}

/// The last operation enqueued before a time in any other stream of the device.
fn latest_elsewhere(
    before_ns: u64,
    waiting: OpIndex,
    timeline: &Timeline,
    queues: &[StreamQueue],
) -> Option<OpIndex> {
    let waiting = &timeline.ops[waiting];
    let device = timeline.device(waiting);
    let streams = Index::enumerate(&timeline.streams).zip(queues);
    let others =
        streams.filter(|((index, other), _)| *index != waiting.stream && other.device == device);
    let last = others.filter_map(|(_, queue)| queue.last_before(before_ns));
    last.max_by_key(|other| timeline.call(&timeline.ops[*other]).map(|call| call.start_ns))
}

/// Waits that show only in the times.
fn late(timeline: &Timeline, queues: &[StreamQueue], typical: &TypicalLatency) -> Vec<WaitingPair> {
    let ops = Index::enumerate(&timeline.ops);
    let mut by_end: Vec<(u64, OpIndex)> = ops.map(|(index, op)| (op.end_ns, index)).collect();
    by_end.sort_unstable();
    let mut waits = Vec::new();
    for queue in queues {
        let mut stream_free_ns = 0;
        for index in &queue.ops {
            let waiting = &timeline.ops[*index];
            let ready_ns = typical.ready_ns(waiting, stream_free_ns, timeline);
            stream_free_ns = stream_free_ns.max(waiting.end_ns);
            if duration_ns(ready_ns, waiting.start_ns) >= LATE_NS {
                let source = just_before(waiting, &by_end, timeline);
                waits.extend(source.map(|source| (source, *index)));
            }
        }
    }
    waits
}

/// The operation of another stream of the device that ended last, shortly before one started.
fn just_before(waiting: &Op, by_end: &[(u64, OpIndex)], timeline: &Timeline) -> Option<OpIndex> {
    /// Largest number of operations of the own stream or of other devices that are skipped.
    const MAX_CANDIDATES: usize = 64;
    let device = timeline.device(waiting);
    let behind = by_end.partition_point(|(end, _)| *end <= waiting.start_ns);
    let earlier = by_end[..behind].iter().rev().take(MAX_CANDIDATES);
    let shortly = earlier.take_while(|(end, _)| waiting.start_ns - end <= SHORTLY_NS);
    let elsewhere = |candidate: &OpIndex| {
        let op = &timeline.ops[*candidate];
        op.stream != waiting.stream && timeline.device(op) == device
    };
    shortly.map(|(_, index)| *index).find(elsewhere)
}
