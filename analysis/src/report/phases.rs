//! The part of a report about the phases of the run.

use super::{Basis, LinesReport, PauseTotal, StepSource};
use schemars::JsonSchema;
use serde::Serialize;

/// The run of one process, the one that the verdict is about, cut into start-up, training and exit:
/// of the processes with training steps the one with the most, otherwise the one that was paused
/// for longest.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PhasesReport {
    /// Basis of the times that separate the phases: measured by marks of training steps, otherwise
    /// inferred.
    pub basis: Basis,
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// Process id: on the host if gctrace recorded the process, otherwise as the trace states it.
    pub pid: u32,
    /// Rank in a distributed job; `null` if unknown.
    pub rank: Option<u32>,
    /// What the start and the end of training were recognized by.
    pub training_by: TrainingMark,
    /// Number of training steps, without those of the warm-up; `null` if no steps are known.
    pub steps: Option<u64>,
    /// Imports, setup, and the first steps while they last more than three times the median.
    pub start_up: PhaseReport,
    /// Training steps; without known steps the second half of the run, or what follows the imports.
    pub training: PhaseReport,
    /// Everything after training, and all collections of the finalizing interpreter.
    pub exit: PhaseReport,
    /// The lines that trigger the collections of training; `null` if none of its pauses has a
    /// stack.
    pub lines: Option<LinesReport>,
}

/// What marks the start and the end of training: steps, from the first one after the warm-up to the
/// end of the last, or what stands for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TrainingMark {
    /// Annotations `ProfilerStep#n`.
    ProfilerSteps,
    /// Calls of the function named by `--step-function`.
    FunctionCalls,
    /// Steps of a torch optimizer.
    OptimizerSteps,
    /// Backward passes.
    BackwardPasses,
    /// Batches of a torch `DataLoader`.
    Batches,
    /// Periods of kernel launches.
    PeriodicLaunches,
    /// No step is known: the second half of the run, up to the shutdown of the interpreter.
    SecondHalf,
    /// No step is known, and in the second half of the run most of the time of pauses with a stack
    /// was spent importing modules: what follows the last such pause.
    AfterImports,
}

impl From<StepSource> for TrainingMark {
    fn from(source: StepSource) -> Self {
        match source {
            StepSource::ProfilerStep => Self::ProfilerSteps,
            StepSource::Function => Self::FunctionCalls,
            StepSource::Optimizer => Self::OptimizerSteps,
            StepSource::BackwardPass => Self::BackwardPasses,
            StepSource::DataLoader => Self::Batches,
            StepSource::PeriodicLaunches => Self::PeriodicLaunches,
        }
    }
}

/// The collections of one phase. A pause belongs to the phase that it starts in.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PhaseReport {
    /// Start of the phase after the start of the trace, in ns.
    pub after_start_ns: u64,
    /// Length of the phase, in ns.
    pub duration_ns: u64,
    /// Its pauses: count and summed time.
    pub pauses: PauseTotal,
    /// Time within the phase during which the collector ran, in ns; overlapping pauses count once.
    pub paused_ns: u64,
    /// `paused_ns` / `duration_ns`; `null` for a phase without length.
    pub paused_ratio: Option<f64>,
    /// Its longest pause, in ns; `null` without pauses.
    pub longest_ns: Option<u64>,
    /// `paused_ns` by time, in 24 equal parts of the phase, in ns; empty without pauses.
    pub over_time_ns: Vec<u64>,
}
