//! The part of a report about the cost of pauses, by replay of the schedule without them.

use super::{Basis, NoErrorBar, PauseTotal};
use gctrace_stats::ratio;
use schemars::JsonSchema;
use serde::Serialize;

/// What the pauses of one process cost it and its GPUs. The schedule of calls and operations is
/// rebuilt from the trace and replayed without the pauses; the cost is how much earlier the work
/// would have finished.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CauseReport {
    /// Always inferred: the replay assumes that everything but the pauses is unchanged.
    pub basis: Basis,
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// Process id: on the host if gctrace recorded the process, otherwise as the trace states it.
    pub pid: u32,
    /// Rank in a distributed job; `null` if unknown.
    pub rank: Option<u32>,
    /// Measured: time from the first call or operation to the end of the last, in ns.
    pub span_ns: u64,
    /// Measured: all pauses of the process.
    pub pauses: PauseTotal,
    /// How much earlier the last operation or call would have ended without any pause, in ns.
    pub cost_ns: u64,
    /// `cost_ns` as a share of `span_ns`; 0 if the span is empty.
    pub cost_ratio: f64,
    /// Standard error of `cost_ns` against a second run without pauses, in ns: two runs differ as
    /// much as the durations of the steps without pauses differ from what the other steps predict.
    /// `null` if there are too few steps (see `no_error_bar`).
    pub standard_error_ns: Option<u64>,
    /// The steps that the standard error rests on; `null` if there are none.
    pub steps: Option<StepEvidenceReport>,
    /// Why `standard_error_ns` is `null`, as text.
    pub no_error_bar: Option<NoErrorBar>,
    /// What the pauses cost each device of the process.
    pub devices: Vec<DeviceCost>,
    /// Number of pauses that were replayed one by one, the longest; the others were removed in
    /// groups.
    pub replayed_alone: u64,
    /// Parts of the cost, summed over the pauses that were replayed one by one.
    pub parts: PauseCostParts,
    /// The longest pauses, longest first, at most 20.
    pub longest: Vec<PauseCostReport>,
}

/// How well the steps are explained after the pauses are removed.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct StepEvidenceReport {
    /// Number of steps that were compared: those of the thread with the most steps.
    pub count: u64,
    /// Number of steps with at least one pause.
    pub with_pauses: u64,
    /// Median duration of all these steps in the replay without any pause, in ns.
    pub median_without_ns: u64,
    /// How much longer (negative: shorter) the steps with pauses remain than those without after
    /// the pauses are removed, in ns: the difference of the medians times the number of steps with
    /// pauses. `null` if all steps or none have pauses.
    pub unexplained_ns: Option<i64>,
}

/// What the pauses cost one device.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct DeviceCost {
    /// Index of the device in the process.
    pub device: u32,
    /// Measured: idle time between the first and the last operation, in ns.
    pub idle_ns: u64,
    /// Idle time without any pause, by replay, in ns.
    pub idle_without_ns: u64,
    /// Idle time that the pauses caused: `idle_ns` - `idle_without_ns`. Negative if the device
    /// would have been idle longer.
    pub idle_cost_ns: i64,
    /// Measured: idle time that coincides with a pause, in ns. Overlap is not cause: it omits what
    /// a pause delays later and includes time that would have been idle anyway.
    pub overlap_ns: u64,
}

/// The parts of the cost of pauses. `exposed_ns` + `deferred_ns` is the cost.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct PauseCostParts {
    /// Paid at once: additional idle time of the device, in ns, from the start of the pause to the
    /// first operation launched after it.
    pub exposed_ns: u64,
    /// Paid later, in ns: the pause drained the queue that would have hidden a later wait.
    pub deferred_ns: u64,
    /// The part of the pause that cost nothing, in ns; 0 if the cost exceeds the length.
    pub hidden_ns: u64,
}

/// What one pause cost, by replay without it, and its share in the cost of all pauses.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct PauseCostReport {
    /// Measured: start of the pause, in ns on the clock of the trace.
    pub start_ns: u64,
    /// Measured: start of the pause, in ns after the first call or operation of the process;
    /// negative if before it.
    pub after_start_ns: i64,
    /// Measured: thread id of the collecting thread.
    pub tid: u32,
    /// Measured: length of the pause, in ns.
    pub length_ns: u64,
    /// Measured: generation collected, 0 to 2 (full collection); `null` if unknown.
    pub generation: Option<u8>,
    /// How much earlier the work would have finished without this pause alone, in ns: exposed +
    /// deferred. Plus hidden it is the length, unless the pause cost more.
    pub cost_ns: u64,
    /// The exposed and deferred parts of the cost, and the part of the pause that cost nothing.
    pub parts: PauseCostParts,
    /// Share of this pause in the cost of all, in ns: how much earlier the work would have finished
    /// without it, with all earlier pauses already removed. The shares of all pauses of the process
    /// add up to its `cost_ns`.
    pub share_ns: u64,
}

/// What the pauses of processes with GPU times cost, by replay. Pauses at interpreter shutdown are
/// not included.
#[derive(Clone, Copy, Debug)]
pub struct GpuCost {
    /// Length of the run, in ns.
    pub run_ns: u64,
    /// How much longer the run was because of them, in ns.
    pub cost_ns: u64,
    /// Error of the cost in ns; `None` if unknown.
    pub error_ns: Option<u64>,
    /// Count and time of the pauses.
    pub pauses: PauseTotal,
    /// The longest of them, in ns.
    pub longest_ns: u64,
}

impl GpuCost {
    /// The cost as a share of the run.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        ratio(self.cost_ns, self.run_ns).unwrap_or(0.0)
    }
}
