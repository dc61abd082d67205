//! The part of a report about what other settings of the collector would do.

use super::Basis;
use schemars::JsonSchema;
use serde::Serialize;

/// One change of the collector's settings, and what it is expected to do. What is not known is taken once for the worse
/// and once for the better: the truth should lie between, if the program behaves as recorded.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WhatIf {
    /// `freeze`, `thresholds`, `planned`, `disable` or `explicit` (the program's own calls left out).
    pub id: String,
    /// The change, in words.
    pub change: String,
    /// Always predicted.
    pub basis: Basis,
    /// `replay`: the run was replayed with its pauses changed, so what is hidden behind work of the GPU saves nothing.
    /// `pause-time`: the GPU's times are not known, so that the pause time saved is an upper bound of the time saved.
    pub method: String,
    /// Pause time less than in this recording, processes added; negative: more.
    pub pause_time_less_ns: PredictedRange,
    /// The run is shorter by so much; negative: longer. `at_least_ns` is absent where only an upper bound is known.
    pub saved_ns: Saving,
    /// Length of the run, of all ranks together from the first begin to the last end; only by replay.
    pub run: Option<PredictedLength>,
    /// Mean length of a training step; only by replay, and where steps are known.
    pub step: Option<PredictedLength>,
    /// Of `saved_ns`, `run` and `step`: how far the replay itself may be off, in proportion to the pause time that changes:
    /// two standard errors of the cost of all pauses, or what steps with pauses leave unexplained if that is more
    /// (`gpu.cause`). It is in their intervals. Absent where that is not known.
    pub replay_error_ns: Option<u64>,
    /// For `planned`: a collection every so many steps.
    pub every_steps: Option<u64>,
    /// For `planned`: why so many.
    pub why_every: Option<String>,
    /// What would gather between collections in the process where most does; absent for `freeze` and `explicit`, which
    /// change little of it, and where the trace does not tell what collections freed.
    pub garbage: Option<Garbage>,
    /// What the prediction takes for granted.
    pub assumes: String,
    /// What can go wrong.
    pub risk: String,
}

/// From the worse to the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PredictedRange {
    /// What is not known taken for the worse.
    pub at_least_ns: i64,
    /// What is not known taken for the better.
    pub at_most_ns: i64,
}

/// Time saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Saving {
    /// At least; absent where only an upper bound is known.
    pub at_least_ns: Option<i64>,
    /// At most.
    pub at_most_ns: i64,
}

/// A length as it was, and as it would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PredictedLength {
    /// In this recording.
    pub measured_ns: u64,
    /// With the change, at least.
    pub at_least_ns: u64,
    /// With the change, at most.
    pub at_most_ns: u64,
}

/// Garbage in cycles that no collection frees any more for some time. Inferred: what collections freed in this
/// recording, spread evenly over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Garbage {
    /// Inferred.
    pub basis: Basis,
    /// In so much time.
    pub over_ns: u64,
    /// Objects.
    pub objects: u64,
    /// Memory of the interpreter's allocator that these objects take, if they are as large as the mean object of
    /// the heap; absent where that is not known.
    pub host_bytes: Option<u64>,
    /// Device memory that such garbage holds, by what pauses gave back to torch's allocator; absent where that
    /// was not recorded.
    pub device_bytes: Option<u64>,
}
