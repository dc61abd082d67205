//! A device's operations in order with the gaps between them, and how it spent its time.

use crate::gpu::breakdown::is_computation;
use crate::gpu::device::DeviceTimeline;
use crate::gpu::idle::IdleLedger;
use crate::gpu::replay::layout::ReplayLayout;
use crate::gpu::replay::network::NetworkRun;
use crate::gpu::timeline::{OpIndex, Timeline};
use crate::time::intervals::{Intervals, length};
use crate::time::{beyond, difference, later};
use gctrace_event::GpuOpKind;

/// The operations of a device in order, and its gaps.
pub(super) struct DeviceGaps {
    pub(super) ops: Vec<OpIndex>,
    /// By the place in `ops` of the operation that ends each: its length.
    pub(super) gaps: Vec<(usize, u64)>,
}

impl DeviceGaps {
    pub(super) fn of(
        work: &DeviceTimeline<'_>,
        layout: &ReplayLayout<'_>,
        timeline: &Timeline,
    ) -> Self {
        let ops = OpIndex::all(&timeline.ops);
        let mut ops: Vec<OpIndex> =
            ops.filter(|op| layout.device(*op) == Some(work.device)).collect();
        let mut gaps: Vec<(usize, u64)> = Vec::new();
        let mut end_ns = None;
        for (place, op) in ops.iter().enumerate() {
            let (from, to) = layout.op_span(*op);
            if let Some(end_ns) = end_ns
                && end_ns < from
            {
                gaps.push((place, from - end_ns));
            } else if let Some((ender, _)) = gaps.last_mut()
                && layout.op_span(ops[*ender]).0 == from
                && timeline.ops[ops[*ender]].call.is_none()
            {
                // If several have the same start, one with a known call.
                *ender = place;
            }
            end_ns = end_ns.max(Some(to));
        }
        gaps.shrink_to_fit();
        ops.shrink_to_fit();
        Self { ops, gaps }
    }

    /// Start and end of each gap.
    pub(super) fn spans(&self, timeline: &Timeline) -> Vec<(u64, u64)> {
        let spans = self.gaps.iter().map(|(place, length_ns)| {
            let end_ns = timeline.ops[self.ops[*place]].start_ns;
            (beyond(end_ns, *length_ns), end_ns)
        });
        spans.collect()
    }

    /// From the first start to the last end in a run.
    pub(super) fn span_ns(&self, layout: &ReplayLayout<'_>, run: &NetworkRun<'_>) -> i64 {
        let spans = self.ops.iter().map(|op| layout.op(*op));
        let (first, last) = spans.fold((i64::MAX, i64::MIN), |(first, last), (start, end)| {
            (first.min(run.time_of(start)), last.max(run.time_of(end)))
        });
        difference(last, first).max(0)
    }

    /// The idle time of a run, and the rest of each gap: the time from the last end of operations before it to the
    /// operation that ended it.
    pub(super) fn replayed(
        &self,
        layout: &ReplayLayout<'_>,
        run: &NetworkRun<'_>,
    ) -> (i64, Vec<i64>) {
        let mut spans = Vec::with_capacity(self.ops.len());
        let mut left = Vec::with_capacity(self.gaps.len());
        let mut gaps = self.gaps.iter().peekable();
        let mut end_ns = i64::MIN;
        for (place, op) in self.ops.iter().enumerate() {
            let (start, end) = layout.op(*op);
            let (from, to) = (run.time_of(start), run.time_of(end));
            if gaps.next_if(|(ender, _)| *ender == place).is_some() {
                left.push(difference(from, end_ns).max(0));
            }
            end_ns = end_ns.max(to);
            spans.push((from, to));
        }
        spans.sort_unstable();
        let mut idle_ns = 0;
        let mut end_ns = None;
        for (from, to) in spans {
            let gap_ns = if let Some(end) = end_ns { difference(from, end).max(0) } else { 0 };
            idle_ns = later(idle_ns, gap_ns);
            end_ns = end_ns.max(Some(to));
        }
        (idle_ns, left)
    }
}

/// The ledger of a device with its times only, each counted once: computing before communicating,
/// before copying. And when it computed.
pub(super) fn times(work: &DeviceTimeline<'_>) -> (IdleLedger, Intervals) {
    let (first_ns, last_ns) = work.span();
    let mut classes: [Vec<(u64, u64)>; 3] = Default::default();
    for op in &work.ops {
        let class = match op.kind {
            GpuOpKind::Kernel if is_computation(work.timeline.op_name(op)) => 0,
            GpuOpKind::Kernel => 1,
            _ => 2,
        };
        classes[class].push(op.span());
    }
    let mut rest = vec![(first_ns, last_ns)];
    let classes = classes.map(Intervals::from_iter);
    let [compute_ns, communication_ns, copies_ns] =
        classes.each_ref().map(|spans| spans.take_from(&mut rest));
    let [computing, ..] = classes;
    let ledger = IdleLedger {
        id: work.id(),
        span_ns: last_ns - first_ns,
        compute_ns,
        communication_ns,
        copies_ns,
        idle_ns: length(rest),
        ..IdleLedger::default()
    };
    (ledger, computing)
}
