//! How busy each device was.

use super::breakdown;
use super::breakdown::{StreamIdle, TemporalBreakdown};
use super::device::DeviceTimeline;
use super::timeline::{Op, StreamIndex};
use crate::figure::{Basis, DeviceId};
use crate::time::intervals::Intervals;
use gctrace_stats::ratio;
use serde::Serialize;
use std::collections::BTreeMap;

/// How busy one process kept one device. `busy_ns` + `idle_ns` = `span_ns`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceReport {
    /// The device, and the process that used it.
    #[serde(flatten)]
    pub id: DeviceId,
    /// Always measured, from operations with GPU times (CUPTI).
    pub basis: Basis,
    /// Number of kernels, memcpys and memsets.
    pub operations: u64,
    /// Time from the start of the first operation to the end of the last, in ns.
    pub span_ns: u64,
    /// Time with an operation on at least one stream, in ns.
    pub busy_ns: u64,
    /// Time of the span without an operation, in ns.
    pub idle_ns: u64,
    /// `busy_ns` / `span_ns`; `null` if the span is empty.
    pub busy_ratio: Option<f64>,
    /// `idle_ns` / `span_ns`; `null` if the span is empty.
    pub idle_ratio: Option<f64>,
    /// The same span as HolisticTraceAnalysis 0.5.0 reports it; `null` if that would include no
    /// operation.
    pub temporal: Option<TemporalBreakdown>,
    /// The streams of the device, by id.
    pub streams: Vec<StreamReport>,
}

/// Busy and idle time of one stream of a device.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamReport {
    /// Number of the stream in the trace (CUPTI's stream id).
    pub stream: u64,
    /// Number of kernels, memcpys and memsets.
    pub operations: u64,
    /// Time with an operation on the stream, in ns.
    pub busy_ns: u64,
    /// Idle time between operations as `get_idle_time_breakdown` of HolisticTraceAnalysis 0.5.0
    /// reports it, over the same operations and with the same rounding as `temporal`.
    pub idle_ns: StreamIdle,
    /// Idle time by the same classes, over all operations and without rounding.
    pub exact_idle_ns: StreamIdle,
}

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
            idle_ns: gctrace_units::met(printed.get(&index)),
            exact_idle_ns: exact[&index],
        }
    });
    reports.collect()
}
