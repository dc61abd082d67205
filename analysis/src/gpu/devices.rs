//! How busy each device was.

use super::breakdown;
use super::device::DeviceTimeline;
use super::timeline::{Op, StreamIndex};
use crate::report::{Basis, DeviceReport, StreamReport};
use crate::time::intervals::Intervals;
use gctrace_stats::ratio;
use std::collections::BTreeMap;

/// The figures of one device.
pub(crate) fn report(work: &DeviceTimeline<'_>) -> DeviceReport {
    let (first_ns, last_ns) = work.span();
    let span_ns = last_ns - first_ns;
    let busy_ns = work.busy().length_ns();
    let idle_ns = span_ns - busy_ns;
    DeviceReport {
        id: work.id(),
        basis: Basis::Measured,
        operations: work.ops.len() as u64,
        span_ns,
        busy_ns,
        idle_ns,
        busy_ratio: ratio(busy_ns, span_ns),
        idle_ratio: ratio(idle_ns, span_ns),
        temporal: breakdown::temporal(work),
        streams: streams(work),
    }
}

fn streams(work: &DeviceTimeline<'_>) -> Vec<StreamReport> {
    let mut by_stream: BTreeMap<StreamIndex, Vec<&Op>> = BTreeMap::new();
    for op in &work.ops {
        by_stream.entry(op.stream).or_default().push(op);
    }
    let printed = breakdown::printed_idle(work);
    let exact = breakdown::exact_idle(work);
    let reports = by_stream.into_iter().map(|(index, ops)| {
        let busy = Intervals::from_iter(ops.iter().map(|op| op.span()));
        StreamReport {
            stream: work.timeline.streams[index].number,
            operations: ops.len() as u64,
            busy_ns: busy.length_ns(),
            idle_ns: printed.get(&index).copied().unwrap_or_default(),
            exact_idle_ns: exact[&index],
        }
    });
    reports.collect()
}
