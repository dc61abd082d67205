//! The part of a report about the phases of the run.

use super::{Basis, ByCause, LinesReport, PauseTotal, StepSource};
use crate::time::{add_to, sum};
use gctrace_stats::{ratio, scaled};
use serde::Serialize;

/// The run of the process in the verdict, cut into start-up, training and exit: the worst of the processes with
/// training steps, or of all if none has steps.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Number of processes compared to find the worst, with itself: processes with training steps, at least half as
    /// many as the process with the most; without steps the ranks, or all that collected.
    pub among: u64,
    /// Whether an interpreter forked the process: it began with the heap of its parent.
    pub forked: bool,
    /// All processes that the same one forked, with itself.
    #[serde(skip)]
    pub(crate) workers: Workers,
    /// The phase that the verdict is about.
    pub judged: JudgedPhase,
    /// The mark that the start and the end of training were recognized by.
    pub training_by: TrainingMark,
    /// Number of training steps, without the warm-up's; `null` if no steps are known.
    pub steps: Option<u64>,
    /// Imports, setup, and the first steps while they last more than three times the median; without known steps the
    /// imports, or the time before the first fork of a worker, or until the loop of a service runs.
    pub start_up: PhaseReport,
    /// Training steps; without known steps the time after the start-up, up to the shutdown of the interpreter.
    pub training: PhaseReport,
    /// Resident memory when its start-up ended, in bytes: the last reading until then. `null` if there is none.
    pub start_up_bytes: Option<u64>,
    /// Everything after training, and all collections of the finalizing interpreter.
    pub exit: PhaseReport,
    /// The lines that trigger the collections of the judged phase, by CPU time where it is known; `null` if none
    /// of its pauses has a stack.
    pub lines: Option<LinesReport>,
}

/// Workers of one parent: what one of them does, the others repeat.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Workers {
    /// Number of them; 0 for a process that is no worker.
    pub(crate) count: u64,
    /// CPU time of their collections in [`PhasesReport::training`], in ns.
    pub(crate) collected_ns: u64,
    /// Length of that phase in all of them, without waits for a CPU, in ns.
    pub(crate) unhindered_ns: u64,
}

impl Workers {
    pub(crate) fn add(&mut self, training: &PhaseReport) {
        self.count += 1;
        add_to(&mut self.collected_ns, training.collected_ns());
        add_to(&mut self.unhindered_ns, training.unhindered_ns());
    }
}

impl PhasesReport {
    /// The share of the whole recorded run that its start-up was paused for; `None` for a run without
    /// length.
    pub fn start_up_ratio(&self) -> Option<f64> {
        ratio(self.start_up.collected_ns(), self.unhindered_ns())
    }

    /// Length of the recorded run as on an idle machine, in ns: without waits for a CPU.
    pub fn unhindered_ns(&self) -> u64 {
        sum([&self.start_up, &self.training, &self.exit].map(PhaseReport::unhindered_ns))
    }
}

/// The mark of the start and the end of training: steps, from the first one after the warm-up to the end of the last,
/// or a substitute for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// No step is known: the run. Where its start-up ends is unknown, or it was not recorded.
    WholeRun,
    /// No step is known, and the first pauses with a stack were in imports: what follows them.
    AfterImports,
    /// No step is known, and the process forked workers: what follows the first fork.
    AfterFork,
    /// The loop of a service: what follows its first wait for a request.
    Loop,
}

/// The phase that a verdict is about: the worse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum JudgedPhase {
    /// Paid once per start: judged by its pauses' share of the whole run.
    StartUp,
    /// Paid as long as the program runs: judged by their share of the phase.
    Training,
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
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseReport {
    /// Start of the phase after the start of the trace, in ns.
    pub after_start_ns: u64,
    /// Length of the phase, in ns.
    pub duration_ns: u64,
    /// Its pauses: count and summed time.
    pub pauses: PauseTotal,
    /// The same pauses by cause, with CPU time of the collecting thread, wall time where that is unknown. Of
    /// unknown reason: explicit where the thresholds cannot have started them, else automatic.
    pub causes: ByCause,
    /// Automatic collections of generation 0.
    pub young: u64,
    /// Objects that its automatic collections freed; `null` if unknown.
    pub freed_objects: Option<u64>,
    /// Automatic collections that freed no object; their time as in `causes`.
    pub freed_nothing: PauseTotal,
    /// Time within the phase with the collector running, in ns; overlapping pauses count once.
    pub paused_ns: u64,
    /// CPU time of its pauses, in ns. For a pause with unknown CPU time, the same share of its length as for
    /// the others. `null` if it is unknown for nine tenths of the time of all pauses.
    pub paused_cpu_ns: Option<u64>,
    /// Time of the phase with the collecting threads waiting for a CPU, in ns; `null` if unknown.
    pub cpu_wait_ns: Option<u64>,
    /// `paused_cpu_ns`, or `paused_ns` - `cpu_wait_ns` if that is more, of `duration_ns` - `cpu_wait_ns`: the same on
    /// a loaded machine. If one of these is unknown, `paused_ns` / `duration_ns`: this assumes that the phase waits
    /// for a CPU as its pauses do. `null` for a phase without length.
    pub paused_ratio: Option<f64>,
    /// Its longest pause, in ns; `null` without pauses.
    pub longest_ns: Option<u64>,
    /// The CPU time of the pause with the most, in ns; `null` where `paused_cpu_ns` is, or without pauses.
    pub longest_cpu_ns: Option<u64>,
    /// `paused_ns` by time, in 24 equal parts of the phase, in ns; empty without pauses.
    pub over_time_ns: Vec<u64>,
}

