//! What operations wait for in other streams: events in the trace, and events inferred from the
//! measured times.
//!
//! Many traces show that a stream was made to wait, but not for what. Then an operation that starts
//! later than its call and its stream explain, right after an operation of another stream, waits
//! for that one; and a call that makes a stream wait refers to the other stream that was given work
//! last, if no measured time contradicts it.

use super::layout::ReplayLayout;
use super::network::NONE;
use super::network::NetworkBuilder;
use super::streams::StreamQueue;
use super::streams::TypicalLatency;
use crate::gpu::calls::CallEffect;
use crate::gpu::timeline::EventWait;
use crate::gpu::timeline::Op;
use crate::gpu::timeline::Timeline;
use std::collections::HashMap;

/// From the end of an operation to the start of one in another stream that waits for it, if the
/// trace does not show it: about what a stream needs between two of its own operations.
const HAND_OVER_NS: i64 = 1_500;
/// An operation is late from this long after it could have started ...
const LATE_NS: u64 = 10_000;
/// ... and waited for another one that ended at most this long before it started.
const SHORTLY_NS: u64 = 10_000;
/// Stamps of one GPU disagree by no more.
const CLOCK_NS: u64 = 1_000;

/// Links operations across streams.
pub(super) fn learn(
    timeline: &Timeline,
    layout: &ReplayLayout,
    queues: &[StreamQueue],
    typical: &TypicalLatency,
    builder: &mut NetworkBuilder,
) {
    for (source, waiting) in from_trace(timeline, queues)
        .into_iter()
        .chain(recorded(timeline, layout, queues))
        .chain(late(timeline, queues, typical))
    {
        if let (Some((_, end)), Some((start, _))) = (layout.op(source), layout.op(waiting)) {
            builder.edge(end, start, HAND_OVER_NS);
        }
    }
}

fn op(timeline: &Timeline, op: u32) -> Option<&Op> {
    timeline.ops.get(op as usize)
}

/// Whether one operation can have waited for another.
fn possible(timeline: &Timeline, source: u32, waiting: u32) -> bool {
    match (op(timeline, source), op(timeline, waiting)) {
        (Some(source), Some(waiting)) => {
            source.stream != waiting.stream
                && source.end_ns <= waiting.start_ns.saturating_add(CLOCK_NS)
        }
        _ => false,
    }
}

/// The operation whose completion an event marks.
pub(super) fn event_op(
    wait: &EventWait,
    timeline: &Timeline,
    queues: &[StreamQueue],
) -> Option<u32> {
    let recorded = timeline.calls.get(wait.event_call as usize)?;
    let queue = queues.get(wait.event_stream as usize)?;
    queue.last_before(recorded.start_ns)
}

/// Waits recorded in the trace.
fn from_trace(timeline: &Timeline, queues: &[StreamQueue]) -> Vec<(u32, u32)> {
    let pair = |wait: &EventWait| {
        let call = timeline.calls.get(wait.call as usize)?;
        let waiting = queues
            .get(wait.stream as usize)?
            .first_from(call.start_ns)?;
        let source = event_op(wait, timeline, queues)?;
        possible(timeline, source, waiting).then_some((source, waiting))
    };
    timeline.waits.iter().filter_map(pair).collect()
}

/// Waits between streams by calls that do not state the operation they wait for: the last one
/// enqueued in the other stream, if that is possible for every such call between the two.
fn recorded(timeline: &Timeline, layout: &ReplayLayout, queues: &[StreamQueue]) -> Vec<(u32, u32)> {
    let mut by_streams: HashMap<(u32, u32), Vec<(u32, u32)>> = HashMap::new();
    for (source, waiting) in guesses(timeline, layout, queues) {
        if let (Some(from), Some(to)) = (op(timeline, source), op(timeline, waiting)) {
            let pairs = by_streams.entry((from.stream, to.stream)).or_default();
            pairs.push((source, waiting));
        }
    }
    let all_hold = |pairs: &Vec<(u32, u32)>| {
        pairs
            .iter()
            .all(|(source, waiting)| possible(timeline, *source, *waiting))
    };
    let mut pairs: Vec<(u32, u32)> = by_streams
        .into_values()
        .filter(all_hold)
        .flatten()
        .collect();
    pairs.sort_unstable();
    pairs
}

