//! The outcome of a replay: when everything happens.

use super::ModelParts;
use super::layout::ReplayLayout;
use super::network::NetworkNodeId;
use super::pauses::AppliedChange;
use super::timestamps::TimestampRule;
use crate::gpu::timeline::{CallIndex, OpIndex, ThreadIndex};
use crate::time::intervals::Intervals;
use crate::time::{difference, duration_ns, later};
use std::sync::Arc;

/// Times in nanoseconds on the job's common clock. Its functions panic on timelines, operations,
/// calls and threads that are not in the job.
#[derive(Clone, Debug)]
pub struct ReplaySchedule<'a> {
    inner: Arc<ModelParts<'a>>,
    times: Vec<i64>,
    applied: AppliedChange,
}

impl<'a> ReplaySchedule<'a> {
    pub(super) fn new(inner: Arc<ModelParts<'a>>, times: Vec<i64>, applied: AppliedChange) -> Self {
        Self { inner, times, applied }
    }

    /// The last end of any operation or call of a timeline; 0 if it has none. Calls of threads that
    /// only poll are ignored.
    pub fn end_ns(&self, timeline: usize) -> u64 {
        let layout = &self.inner.layouts[timeline];
        let calls = layout.working_calls();
        let calls = calls.map(|call| self.call(timeline, call).1);
        let ops = layout.all_ops().map(|op| self.op(timeline, op).1);
        calls.chain(ops).fold(0, u64::max)
    }

    /// The last end of any operation or call of the job; 0 if it has none.
    pub fn makespan_end_ns(&self) -> u64 {
        let timelines = 0..self.inner.layouts.len();
        timelines.fold(0, |end_ns, timeline| end_ns.max(self.end_ns(timeline)))
    }

    /// Start and end of an operation.
    pub fn op(&self, timeline: usize, op: OpIndex) -> (u64, u64) {
        let layout = &self.inner.layouts[timeline];
        self.span(layout, layout.op(op), layout.op_span(op))
    }

    /// Start and end of a call.
    pub fn call(&self, timeline: usize, call: CallIndex) -> (u64, u64) {
        let layout = &self.inner.layouts[timeline];
        self.span(layout, layout.call(call), layout.call_span(call))
    }

    fn span(
        &self,
        layout: &ReplayLayout<'_>,
        (start, end): (NetworkNodeId, NetworkNodeId),
        (start_ns, end_ns): (u64, u64),
    ) -> (u64, u64) {
        let start_ns = layout.moved(start_ns, self.shift(start));
        let end_ns = layout.moved(end_ns, self.shift(end));
        (start_ns, end_ns)
    }

    /// How much later than measured a node is, in ns.
    fn shift(&self, node: NetworkNodeId) -> i64 {
        difference(self.time(node), self.inner.network.measured(node))
    }

    /// Idle time of a device: from its first start to its last end, minus the time with any operation running on it.
    pub fn idle_ns(&self, timeline: usize, device: u32) -> u64 {
        let layout = &self.inner.layouts[timeline];
        let ops = layout.all_ops().filter(|op| layout.device(*op) == Some(device));
        let spans: Vec<(u64, u64)> = ops.map(|op| self.op(timeline, op)).collect();
        let first = spans.iter().map(|(start, _)| *start).min();
        let last = spans.iter().map(|(_, end)| *end).max();
        let busy_ns = Intervals::from_iter(spans).length_ns();
        let (Some(first), Some(last)) = (first, last) else { return 0 };
        duration_ns(busy_ns, duration_ns(first, last))
    }

    /// The replayed time of a measured timestamp of a thread, for starts and ends of steps. `at_ns`
    /// is on the timeline's clock, the result on the job's.
    pub fn timestamp(&self, timeline: usize, thread: ThreadIndex, at_ns: u64) -> u64 {
        let layout = &self.inner.layouts[timeline];
        layout.moved(at_ns, self.shift_at(layout, thread, at_ns))
    }

    fn shift_at(&self, layout: &ReplayLayout<'_>, thread: ThreadIndex, at_ns: u64) -> i64 {
        let rule = TimestampRule::of(layout, thread, at_ns);
        let at = layout.on_network(at_ns);
        let by_ns = if let Some(edge) = rule.paused { self.applied.before(edge, at_ns) } else { 0 };
        let after = rule.after.map_or(at, |node| later(later(at, self.shift(node)), by_ns));
        let no_earlier = if let Some(node) = rule.no_earlier { self.time(node) } else { i64::MIN };
        let no_later = if let Some(node) = rule.no_later { self.time(node) } else { i64::MAX };
        difference(after.max(no_earlier).min(no_later), at)
    }

    fn time(&self, node: NetworkNodeId) -> i64 {
        self.inner.network.time_in(&self.times, node)
    }
}
