//! The part of a report about what ran on the GPUs and what pauses cost it.

use super::Basis;
use super::CauseReport;
use super::ClockReport;
use super::DeviceReport;
use super::GapsReport;
use super::LaunchingReport;
use super::NotMerged;
use super::RanksReport;
use schemars::JsonSchema;
use serde::Serialize;

/// What ran on the GPUs, from traces that hold operations with the GPU's own times.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GpuWorkReport {
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
    /// Traces of the PyTorch profiler that were put together with gctrace's of the same process.
    pub clocks: Vec<ClockReport>,
    /// Those for which that was not possible.
    pub not_merged: Vec<NotMerged>,
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
    /// Operations, calls and collections that a trace holds twice, the second time.
    pub duplicates: u64,
    /// Operations that cannot be given to a process, in a trace of several: they name neither it nor a
    /// call of it. They count as busy time of their device.
    pub operations_without_process: u64,
}
