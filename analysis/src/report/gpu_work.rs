//! The part of a report about what ran on the GPUs and what pauses cost it.

use super::Basis;
use super::CauseReport;
use super::DeviceReport;
use super::GapsReport;
use super::LaunchingReport;
use super::RanksReport;
use schemars::JsonSchema;
use serde::Serialize;

/// What ran on the GPUs, from traces that hold operations with the GPU's own times.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GpuWork {
    /// Measured by the GPU, through CUPTI.
    pub basis: Basis,
    /// Kernels, copies and fills.
    pub operations: u64,
    /// How busy each device of each process was: nanoseconds, measured.
    pub devices: Vec<DeviceReport>,
    /// When the devices did nothing, and what the host did meanwhile: nanoseconds, inferred.
    pub gaps: Option<GapsReport>,
    /// How far the host was ahead of the devices: nanoseconds and operations, measured; absent where
    /// no operation names its call.
    pub launching: Option<LaunchingReport>,
    /// Ranks of distributed jobs, times in nanoseconds (inferred); absent where the traces hold
    /// fewer than two.
    pub ranks: Option<RanksReport>,
    /// What pauses cost, by replay: one entry for each process that worked on a GPU and collected, by
    /// trace and process. Times in nanoseconds, inferred.
    pub cause: Vec<CauseReport>,
    /// What of the traces is not in these figures.
    pub ignored: IgnoredWork,
}

/// What was found in traces and is not in the figures of GPUs.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct IgnoredWork {
    /// Operations that name no call, or one that is not in the trace. They count as busy time, but
    /// nothing can be said about who launched them.
    pub operations_without_call: u64,
    /// Operations that began before the call that asked for them: the clocks of the trace disagree.
    pub operations_before_call: u64,
    /// Calls inside other calls of the same thread; the outer one counts.
    pub nested_calls: u64,
}
