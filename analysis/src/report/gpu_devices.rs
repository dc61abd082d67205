//! The part of a report about how busy each device was.

use super::Basis;
use schemars::JsonSchema;
use serde::Serialize;

/// Which device of which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeviceId {
    /// Index of the trace.
    pub trace: usize,
    /// Process; 0 where the trace does not tell.
    pub pid: u32,
    /// Rank in a distributed job, where known.
    pub rank: Option<u32>,
    /// Index of the device, as the process counts them.
    pub device: u32,
}

/// How busy one process kept one device.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeviceReport {
    /// Which.
    #[serde(flatten)]
    pub id: DeviceId,
    /// Measured by the GPU.
    pub basis: Basis,
    /// Kernels, copies and fills.
    pub operations: u64,
    /// From the begin of the first operation to the end of the last.
    pub span_ns: u64,
    /// Time in which at least one of its streams ran a kernel, a copy or a fill.
    pub busy_ns: u64,
    /// The rest of the span.
    pub idle_ns: u64,
    /// `busy_ns` / `span_ns`; absent where the span is empty.
    pub busy_ratio: Option<f64>,
    /// `idle_ns` / `span_ns`; absent where the span is empty.
    pub idle_ratio: Option<f64>,
    /// The same span as HolisticTraceAnalysis 0.5.0 prints it; absent where that would look at no
    /// operation.
    pub temporal: Option<TemporalBreakdown>,
    /// Its streams, by number.
    pub streams: Vec<StreamReport>,
}

/// What `get_temporal_breakdown` of HolisticTraceAnalysis 0.5.0 prints: begins rounded up and ends
/// down to whole microseconds, and, where the trace has two profiler steps or more, without what was
/// launched in the last. For comparison; `span_ns`, `busy_ns` and `idle_ns` of the device are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TemporalBreakdown {
    /// `kernel_time`: from the first begin to the last end.
    pub span_ns: u64,
    /// `idle_time`: the span less the union of all operations.
    pub idle_ns: u64,
    /// `compute_time`: the union of kernels that neither communicate (`nccl...Kernel`) nor move memory.
    pub compute_ns: u64,
    /// `non_compute_time`: the rest.
    pub non_compute_ns: u64,
    /// Operations in these figures.
    pub operations: u64,
    /// Operations left out: launched in the last profiler step, or by no call of the trace.
    pub left_out: u64,
}

/// One stream of a device.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StreamReport {
    /// Its number.
    pub stream: u64,
    /// Kernels, copies and fills.
    pub operations: u64,
    /// Time in which it ran one.
    pub busy_ns: u64,
    /// Time between its operations as `get_idle_time_breakdown` of HolisticTraceAnalysis 0.5.0 prints
    /// it: of the same operations and with the same rounding as `temporal`.
    pub idle_ns: StreamIdle,
    /// The same by the same definitions, but of all operations and in exact nanoseconds.
    pub exact_idle_ns: StreamIdle,
}

/// Time between the operations of a stream, by what its next operation waited for: nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StreamIdle {
    /// Its launch call began only after the operation before it had ended.
    pub host_wait: u64,
    /// It was launched in time and began within 30 µs.
    pub kernel_wait: u64,
    /// It was launched in time and waited longer, as for an event of another stream.
    pub other: u64,
}
