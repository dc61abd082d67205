//! The outcome of a replay: when everything happens.

use super::ModelParts;
use super::layout::ReplayLayout;
use super::network::EdgeIndex;
use super::network::NodeIndex;
use super::pauses::AppliedChange;
use super::pauses::AppliedDelay;
use crate::gpu::timeline::CallIndex;
use crate::gpu::timeline::OpIndex;
use crate::gpu::timeline::ThreadIndex;
use crate::time::difference;
use crate::time::duration;
use crate::time::intervals::Intervals;
use crate::time::later;
use crate::time::signed;
use std::sync::Arc;

/// Times in nanoseconds on the job's common clock. Its functions panic on timelines, operations,
/// calls and threads that are not in the job.
#[derive(Clone, Debug)]
pub struct ReplaySchedule {
    inner: Arc<ModelParts>,
    times: Vec<i64>,
    applied: AppliedChange,
}

impl ReplaySchedule {
    pub(super) fn new(inner: Arc<ModelParts>, times: Vec<i64>, applied: AppliedChange) -> Self {
        Self {
            inner,
            times,
            applied,
        }
    }

    /// The last end of any operation or call of a timeline; 0 if it has none. Calls of threads that
    /// only poll are ignored.
    #[must_use]
    pub fn end_ns(&self, timeline: usize) -> u64 {
        let layout = &self.inner.layouts[timeline];
        let calls = layout.working_calls();
        let calls = calls.map(|call| self.call(timeline, call).1);
        let ops = layout.all_ops().map(|op| self.op(timeline, op).1);
        calls.chain(ops).fold(0, u64::max)
    }

    /// The last end of any operation or call of the job; 0 if it has none.
    #[must_use]
    pub fn makespan_end_ns(&self) -> u64 {
        let timelines = 0..self.inner.layouts.len();
        timelines.fold(0, |end_ns, timeline| end_ns.max(self.end_ns(timeline)))
    }

    /// Start and end of an operation.
    #[must_use]
    pub fn op(&self, timeline: usize, op: OpIndex) -> (u64, u64) {
        let layout = &self.inner.layouts[timeline];
        self.span(layout, layout.op(op), layout.op_span(op))
    }

    /// Start and end of a call.
    #[must_use]
    pub fn call(&self, timeline: usize, call: CallIndex) -> (u64, u64) {
        let layout = &self.inner.layouts[timeline];
        self.span(layout, layout.call(call), layout.call_span(call))
    }

    fn span(
        &self,
        layout: &ReplayLayout,
        (start, end): (NodeIndex, NodeIndex),
        (start_ns, end_ns): (u64, u64),
    ) -> (u64, u64) {
        let start_ns = layout.moved(start_ns, self.shift(start));
        let end_ns = layout.moved(end_ns, self.shift(end));
        (start_ns, end_ns)
    }

    /// How much later than measured a node is, in ns.
    fn shift(&self, node: NodeIndex) -> i64 {
        difference(self.time(node), self.inner.network.measured(node))
    }

    /// Idle time of a device: from its first start to its last end, minus the time in which any
    /// operation ran on it.
    #[must_use]
    pub fn idle_ns(&self, timeline: usize, device: u32) -> u64 {
        let layout = &self.inner.layouts[timeline];
        let ops = layout
            .all_ops()
            .filter(|op| layout.device(*op) == Some(device));
        let spans: Vec<(u64, u64)> = ops.map(|op| self.op(timeline, op)).collect();
        let first = spans.iter().map(|(start, _)| *start).min();
        let last = spans.iter().map(|(_, end)| *end).max();
        let busy_ns = Intervals::from_iter(spans).length_ns();
        let span_ns = first.zip(last).map(|(first, last)| duration(first, last));
        span_ns.map_or(0, |span_ns| duration(busy_ns, span_ns))
    }

    /// The replayed time of a measured timestamp of a thread, for starts and ends of steps. `at_ns`
    /// is on the clock of the timeline, the result on that of the job.
    #[must_use]
    pub fn timestamp(&self, timeline: usize, thread: ThreadIndex, at_ns: u64) -> u64 {
        let layout = &self.inner.layouts[timeline];
        layout.moved(at_ns, self.shift_at(layout, thread, at_ns))
    }

    fn shift_at(&self, layout: &ReplayLayout, thread: ThreadIndex, at_ns: u64) -> i64 {
        let chain = &layout.chains[thread.at()];
        let at = layout.on_network(at_ns);
        let begun = |call: &CallIndex| layout.call_span(*call).0 <= at_ns;
        let place = chain.calls.partition_point(begun);
        let next = chain.calls.get(place).map(|next| layout.call(*next));
        let cap = next.map_or(i64::MAX, |(start, _)| self.time(start));
        let Some(last) = chain.before(place) else {
            return difference(at.min(cap), at);
        };
        let (start, end) = layout.call(last);
        if at_ns < layout.call_span(last).1 {
            let inside = later(at, self.shift(start)).min(self.time(end));
            return difference(inside, at);
        }
        let after = |node: NodeIndex, edge: Option<EdgeIndex>| {
            let by_ns = edge.map_or(0, |edge| self.before(edge, at_ns));
            later(later(at, self.shift(node)), by_ns)
        };
        let hand_over = chain.hand_over(place);
        let timestamp = match hand_over.filter(|own| layout.call_span(own.source).1 <= at_ns) {
            Some(own) => after(layout.call(own.source).1, Some(own.edge)),
            None => after(end, chain.own.get(place).copied()),
        };
        difference(timestamp.max(self.time(end)).min(cap), at)
    }

    fn time(&self, node: NodeIndex) -> i64 {
        self.inner.network.time_in(&self.times, node)
    }

    /// The effect of the change on a delay before a time inside it.
    fn before(&self, edge: EdgeIndex, at_ns: u64) -> i64 {
        let parts = self.applied.parts.get(&edge).into_iter().flatten();
        let until = |part: &AppliedDelay| match part.end_ns <= at_ns {
            true => part.by_ns,
            false => part
                .by_ns
                .max(-signed(duration(part.start_ns, at_ns)))
                .min(0),
        };
        parts.map(until).fold(0, later)
    }
}
