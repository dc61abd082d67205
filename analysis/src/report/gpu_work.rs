//! The part of a report about GPU work and what the pauses cost it.

use super::{
    Basis, CauseReport, ClockReport, DeviceReport, GapsReport, LaunchingReport, NotMerged,
    RanksReport,
};
use schemars::JsonSchema;
use serde::Serialize;

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
    /// Idle intervals of the devices and what the host did in them: ns, inferred. `null` if there
    /// are none.
    pub gaps: Option<GapsReport>,
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
