//! The parts of a report about GPU work: what the pauses cost it, how busy each device was, its idle
//! intervals, and how far the host is ahead of it.

use super::{Basis, CauseReport, ClockReport, IdleLedger, NotMerged, RanksReport};
use schemars::JsonSchema;
use serde::Serialize;

/// Identifies one device of one process; two processes may number the same GPU differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
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

/// What ran on the GPUs and what the pauses cost, from traces that contain operations with GPU
/// times.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GpuWorkReport {
    /// Measured by the GPU, through CUPTI.
    pub basis: Basis,
    /// Number of kernels, memcpys and memsets.
    pub operations: u64,
    /// How busy each device of each process was: ns, measured.
    pub devices: Vec<DeviceReport>,
    /// Why each device was idle: ns, inferred by replays. Empty if a process is too large for them.
    pub idle: Vec<IdleLedger>,
    /// How far the host was ahead of the devices: ns and operations, measured. `null` if no
    /// operation has a correlation id of a recorded call.
    pub launching: Option<LaunchingReport>,
    /// Traces of the PyTorch profiler that were merged with gctrace's trace of the same process.
    pub clocks: Vec<ClockReport>,
    /// Traces of the PyTorch profiler that could not be merged.
    pub not_merged: Vec<NotMerged>,
    /// Ranks of distributed jobs: ns, inferred. `null` if the traces contain fewer than two ranks.
    pub ranks: Option<RanksReport>,
    /// What the pauses cost, by replay: one entry for each process that used a GPU and ran the
    /// collector, by trace and process. ns, inferred.
    pub cause: Vec<CauseReport>,
    /// Why there are no costs of pauses although there were pauses; `null` if there are.
    pub not_replayed: Option<NotReplayed>,
    /// Records that these figures ignore, counted by reason.
    pub ignored: IgnoredWork,
}

/// A process or a job that is too large to be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotReplayed {
    /// Times that its model would have: starts and ends of operations and calls of the largest
    /// process, or what is left of them where the ranks of a job wait for each other.
    pub timestamps: u64,
    /// The most that a model can have.
    pub most: u64,
}

/// Records of GPU work that the figures ignore, counted.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct IgnoredWork {
    /// Operations whose call is not in the trace. They count as busy time, but the launching thread
    /// is unknown.
    pub operations_without_call: u64,
    /// Operations that started before their call, because the clocks of the trace disagree.
    pub operations_before_call: u64,
    /// Calls inside other calls of the same thread; only the outermost counts.
    pub nested_calls: u64,
    /// Repeated records of operations, calls and collections.
    pub duplicates: u64,
    /// Operations that cannot be attributed to a process, in a trace with several: neither they nor
    /// a call of theirs state it. They count as busy time of their device.
    pub operations_without_process: u64,
}

/// How far the host is ahead of the devices. A pause shorter than the queued work costs nothing.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LaunchingReport {
    /// Always measured: calls on the host, operations by the GPU.
    pub basis: Basis,
    /// The figures by device of each process; devices without a recorded launch are omitted.
    pub devices: Vec<DeviceLaunching>,
}

/// How far the host was ahead of one device of one process.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeviceLaunching {
    /// The device, and the process that launched to it.
    #[serde(flatten)]
    pub id: DeviceId,
    /// Operations that these figures omit: their call is not in the trace, they started before it
    /// by the clocks of the trace, or they are not the first of their graph.
    pub left_out: u64,
    /// Launch latency: from the start of the launch call to the start of its operation.
    pub latency: LatencyReport,
    /// Operations launched and not started; `null` if the span of the device is empty.
    pub waiting: Option<DepthReport>,
    /// Queue depth: operations launched and not finished; `null` if the span of the device is
    /// empty.
    pub unfinished: Option<DepthReport>,
}

/// A distribution of launch latencies. Percentiles are by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LatencyReport {
    /// Number of operations in the distribution.
    pub count: u64,
    /// Shortest launch latency of an operation, in ns.
    pub min_ns: u64,
    /// 5th percentile of the launch latency, in ns.
    pub p5_ns: u64,
    /// Median of the launch latency, in ns.
    pub p50_ns: u64,
    /// 95th percentile of the launch latency, in ns.
    pub p95_ns: u64,
    /// 99th percentile of the launch latency, in ns.
    pub p99_ns: u64,
    /// Longest launch latency of an operation, in ns.
    pub max_ns: u64,
    /// Largest relative error of the percentiles; 0 if they are exact (up to 4,096 operations).
    pub percentile_error_ratio: f64,
}

/// A number of operations over time, between the first start and the last end on the device.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DepthReport {
    /// Mean number of operations, weighted by time.
    pub mean: f64,
    /// Largest number of operations at any time.
    pub max: u64,
    /// Time in which the number was 0, in ns.
    pub zero_ns: u64,
    /// `zero_ns` as a share of the device's span, 0 to 1.
    pub zero_ratio: f64,
    /// The number over time, in at most 64 slices of equal length.
    pub series: Vec<DepthPoint>,
}

/// One slice of time of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DepthPoint {
    /// Start of the slice, in ns after the start of the device's first operation.
    pub at_ns: u64,
    /// Mean number of operations in the slice, weighted by time.
    pub mean: f64,
    /// Largest number of operations at any time of the slice.
    pub max: u64,
}
