//! The part of a report about how busy each device was.

use super::Basis;
use schemars::JsonSchema;
use serde::Serialize;

/// Identifies one device of one process; two processes may number the same GPU differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeviceId {
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// Process id; 0 if the trace does not contain it.
    pub pid: u32,
    /// Rank in a distributed job; `null` if unknown.
    pub rank: Option<u32>,
    /// Index of the device in the process.
    pub device: u32,
}

/// How busy one process kept one device. `busy_ns` + `idle_ns` = `span_ns`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
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
    /// Time in which at least one stream ran an operation, in ns.
    pub busy_ns: u64,
    /// Time of the span in which no operation ran, in ns.
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

/// The figures of `get_temporal_breakdown` of HolisticTraceAnalysis 0.5.0, for comparison: starts
/// are rounded up and ends down to whole microseconds, and if the trace has at least two profiler
/// steps, operations launched in the last one are omitted. `span_ns`, `busy_ns` and `idle_ns` of
/// the device are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TemporalBreakdown {
    /// `kernel_time` in ns: from the first start to the last end.
    pub span_ns: u64,
    /// `idle_time` in ns: the span minus the union of all operations.
    pub idle_ns: u64,
    /// `compute_time` in ns: the union of kernels that neither communicate (`nccl...Kernel`) nor
    /// move memory.
    pub compute_ns: u64,
    /// `non_compute_time` in ns: the rest of the span.
    pub non_compute_ns: u64,
    /// Number of operations in these figures.
    pub operations: u64,
    /// Number of omitted operations: launched in the last profiler step, or by no call of the
    /// trace.
    pub left_out: u64,
}

/// Busy and idle time of one stream of a device.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StreamReport {
    /// Number of the stream in the trace (CUPTI's stream id).
    pub stream: u64,
    /// Number of kernels, memcpys and memsets.
    pub operations: u64,
    /// Time in which the stream ran an operation, in ns.
    pub busy_ns: u64,
    /// Idle time between operations as `get_idle_time_breakdown` of HolisticTraceAnalysis 0.5.0
    /// reports it, over the same operations and with the same rounding as `temporal`.
    pub idle_ns: StreamIdle,
    /// Idle time by the same classes, over all operations and without rounding.
    pub exact_idle_ns: StreamIdle,
}

/// Idle time of a stream, in ns, by what its next operation waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StreamIdle {
    /// In ns: the launch started after the previous operation had ended.
    pub host_wait: u64,
    /// In ns: the operation was launched in time and started within 30 µs.
    pub kernel_wait: u64,
    /// In ns: the operation was launched in time and started later, for example because it waited
    /// for an event of another stream.
    pub other: u64,
}
