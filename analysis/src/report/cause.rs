//! The part of a report about what pauses cost: by replay of the schedule without them.

use super::Basis;
use super::PauseTotal;
use schemars::JsonSchema;
use serde::Serialize;

/// What the pauses of one process cost it and its GPUs. The schedule of calls and operations is
/// rebuilt from the trace and replayed without the pauses; the cost is how much earlier everything
/// would have ended. All times in nanoseconds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CauseReport {
    /// Inferred: the replay assumes that nothing else would have changed.
    pub basis: Basis,
    /// Index of its trace in `traces`.
    pub trace: usize,
    /// Process.
    pub pid: u32,
    /// Rank in a distributed job, where known.
    pub rank: Option<u32>,
    /// Measured: from the first call or operation to the last end.
    pub span_ns: u64,
    /// Measured: all pauses of the process.
    pub pauses: PauseTotal,
    /// How much earlier the last operation or call would have ended without any pause.
    pub cost_ns: u64,
    /// `cost_ns` over `span_ns`.
    pub cost_ratio: f64,
    /// Standard error of `cost_ns` against a second run without pauses: two runs vary as much as the
    /// steps' durations without pauses vary around what the other steps predict. Absent where the
    /// trace has too few steps.
    pub standard_error_ns: Option<u64>,
    /// What that rests on.
    pub steps: Option<StepEvidenceReport>,
    /// Why there is no error bar, where there is none.
    pub no_error_bar: Option<String>,
    /// Per device.
    pub devices: Vec<DeviceCost>,
    /// Pauses that were replayed one by one, the longest; the others were removed in groups.
    pub replayed_alone: u64,
    /// Of those replayed one by one: their costs in parts, added.
    pub parts: PauseCostParts,
    /// The longest pauses, longest first, at most 20.
    pub longest: Vec<PauseCostReport>,
}

/// How well steps are explained once the pauses are removed.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct StepEvidenceReport {
    /// Steps.
    pub count: u64,
    /// Steps with a pause among them.
    pub with_pauses: u64,
    /// Median duration of a step without pauses.
    pub median_without_ns: u64,
    /// How much longer (negative: shorter) the steps with pauses remain than those without, by the
    /// medians, after the pauses are removed; all of them together. Absent where all or none have
    /// pauses.
    pub unexplained_ns: Option<i64>,
}

/// What pauses cost one device.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct DeviceCost {
    /// Its index.
    pub device: u32,
    /// Measured: time in which nothing ran on it, between its first begin and last end.
    pub idle_ns: u64,
    /// The same without any pause.
    pub idle_without_ns: u64,
    /// The difference: idle time that the pauses caused. Negative where the device would have
    /// been idle for longer.
    pub idle_cost_ns: i64,
    /// Measured: idle time that coincides with a pause. Overlap, not cause: it leaves out what a
    /// pause drained and is paid later, and counts what would have been idle anyway.
    pub overlap_ns: u64,
}

/// A cost in parts.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct PauseCostParts {
    /// Paid at once: the device was idle for so much longer between the begin of the pause and the
    /// first operation asked for after it.
    pub exposed_ns: u64,
    /// Paid later: the pause drained the queue that a later wait would have been hidden by.
    pub deferred_ns: u64,
    /// Not paid: the part of the length that cost nothing.
    pub hidden_ns: u64,
}

/// What one pause cost.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct PauseCostReport {
    /// Measured: begin, after the first call or operation of the process.
    pub after_start_ns: i64,
    /// Measured: its thread.
    pub tid: u32,
    /// Measured: length.
    pub length_ns: u64,
    /// Measured: generation, where known.
    pub generation: Option<u8>,
    /// How much earlier everything would have ended without this pause alone:
    /// exposed + deferred. With what is hidden that is the length, unless it cost more.
    pub cost_ns: u64,
    /// The cost in parts.
    pub parts: PauseCostParts,
    /// Its share of the cost of all: how much earlier everything would have ended without it, those
    /// before it removed already. Shares of all pauses, these and others, add up to `cost_ns`.
    pub share_ns: u64,
}
