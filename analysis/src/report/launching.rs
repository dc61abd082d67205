//! The part of a report about how far the host is ahead of the devices.

use super::Basis;
use super::DeviceId;
use schemars::JsonSchema;
use serde::Serialize;

/// How far the host is ahead of the devices. A pause that is shorter than the work ahead of it costs
/// nothing.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LaunchingReport {
    /// Measured: calls by the host, operations by the GPU.
    pub basis: Basis,
    /// By device.
    pub devices: Vec<DeviceLaunching>,
}

/// Launching to one device.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeviceLaunching {
    /// Which.
    #[serde(flatten)]
    pub id: DeviceId,
    /// Operations not in these figures: they name no call of the trace, began before it by the
    /// trace's clocks, or are not the first of their graph.
    pub left_out: u64,
    /// From the begin of a launch call to the begin of its operation.
    pub latency: LatencyReport,
    /// Operations launched and not yet begun; absent where the device's span is empty.
    pub waiting: Option<DepthReport>,
    /// Operations launched and not yet finished; absent where the device's span is empty.
    pub unfinished: Option<DepthReport>,
}

/// A distribution of issue latencies. Percentiles are by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LatencyReport {
    /// Operations.
    pub count: u64,
    /// Smallest.
    pub min_ns: u64,
    /// 5 % are at most as long.
    pub p5_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 95 % are at most as long.
    pub p95_ns: u64,
    /// 99 % are at most as long.
    pub p99_ns: u64,
    /// Largest.
    pub max_ns: u64,
    /// How far percentiles can be off, as a ratio; 0 when they are exact (up to 4,096 operations).
    pub percentile_error_ratio: f64,
}

/// A number of operations over time, between the first begin and the last end on the device.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DepthReport {
    /// Mean over time.
    pub mean: f64,
    /// Largest.
    pub max: u64,
    /// Time at 0.
    pub zero_ns: u64,
    /// The same as a share of the device's span.
    pub zero_ratio: f64,
    /// At most 64 slices of equal length.
    pub series: Vec<DepthPoint>,
}

/// One slice of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DepthPoint {
    /// Its begin, counted from the device's first operation.
    pub at_ns: u64,
    /// Mean within it.
    pub mean: f64,
    /// Largest within it.
    pub max: u64,
}
