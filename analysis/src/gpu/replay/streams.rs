//! What operations wait for: their call, the previous operation of their stream, and operations of
//! other streams.

use super::layout::ReplayLayout;
use super::network::NONE;
use super::network::NetworkBuilder;
use crate::gpu::timeline::Op;
use crate::gpu::timeline::Timeline;
use crate::time::stats;
use gctrace_event::GpuOpKind;

/// The operations of a stream in order.
#[derive(Debug, Default, Clone)]
pub(super) struct StreamQueue {
    /// Indices of operations by start.
    pub(super) ops: Vec<u32>,
    /// The latest time at which each was enqueued, on the clock of the timeline: never earlier than
    /// the previous one. Without a known call, equal to the previous one.
    pub(super) asked_ns: Vec<u64>,
}

impl StreamQueue {
    /// The last operation that was enqueued before a time.
    pub(super) fn last_before(&self, at_ns: u64) -> Option<u32> {
        let behind = self.asked_ns.partition_point(|asked| *asked < at_ns);
        self.ops.get(behind.checked_sub(1)?).copied()
    }

    /// The first operation that was enqueued after a time.
    pub(super) fn first_from(&self, at_ns: u64) -> Option<u32> {
        let behind = self.asked_ns.partition_point(|asked| *asked <= at_ns);
        self.ops.get(behind).copied()
    }
}

/// Links the operations of each stream; returns the streams, and what their launches and gaps
/// typically take.
pub(super) fn learn(
    timeline: &Timeline,
    layout: &ReplayLayout,
    builder: &mut NetworkBuilder,
) -> (Vec<StreamQueue>, TypicalLatency) {
    let queues = queues(timeline);
    let typical = TypicalLatency::learn(timeline, &queues);
    for queue in &queues {
        link(queue, timeline, layout, &typical, builder);
    }
    (queues, typical)
}

/// Links the start of each operation with its end.
pub(super) fn link_ends(timeline: &Timeline, layout: &ReplayLayout, builder: &mut NetworkBuilder) {
    for op in 0..u32::try_from(timeline.ops.len()).unwrap_or(NONE) {
        let Some((start, end)) = layout.op(op) else {
            continue;
        };
        match layout.meets.get(op as usize) {
            Some(true) => builder.edge(start, end, 0),
            _ => builder.fixed(start, end),
        };
    }
}

