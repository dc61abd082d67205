//! The outcome of a replay: when everything happens.

use super::ModelParts;
use super::layout::ReplayLayout;
use super::pauses::AppliedChange;
use crate::gpu::timeline::NONE;
use crate::time::intervals::Intervals;
use std::sync::Arc;

/// Times in nanoseconds on the job's common clock.
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
        let Some(layout) = self.inner.layouts.get(timeline) else {
            return 0;
        };
        let working = layout.chains.iter().filter(|chain| !chain.polls);
        let calls = working.flat_map(|chain| &chain.calls);
        let calls = calls.map(|call| self.call(timeline, *call as usize).1);
        let ops = (0..layout.ops.len()).map(|op| self.op(timeline, op).1);
        calls.chain(ops).max().unwrap_or(0)
    }

    /// The last end of any operation or call of the job.
    #[must_use]
    pub fn makespan_end_ns(&self) -> u64 {
        let ends = (0..self.inner.layouts.len()).map(|timeline| self.end_ns(timeline));
        ends.max().unwrap_or(0)
    }

    /// Start and end of an operation; (0, 0) if the index is out of range.
    #[must_use]
    pub fn op(&self, timeline: usize, op: usize) -> (u64, u64) {
        let span = || {
            let layout = self.inner.layouts.get(timeline)?;
            let op = u32::try_from(op).ok()?;
            self.span(layout, layout.op(op)?, layout.op_span(op)?)
        };
        span().unwrap_or_default()
    }

    /// Start and end of a call; (0, 0) if the index is out of range.
    #[must_use]
    pub fn call(&self, timeline: usize, call: usize) -> (u64, u64) {
        let span = || {
            let layout = self.inner.layouts.get(timeline)?;
            let call = u32::try_from(call).ok()?;
            self.span(layout, layout.call(call)?, layout.call_span(call)?)
        };
        span().unwrap_or_default()
    }

    fn span(
        &self,
        layout: &ReplayLayout,
        (start, end): (u32, u32),
        (start_ns, end_ns): (u64, u64),
    ) -> Option<(u64, u64)> {
        let start = moved(layout, start_ns, self.shift(start));
        let end = moved(layout, end_ns, self.shift(end));
        Some((start, end))
    }

    /// How much later than measured a node is, in ns.
    fn shift(&self, node: u32) -> i64 {
        let network = &self.inner.network;
        network
            .time_in(&self.times, node)
            .saturating_sub(network.measured(node))
    }

    /// Idle time of a device: from its first start to its last end, minus the time in which any
    /// operation ran on it.
    #[must_use]
    pub fn idle_ns(&self, timeline: usize, device: u32) -> u64 {
        let Some(layout) = self.inner.layouts.get(timeline) else {
            return 0;
        };
        let ops = layout.devices.iter().enumerate();
        let spans = ops
            .filter(|(_, of)| **of == device)
            .map(|(op, _)| self.op(timeline, op));
        let (mut first, mut last) = (u64::MAX, 0);
        let spans = spans.inspect(|(start, end)| {
            first = first.min(*start);
            last = last.max(*end);
        });
        let busy_ns = Intervals::from_iter(spans).length_ns();
        last.saturating_sub(first).saturating_sub(busy_ns)
    }

    /// The replayed time of a measured timestamp of a thread, for starts and ends of steps. `at_ns`
    /// is on the clock of the timeline, the result on that of the job.
    #[must_use]
    pub fn timestamp(&self, timeline: usize, thread: u32, at_ns: u64) -> u64 {
        let Some(layout) = self.inner.layouts.get(timeline) else {
            return at_ns;
        };
        let shift = self.shift_at(layout, thread, at_ns).unwrap_or(0);
        moved(layout, at_ns, shift)
    }

    fn shift_at(&self, layout: &ReplayLayout, thread: u32, at_ns: u64) -> Option<i64> {
        let chain = layout.chains.get(thread as usize)?;
        let at = layout.on_network(at_ns);
        let begun = |call: &u32| layout.call_span(*call).is_some_and(|span| span.0 <= at_ns);
        let place = chain.calls.partition_point(begun);
        let next = chain.calls.get(place).and_then(|next| layout.call(*next));
        let cap = next.map_or(i64::MAX, |(start, _)| self.time(start));
        let last = place.checked_sub(1).and_then(|last| chain.calls.get(last));
        let Some(last) = last else {
            return Some(at.min(cap).saturating_sub(at));
        };
        let (start, end) = layout.call(*last)?;
        let (_, end_ns) = layout.call_span(*last)?;
        if at_ns < end_ns {
            let inside = at.saturating_add(self.shift(start)).min(self.time(end));
            return Some(inside.saturating_sub(at));
        }
        let own = chain.own.get(place).copied().unwrap_or(NONE);
        let mut timestamp = at
            .saturating_add(self.shift(end))
            .saturating_add(self.before(own, at_ns));
        let source = chain.source.get(place).copied().unwrap_or(NONE);
        if let (Some((_, source)), Some((_, handed_over_ns))) =
            (layout.call(source), layout.call_span(source))
            && handed_over_ns <= at_ns
        {
            let switch = chain.switch.get(place).copied().unwrap_or(NONE);
            timestamp = at
                .saturating_add(self.shift(source))
                .saturating_add(self.before(switch, at_ns));
        }
        timestamp = timestamp.max(self.time(end)).min(cap);
        Some(timestamp.saturating_sub(at))
    }

    fn time(&self, node: u32) -> i64 {
        self.inner.network.time_in(&self.times, node)
    }

    /// The effect of the change on a delay before a time inside it.
    fn before(&self, edge: u32, at_ns: u64) -> i64 {
        let parts = self.applied.parts.get(&edge).into_iter().flatten();
        let until = |part: &super::pauses::AppliedDelay| {
            let passed = at_ns.saturating_sub(part.start_ns);
            match part.end_ns <= at_ns {
                true => part.by_ns,
                false => part
                    .by_ns
                    .max(-i64::try_from(passed).unwrap_or(i64::MAX))
                    .min(0),
            }
        };
        parts.map(until).fold(0i64, i64::saturating_add)
    }
}

/// A measured time of a timeline, later by `by_ns`, on the clock of the job.
fn moved(layout: &ReplayLayout, time_ns: u64, by_ns: i64) -> u64 {
    let time = i128::from(time_ns) + i128::from(layout.offset_ns) + i128::from(by_ns);
    u64::try_from(time.max(0)).unwrap_or(u64::MAX)
}
