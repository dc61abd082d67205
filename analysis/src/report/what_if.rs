//! The part of a report about predictions for other settings of the collector.

use super::Basis;
use schemars::JsonSchema;
use serde::Serialize;

/// The prediction for one change of the collector's settings. Each unknown is assumed once
/// pessimistically and once optimistically: the truth should lie between the bounds if the program
/// behaves as recorded.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WhatIf {
    /// The name of the predicted change.
    pub id: ScenarioId,
    /// The change as text, for people, for example `gc.disable()`; its wording may change.
    pub change: String,
    /// Always predicted: the change has not been made.
    pub basis: Basis,
    /// What the prediction is made from.
    pub method: PredictionMethod,
    /// Pause time saved, in ns, summed over processes; negative: pause time added.
    pub pause_time_saved_ns: PredictedRange,
    /// Time of the run saved, in ns; negative: the run becomes longer.
    pub saved_ns: Saving,
    /// Length of the run with the change, from the first start to the last end over all ranks;
    /// `null` unless `method` is `replay`.
    pub run: Option<PredictedLength>,
    /// Mean length of a training step with the change; `null` unless `method` is `replay` and steps
    /// are known.
    pub step: Option<PredictedLength>,
    /// Error of the replay in `saved_ns`, `run` and `step`, in ns, in proportion to the changed
    /// pause time: two standard errors of the cost of all pauses, or the unexplained part of the
    /// steps with pauses if that is larger (`gpu.cause`). The intervals include it. `null` if
    /// unknown.
    pub replay_error_ns: Option<u64>,
    /// For `planned`: number of steps between collections; otherwise `null`.
    pub every_steps: Option<u64>,
    /// For `planned`: why that number, as text; otherwise `null`.
    pub why_every: Option<String>,
    /// Garbage that would accumulate between collections, in the process with the most; `null` for
    /// `freeze` and `explicit`, which hardly change it, and if the trace does not contain what
    /// collections freed.
    pub garbage: Option<Garbage>,
    /// Assumptions of the prediction, as text.
    pub assumes: String,
    /// What can go wrong, as text.
    pub risk: String,
}

/// What a prediction is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PredictionMethod {
    /// The run was replayed with changed pauses, so pauses hidden behind GPU work save nothing.
    Replay,
    /// GPU times are unknown, so the pause time saved is an upper bound of the time saved.
    PauseTime,
}

/// A change of the collector's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// `gc.freeze()`.
    Freeze {
        /// After the first step, rather than after a tenth of the run.
        after_step: bool,
        /// Full collections that may run with it, and those that ran, where the former are more
        /// than twice the latter.
        more_frequent: Option<(u64, u64)>,
    },
    /// `gc.set_threshold()` with these thresholds.
    Thresholds([i32; 3]),
    /// `gc.disable()`, and a full collection between steps.
    Planned(PlannedInterval),
    /// `gc.disable()`.
    Disable,
    /// Without the program's own `gc.collect()` calls.
    Explicit,
}

impl Change {
    /// The name of the change, as reports have it.
    #[must_use]
    pub fn id(self) -> ScenarioId {
        match self {
            Self::Freeze { .. } => ScenarioId::Freeze,
            Self::Thresholds(_) => ScenarioId::Thresholds,
            Self::Planned(_) => ScenarioId::Planned,
            Self::Disable => ScenarioId::Disable,
            Self::Explicit => ScenarioId::Explicit,
        }
    }
}

/// The names of the predicted changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScenarioId {
    /// `gc.freeze()` after setup.
    Freeze,
    /// A threshold 0 ten times as high.
    Thresholds,
    /// No automatic collections, and a full one every few steps.
    Planned,
    /// `gc.disable()`.
    Disable,
    /// Without the program's own `gc.collect()` calls.
    Explicit,
}

/// How often planned collections run, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedInterval {
    /// Number of steps between two of them.
    pub steps: u64,
    /// Length of a full collection, in ns, at most.
    pub length_ns: u64,
    /// Mean length of a step, in ns.
    pub step_ns: u64,
    /// Number of steps after which they cost little; more than `steps` if garbage limits these.
    pub by_cost: u64,
}

impl PlannedInterval {
    /// Objects of garbage that may accumulate: some hundred megabytes at an average size, and about
    /// as many as a full collection frees in a tenth of a second.
    pub const MOST_OBJECTS: u64 = 1_000_000;
    /// Limit of the garbage in device memory, as a percentage of the memory that PyTorch reserved.
    pub const MOST_DEVICE_PERCENT: u64 = 5;
}

/// A range in ns, from the pessimistic to the optimistic prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PredictedRange {
    /// Lower bound in ns, under pessimistic assumptions.
    pub at_least_ns: i64,
    /// Upper bound in ns, under optimistic assumptions.
    pub at_most_ns: i64,
}

/// Bounds of the time of the run that a change saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Saving {
    /// Lower bound in ns; `null` if only an upper bound is known.
    pub at_least_ns: Option<i64>,
    /// Upper bound in ns; negative if the run becomes longer in any case.
    pub at_most_ns: i64,
}

/// A measured length and its predicted bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PredictedLength {
    /// Length in this recording, in ns.
    pub measured_ns: u64,
    /// Lower bound of the length with the change, in ns.
    pub at_least_ns: u64,
    /// Upper bound of the length with the change, in ns.
    pub at_most_ns: u64,
}

/// Cyclic garbage that would accumulate without a collection. Inferred from what collections freed
/// in this recording, spread evenly over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Garbage {
    /// Always inferred, from what collections freed in this recording.
    pub basis: Basis,
    /// Time over which it accumulates, in ns.
    pub over_ns: u64,
    /// Number of objects that would accumulate, in proportion to what automatic collections freed.
    pub objects: u64,
    /// Memory of these objects in pymalloc arenas, in bytes, if they are of the mean object size of
    /// the heap; `null` if that is unknown.
    pub host_bytes: Option<u64>,
    /// Device memory held by this garbage, in bytes, judged by what pauses returned to PyTorch's
    /// allocator; `null` if that was not recorded.
    pub device_bytes: Option<u64>,
}