impl PhaseReport {
    /// From this share of their time on that pauses wait for a CPU the machine is overloaded.
    const OVERLOADED: f64 = 0.5;
    /// From this number of pauses on they repeat. Fewer are no share, however long they are: whether another
    /// follows, and when, is unknown.
    pub(crate) const FEWEST_PAUSES: u64 = 3;

    /// Time of its pauses without waits for a CPU, in ns; wall time where that is unknown.
    pub fn collected_ns(&self) -> u64 {
        self.without_waits(self.paused_cpu_ns, self.paused_ns)
    }

    /// CPU time, or more of it if the threads waited for a CPU for less than the rest: the remainder waits for memory
    /// (swap), caused by a collection.
    fn without_waits(&self, cpu_ns: Option<u64>, wall_ns: u64) -> u64 {
        match (cpu_ns, self.cpu_wait_ns) {
            (Some(cpu_ns), Some(wait_ns)) => cpu_ns.max(wall_ns.saturating_sub(wait_ns)),
            (Some(cpu_ns), None) => cpu_ns,
            (None, _) => wall_ns,
        }
    }

    /// Its length as on an idle machine, in ns: without waits for a CPU.
    pub fn unhindered_ns(&self) -> u64 {
        match (self.paused_cpu_ns, self.cpu_wait_ns) {
            (Some(_), Some(wait_ns)) => self.duration_ns.saturating_sub(wait_ns),
            (Some(cpu_ns), None) if self.paused_ns > 0 => {
                scaled(self.duration_ns, cpu_ns.min(self.paused_ns), self.paused_ns)
            }
            _ => self.duration_ns,
        }
    }

    /// The same of the longest pause; `None` without pauses.
    pub fn longest_collection_ns(&self) -> Option<u64> {
        self.longest_ns.map(|wall_ns| self.without_waits(self.longest_cpu_ns, wall_ns))
    }

    /// The share of its pauses' time that they waited for a CPU, if the machine is overloaded.
    pub fn overload(&self) -> Option<f64> {
        self.paused_cpu_ns?;
        let waited_ns = self.paused_ns.saturating_sub(self.collected_ns());
        let share = ratio(waited_ns, self.paused_ns)?;
        if share >= Self::OVERLOADED { Some(share) } else { None }
    }
}

/// The training phase of one run of one process, in parts of consecutive steps (25, fewer in short
/// runs), or of equal time if no steps are known. Steps that do not fill a part are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainingSeries {
    /// The mark that the steps were recognized by.
    pub training_by: TrainingMark,
    /// The parts, by time; at least one.
    pub parts: Vec<TrainingPart>,
    /// Whether a full collection found less than half of the heap that the one before it had left,
    /// without having freed it: objects were frozen. `None` if unknown, as with fewer than two full
    /// collections.
    pub frozen: Option<bool>,
}

/// A part of the training phase. A pause belongs to the part that it starts in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainingPart {
    /// Number of steps; 0 if no steps are known.
    pub steps: u64,
    /// Time of the steps, otherwise the length of the part, in ns.
    pub duration_ns: u64,
    /// CPU time of the steps' thread in them, in ns; `None` if it is unknown for one step, or no steps are known.
    pub cpu_ns: Option<u64>,
    /// Time of collections within, in ns; overlapping ones count once.
    pub paused_ns: u64,
    /// CPU time of the pauses that start in it, in ns; `None` if it is unknown for one pause.
    pub paused_cpu_ns: Option<u64>,
    /// Pauses by generation: 0, 1, 2, unknown.
    pub by_generation: [PauseTotal; 4],
}

impl TrainingSeries {
    /// Number of steps in the parts; 0 if no steps are known.
    pub fn steps(&self) -> u64 {
        self.parts.iter().map(|part| part.steps).sum()
    }
}
