//! The part of a report about how far the host is ahead of the devices.

use super::{Basis, DeviceId};
use schemars::JsonSchema;
use serde::Serialize;

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