fn guesses(timeline: &Timeline, layout: &ReplayLayout, queues: &[StreamQueue]) -> Vec<(u32, u32)> {
    let mut first_op = vec![NONE; timeline.calls.len()];
    for (index, op) in (0u32..).zip(&timeline.ops) {
        if let Some(slot) = first_op.get_mut(op.call as usize) {
            *slot = index.min(*slot);
        }
    }
    let from_trace = |call: u32| {
        timeline
            .waits
            .binary_search_by_key(&call, |wait| wait.call)
            .is_ok()
    };
    let mut guesses = Vec::new();
    for chain in &layout.chains {
        let mut next_op = NONE;
        for call in chain.calls.iter().rev() {
            let (Some(content), Some(own)) = (
                timeline.calls.get(*call as usize),
                first_op.get(*call as usize),
            ) else {
                continue;
            };
            if *own != NONE {
                next_op = *own;
            }
            if content.kind == CallEffect::StreamWaitEvent
                && !from_trace(*call)
                && let Some(source) = latest_elsewhere(content.start_ns, next_op, timeline, queues)
            {
                guesses.push((source, next_op));
            }
        }
    }
    guesses
}

/// The last operation enqueued before a time in any other stream of the device.
fn latest_elsewhere(
    before_ns: u64,
    waiting: u32,
    timeline: &Timeline,
    queues: &[StreamQueue],
) -> Option<u32> {
    let waiting = op(timeline, waiting)?;
    let device = timeline.device(waiting)?;
    let others = (0u32..).zip(queues).filter(|(stream, _)| {
        let other = timeline.streams.get(*stream as usize);
        *stream != waiting.stream && other.is_some_and(|other| other.device == device)
    });
    let last = others.filter_map(|(_, queue)| queue.last_before(before_ns));
    last.max_by_key(|other| {
        let asked = op(timeline, *other).and_then(|op| timeline.calls.get(op.call as usize));
        asked.map_or(0, |call| call.start_ns)
    })
}

/// Waits that show only in the times.
fn late(timeline: &Timeline, queues: &[StreamQueue], typical: &TypicalLatency) -> Vec<(u32, u32)> {
    let mut by_end: Vec<(u64, u32)> = (0u32..)
        .zip(&timeline.ops)
        .map(|(index, op)| (op.end_ns, index))
        .collect();
    by_end.sort_unstable();
    let mut waits = Vec::new();
    for queue in queues {
        let mut stream_free_ns = 0;
        for index in &queue.ops {
            let Some(waiting) = op(timeline, *index) else {
                continue;
            };
            let ready_ns = typical.ready_ns(waiting, stream_free_ns, timeline);
            stream_free_ns = stream_free_ns.max(waiting.end_ns);
            if waiting.start_ns < ready_ns.saturating_add(LATE_NS) {
                continue;
            }
            let source = just_before(waiting, &by_end, timeline);
            waits.extend(source.map(|source| (source, *index)));
        }
    }
    waits
}

/// The operation of another stream of the device that ended last, shortly before one started.
fn just_before(waiting: &Op, by_end: &[(u64, u32)], timeline: &Timeline) -> Option<u32> {
    /// Largest number of operations of the own stream or of other devices that are skipped.
    const MAX_CANDIDATES: usize = 64;
    let device = timeline.device(waiting)?;
    let behind = by_end.partition_point(|(end, _)| *end <= waiting.start_ns);
    let earlier = by_end.get(..behind)?.iter().rev().take(MAX_CANDIDATES);
    let shortly = earlier.take_while(|(end, _)| waiting.start_ns - end <= SHORTLY_NS);
    let elsewhere = |candidate: &u32| {
        op(timeline, *candidate)
            .is_some_and(|op| op.stream != waiting.stream && timeline.device(op) == Some(device))
    };
    shortly.map(|(_, index)| *index).find(elsewhere)
}