/// One per stream of the timeline.
fn queues(timeline: &Timeline) -> Vec<StreamQueue> {
    let mut queues: Vec<StreamQueue> = timeline
        .streams
        .iter()
        .map(|_| StreamQueue::default())
        .collect();
    for (index, op) in (0..).zip(&timeline.ops) {
        let Some(queue) = queues.get_mut(op.stream as usize) else {
            continue;
        };
        let call = timeline.calls.get(op.call as usize);
        let asked = call.map_or(0, |call| call.start_ns);
        let before = queue.asked_ns.last().copied().unwrap_or(0);
        queue.ops.push(index);
        queue.asked_ns.push(asked.max(before));
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
#[derive(Debug, Default)]
pub(super) struct TypicalLatency {
    /// From the call to the start on an empty stream; a low percentile.
    launch_ns: [i64; 3],
    /// From the end of the previous operation, if both were enqueued long before; a low quartile.
    gap_ns: [i64; 3],
}

fn class(kind: GpuOpKind) -> usize {
    match kind {
        GpuOpKind::Kernel => 0,
        GpuOpKind::Memcpy => 1,
        GpuOpKind::Memset => 2,
    }
}

impl TypicalLatency {
    fn learn(timeline: &Timeline, queues: &[StreamQueue]) -> Self {
        let mut launches: [Vec<u64>; 3] = Default::default();
        let mut gaps: [Vec<u64>; 3] = Default::default();
        for queue in queues {
            let mut before: Option<Op> = None;
            for op in queue
                .ops
                .iter()
                .filter_map(|op| timeline.ops.get(*op as usize))
            {
                let previous = before.replace(*op);
                let Some(call) = timeline.calls.get(op.call as usize) else {
                    continue;
                };
                let class = class(op.kind);
                match previous {
                    Some(previous) if call.start_ns <= previous.start_ns => {
                        if let Some(gaps) = gaps.get_mut(class) {
                            gaps.extend(op.start_ns.checked_sub(previous.end_ns));
                        }
                    }
                    Some(previous) if previous.end_ns > call.start_ns => {}
                    _ => {
                        if let Some(launches) = launches.get_mut(class) {
                            launches.extend(op.start_ns.checked_sub(call.start_ns));
                        }
                    }
                }
            }
        }
        Self {
            // On a stream that waits for another one, operations start long after that.
            launch_ns: launches.map(|launches| one_of(10, launches, LAUNCH_NS).min(MAX_LAUNCH_NS)),
            gap_ns: gaps.map(|gaps| one_of(4, gaps, GAP_NS).min(MAX_GAP_NS)),
        }
    }
}

impl TypicalLatency {
    /// When an operation could have started by its call and by its stream, which was free from
    /// `stream_free_ns`.
    pub(super) fn ready_ns(&self, op: &Op, stream_free_ns: u64, timeline: &Timeline) -> u64 {
        let of = |medians: &[i64; 3]| {
            let median = medians.get(class(op.kind)).copied().unwrap_or(0);
            u64::try_from(median).unwrap_or(0)
        };
        let call = timeline.calls.get(op.call as usize);
        let asked = call.map_or(0, |call| call.start_ns.saturating_add(of(&self.launch_ns)));
        asked.max(stream_free_ns.saturating_add(of(&self.gap_ns)))
    }
}

/// The value at this fraction of the sorted values (4: the first quartile); `without` if there are
/// none.
fn one_of(fraction: usize, mut values: Vec<u64>, without: i64) -> i64 {
    let value = stats::quantile(&mut values, fraction);
    value.map_or(without, |value| i64::try_from(value).unwrap_or(i64::MAX))
}

/// Number of operations of a stream that were still running, by the trace, when the next started;
/// more are ignored.
const OVERLAPPING: usize = 64;

fn link(
    queue: &StreamQueue,
    timeline: &Timeline,
    layout: &ReplayLayout,
    typical: &TypicalLatency,
    builder: &mut NetworkBuilder,
) {
    // Operations of one stream should not overlap; those of a graph, or of a damaged trace, may.
    let mut running: Vec<u32> = Vec::new();
    let mut last_done: Option<u32> = None;
    for op in &queue.ops {
        let (Some(content), Some((start, _))) = (timeline.ops.get(*op as usize), layout.op(*op))
        else {
            continue;
        };
        let class = class(content.kind);
        let gap_ns = typical.gap_ns.get(class).copied().unwrap_or(0);
        let launch_ns = typical.launch_ns.get(class).copied().unwrap_or(0);
        let mut waits = false;
        if let Some((call, _)) = layout.call(content.call) {
            builder.edge(call, start, launch_ns);
            waits = true;
        }
        let ended = |running: &u32| {
            let span = layout.op_span(*running);
            span.is_some_and(|(_, end)| end <= content.start_ns)
        };
        let (done, still): (Vec<u32>, Vec<u32>) = running.into_iter().partition(ended);
        last_done = done
            .iter()
            .copied()
            .chain(last_done)
            .max_by_key(|done| layout.op_span(*done).map(|(_, end)| end));
        let done = done
            .iter()
            .chain(last_done.iter())
            .filter_map(|done| layout.op(*done));
        for (_, end) in done {
            builder.edge(end, start, gap_ns);
            waits = true;
        }
        if let Some((other, _)) = still.last().and_then(|still| layout.op(*still)) {
            builder.edge(other, start, 0);
            waits = true;
        }
        if !waits {
            builder.fixed(layout.origin, start);
        }
        running = still;
        if running.len() >= OVERLAPPING {
            running.remove(0);
        }
        running.push(*op);
    }
}
