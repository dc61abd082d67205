//! Waits of operations: for their call, the previous operation of their stream, and operations of other streams.

use super::layout::{ByKind, ReplayLayout};
use super::network::NetworkBuilder;
use crate::gpu::timeline::{Call, CallIndex, Op, OpIndex, Timeline};
use crate::spans::index::Index;
use crate::time::{after, duration_ns, later, signed};
use gctrace_event::HostCodeKind;
use std::collections::HashMap;

/// The operations of a stream in order.
#[derive(Debug, Default, Clone)]
pub(super) struct StreamQueue {
    /// Indices of operations by start.
    pub(super) ops: Vec<OpIndex>,
    /// The latest possible time that each was enqueued, on the clock of the timeline: never earlier than the previous
    /// one. Without a known call, equal to the previous one.
    pub(super) asked_ns: Vec<u64>,
}

impl StreamQueue {
    /// The last operation that was enqueued before a time.
    pub(super) fn last_before(&self, at_ns: u64) -> Option<OpIndex> {
        let behind = self.asked_ns.partition_point(|asked| *asked < at_ns);
        Some(self.ops[behind.checked_sub(1)?])
    }

    /// The first operation that was enqueued after a time.
    pub(super) fn first_from(&self, at_ns: u64) -> Option<OpIndex> {
        let behind = self.asked_ns.partition_point(|asked| *asked <= at_ns);
        self.ops.get(behind).copied()
    }
}

/// Links the operations of each stream; returns the streams, and the typical time of their launches and gaps.
pub(super) fn learn(
    timeline: &Timeline,
    layout: &ReplayLayout<'_>,
    builder: &mut NetworkBuilder,
) -> (Vec<StreamQueue>, TypicalLatency) {
    let queues = queues(timeline);
    let mut typical = TypicalLatency::learn(timeline, &queues);
    let mut held_up = held_up(timeline);
    typical.loading = loading(timeline, &typical, &held_up);
    for (call, loading_ns) in &typical.loading {
        let by_ns = held_up.entry(*call).or_default();
        *by_ns = later(*by_ns, *loading_ns);
    }
    for queue in &queues {
        link(queue, timeline, layout, &typical, &held_up, builder);
    }
    (queues, typical)
}

/// Links the start of each operation with its end.
pub(super) fn link_ends(layout: &ReplayLayout<'_>, builder: &mut NetworkBuilder) {
    for op in layout.all_ops() {
        let (start, end) = layout.op(op);
        if layout.meets[op.at()] {
            builder.edge(start, end, 0)
        } else {
            builder.fixed(start, end)
        };
    }
}

/// One per stream of the timeline.
fn queues(timeline: &Timeline) -> Vec<StreamQueue> {
    let mut queues = vec![StreamQueue::default(); timeline.streams.len()];
    for (index, op) in Index::enumerate(&timeline.ops) {
        let queue = &mut queues[op.stream.at()];
        let asked_ns = timeline.call(op).map(|call| call.start_ns);
        let before_ns = queue.asked_ns.last().copied();
        queue.ops.push(index);
        // Nothing is known of the first ones without a call: as if enqueued before everything.
        let asked_ns = asked_ns.max(before_ns).unwrap_or_default();
        queue.asked_ns.push(asked_ns);
    }
    queues
}

/// Time from a call to the start of its operation, if a trace does not show it: about the minimum
/// on current hardware.
const LAUNCH_NS: i64 = 4_000;
/// An operation that starts later than this after its call waits for something, whatever the trace
/// shows.
const MAX_LAUNCH_NS: i64 = 20_000;
/// Time from the previous operation of its stream to its start, if a trace does not show it.
const GAP_NS: i64 = 1_000;
/// An operation that starts later than this after the previous one waits for something, whatever
/// the trace shows.
const MAX_GAP_NS: i64 = 10_000;

/// Typical times to the start of operations, by kind.
#[derive(Debug)]
pub(super) struct TypicalLatency {
    /// From the call to the start on an empty stream; a low percentile.
    pub(super) launch_ns: ByKind<i64>,
    /// From the end of the previous operation, if both were enqueued long before; a low quartile.
    gap_ns: ByKind<i64>,
    /// Launch calls that themselves took long, with that time in ns.
    pub(super) loading: HashMap<CallIndex, i64>,
}

impl TypicalLatency {
    fn learn(timeline: &Timeline, queues: &[StreamQueue]) -> Self {
        let mut launches: ByKind<Vec<u64>> = Default::default();
        let mut gaps: ByKind<Vec<u64>> = Default::default();
        for queue in queues {
            let mut before: Option<&Op> = None;
            for op in queue.ops.iter().map(|op| &timeline.ops[*op]) {
                let previous = before.replace(op);
                let Some(call) = timeline.call(op) else { continue };
                let kind = op.kind as usize;
                match previous {
                    Some(previous) if call.start_ns <= previous.start_ns => {
                        gaps[kind].extend(op.start_ns.checked_sub(previous.end_ns));
                    }
                    Some(previous) if previous.end_ns > call.start_ns => {}
                    _ => launches[kind].extend(op.start_ns.checked_sub(call.start_ns)),
                }
            }
        }
        Self {
            // On a stream that waits for another one, operations start long after that.
            launch_ns: launches.map(|launches| one_of(10, launches, LAUNCH_NS).min(MAX_LAUNCH_NS)),
            gap_ns: gaps.map(|gaps| one_of(4, gaps, GAP_NS).min(MAX_GAP_NS)),
            loading: HashMap::new(),
        }
    }

    /// When an operation could have started by its call and by its stream. The stream was free from `stream_free_ns`
    /// on.
    pub(super) fn ready_ns(&self, op: &Op, stream_free_ns: u64, timeline: &Timeline) -> u64 {
        let of = |typical_ns: &ByKind<i64>| typical_ns[op.kind as usize].unsigned_abs();
        let by_stream_ns = after(stream_free_ns, of(&self.gap_ns));
        if let Some(call) = timeline.call(op) {
            after(call.start_ns, of(&self.launch_ns)).max(by_stream_ns)
        } else {
            by_stream_ns
        }
    }
}

/// The value at this fraction of the sorted values (4: the first quartile); `without` if there are
/// none.
fn one_of(fraction: usize, mut values: Vec<u64>, without: i64) -> i64 {
    let found = gctrace_stats::quantile(&mut values, fraction);
    if let Some(ns) = found { signed(ns) } else { without }
}

/// Number of calls before the profiler's work that are searched for the one around it.
const AROUND: usize = 64;

/// How long the profiler worked in calls: their operations are enqueued later by that time.
fn held_up(timeline: &Timeline) -> HashMap<CallIndex, i64> {
    let mut held_up: HashMap<CallIndex, i64> = HashMap::new();
    for code in timeline.code.iter().filter(|code| code.kind == HostCodeKind::Overhead) {
        let before = timeline.calls.partition_point(|call| call.start_ns <= code.start_ns);
        let mut near = (0..before).rev().take(AROUND).map(CallIndex::new);
        if let Some(call) = near.find(|call| timeline.calls[*call].thread == code.thread) {
            let end_ns = code.end_ns.min(timeline.calls[call].end_ns);
            let by_ns = held_up.entry(call).or_default();
            *by_ns = later(*by_ns, signed(duration_ns(code.start_ns, end_ns)));
        }
    }
    held_up
}

/// A launch call is long from here on, in ns: most take 10 µs.
const LONG_LAUNCH_NS: i64 = 1_000_000;

/// Calls that themselves took long before their operation began, beyond the time of other calls and the profiler,
/// with that time in ns: the first use of a kernel loads or compiles it.
fn loading(
    timeline: &Timeline,
    typical: &TypicalLatency,
    held_up: &HashMap<CallIndex, i64>,
) -> HashMap<CallIndex, i64> {
    let mut loading = HashMap::new();
    for op in &timeline.ops {
        let Some(call) = op.call else { continue };
        let Call { start_ns, end_ns, .. } = timeline.calls[call];
        let within_ns = signed(duration_ns(start_ns, end_ns.min(op.start_ns)));
        let others_ns = typical.launch_ns[op.kind as usize].max(0);
        let by_ns = within_ns - others_ns - gctrace_units::met(held_up.get(&call));
        // A call that waits for room in a full queue is long before its operation.
        let starts_soon = duration_ns(end_ns, op.start_ns) < LONG_LAUNCH_NS.unsigned_abs();
        if by_ns >= LONG_LAUNCH_NS && starts_soon {
            // All operations of a graph have one call.
            let known = loading.entry(call).or_insert(by_ns);
            *known = by_ns.min(*known);
        }
    }
    loading
}

/// Number of operations of a stream that were still running, by the trace, when the next started;
/// more are ignored.
const OVERLAPPING: usize = 64;

fn link(
    queue: &StreamQueue,
    timeline: &Timeline,
    layout: &ReplayLayout<'_>,
    typical: &TypicalLatency,
    held_up: &HashMap<CallIndex, i64>,
    builder: &mut NetworkBuilder,
) {
    // Operations of one stream should not overlap; operations of a graph, or of a damaged trace,
    // may.
    let mut running: Vec<OpIndex> = Vec::new();
    let mut last_done: Option<OpIndex> = None;
    for op in &queue.ops {
        let (content, (start, _)) = (&timeline.ops[*op], layout.op(*op));
        let kind = content.kind as usize;
        if let Some(call) = content.call {
            let held_up_ns = gctrace_units::met(held_up.get(&call));
            builder.edge(layout.call(call).0, start, later(typical.launch_ns[kind], held_up_ns));
        }
        let ended = |running: &OpIndex| layout.op_span(*running).1 <= content.start_ns;
        let (done, still): (Vec<OpIndex>, Vec<OpIndex>) = running.into_iter().partition(ended);
        last_done =
            done.iter().copied().chain(last_done).max_by_key(|done| layout.op_span(*done).1);
        // The times do not show which of the ended operations it waited for: it waits for all.
        for done in done.iter().chain(&last_done) {
            builder.edge(layout.op(*done).1, start, typical.gap_ns[kind]);
        }
        if let Some(still) = still.last() {
            builder.edge(layout.op(*still).0, start, 0);
        }
        if content.call.is_none() && last_done.is_none() && still.is_empty() {
            builder.fixed(layout.origin, start);
        }
        running = still;
        if running.len() >= OVERLAPPING {
            running.remove(0);
        }
        running.push(*op);
    }
}
