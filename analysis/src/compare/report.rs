//! The comparison as data. Owns the types behind the schema `gctrace.comparison/1`
//! (docs/report-schema.md).

use crate::figure::{Nature, Unit};
use crate::report::{Basis, IdleCause, Location, TrainingMark};
use serde::Serialize;

/// Name and version of the schema, the value of `schema` in a comparison.
pub const SCHEMA: &str = "gctrace.comparison/1";

/// The comparison of runs before and after a change (`gctrace compare`). `null` means unknown or
/// not recorded, never 0.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// Name and version of this schema: always `gctrace.comparison/1`.
    pub schema: String,
    /// Version of gctrace that made the comparison.
    pub gctrace: String,
    /// The one-sentence answer.
    pub verdict: ComparisonVerdict,
    /// The runs before the change, in the order given; at least one.
    pub before: Vec<ComparedRun>,
    /// The runs after the change, in the order given; at least one.
    pub after: Vec<ComparedRun>,
    /// Facts that differ between the sides.
    pub changed: Vec<FactChange>,
    /// Facts that are known of all runs and are the same.
    pub unchanged: Vec<FactId>,
    /// Facts that are unknown of at least one run.
    pub unknown: Vec<FactId>,
    /// Unit that rates are divided by: training steps if they are known of all runs, otherwise seconds; whole runs
    /// where their phases are not the same part of the program.
    pub per: RateUnit,
    /// The figures, in the order of the text.
    pub figures: Vec<FigureComparison>,
    /// Own lines with collections that took more or less time, the largest difference first, at most 20.
    pub lines: Vec<LineComparison>,
    /// Why the devices were idle, the largest difference first. Empty if a run has no idle ledger.
    pub idle: Vec<IdleComparison>,
    /// What limits the comparison.
    pub notes: Vec<ComparisonNote>,
}

/// The answer to whether the change helped.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComparisonVerdict {
    /// The answer, for programs.
    pub outcome: Outcome,
    /// The figure that it rests on.
    pub figure: FigureId,
    /// The answer as text, for people; its wording may change.
    pub sentence: String,
    /// Always inferred: runs differ by chance as well.
    pub basis: Basis,
}

/// Whether the figure of the verdict got better: its 95 % interval excludes no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is lower after the change.
    Better,
    /// It is higher after the change.
    Worse,
    /// The runs show no difference.
    NoDifference,
    /// The figure or its interval is unknown, as with one run on a side.
    Unknown,
}

/// One run of a side.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComparedRun {
    /// Trace files of the run.
    pub files: Vec<String>,
    /// Start of the recording, in ns of Unix time; `null` if unknown.
    pub started_unix_ns: Option<u64>,
    /// Git commit of the command's working directory; `null` if unknown.
    pub git_commit: Option<String>,
    /// Process compared: the subject of a report's verdict; `null` if none collected.
    pub pid: Option<u32>,
    /// What training was recognized by; `null` if unknown.
    pub training_by: Option<TrainingMark>,
    /// Number of training steps compared; `null` if no steps are known.
    pub steps: Option<u64>,
    /// Time compared, in ns: of these steps, of the second half of the run, or of the whole run.
    pub training_ns: u64,
    /// Number of parts that it is cut into. The tests derive the noise within the run from these.
    pub parts: u64,
    /// Mean length of its steps, in ns; `null` if no steps are known.
    pub step_mean_ns: Option<f64>,
    /// Standard deviation of the parts' mean step lengths, in ns; `null` with fewer than two parts.
    pub step_sd_ns: Option<f64>,
    /// Share of this time with the collector running, 0 to 1; `null` if unknown.
    pub gc_ratio: Option<f64>,
}

/// A fact about a run that its figures may depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FactId {
    /// Interpreter: its version, and `free-threaded` if it is.
    Interpreter,
    /// Version of PyTorch.
    Torch,
    /// Version of the GPU driver.
    Driver,
    /// Names of the GPUs.
    Gpus,
    /// Host name.
    Host,
    /// Kernel release.
    Kernel,
    /// Number of logical CPUs.
    Cpus,
    /// `gc.get_threshold()` as last recorded.
    Thresholds,
    /// `gc.isenabled()` as last recorded.
    Enabled,
    /// Whether `gc.freeze()` was seen, by the size of the heap.
    Frozen,
    /// Command line.
    Command,
    /// Git commit of the command's working directory.
    Commit,
    /// Whether tracked files there differed from the index.
    Modified,
    /// Source of collections (`--mode`).
    Mode,
    /// Version of gctrace that recorded the run.
    Gctrace,
}

/// A fact that differs between the sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FactChange {
    /// The fact.
    pub fact: FactId,
    /// Its distinct values before the change, usually one.
    pub before: Vec<String>,
    /// Its distinct values after the change, usually one.
    pub after: Vec<String>,
}

/// Unit that rates are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RateUnit {
    /// Per training step.
    Step,
    /// Per second of the second half of the run.
    Second,
    /// Per run, from its start to its end: its phases are not the same on both sides.
    Run,
}

/// A figure that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FigureId {
    /// Mean length of a training step, in ns.
    StepTime,
    /// CPU time per training step of the thread that marks the steps (CLOCK_THREAD_CPUTIME_ID), in ns: other programs
    /// on the machine change it less than the length of the steps. `null` if the CPU time of one step is unknown, as
    /// in traces of older versions and of other tools.
    StepCpuTime,
    /// Share of training, or of the whole run, with the collector running, 0 to 1.
    GcShare,
    /// CPU time of the pauses per step, second or run, in ns: other programs on the machine change it less than the
    /// time of the pauses. `null` if the CPU time of one pause is unknown, as in-process.
    GcCpuTime,
    /// What the pauses cost the run by replay, as a share of it, 0 to 1.
    GpuCost,
    /// Number of pauses of `generation` per step, second or run.
    Pauses,
    /// Time of pauses of `generation` per step, second or run, in ns.
    PauseTime,
    /// Longest pause in training, or in the whole run, in ns.
    Longest,
    /// 99 % of the turns of the busiest loop are not longer, in ns.
    TurnP99,
    /// Longest turn of that loop, in ns.
    TurnLongest,
    /// What an arrival at a random moment waits for that loop in 99 % of the cases at most, in ns.
    ArrivalP99,
    /// Share of the time of pauses with their thread off the CPU, 0 to 1.
    OffCpuShare,
    /// Most objects in the heap after a full collection.
    Objects,
    /// Growth of the heap between the first and the last full collection, in objects per second.
    HeapGrowth,
    /// Most memory that pymalloc mapped, in bytes.
    Arenas,
}

impl FigureId {
    /// Its name in a table, its unit, and whether it is a sum that rates divide.
    ///
    /// `{generation}` stands for the generation collected, `{whole}` for the whole of a share, `{per}` for the unit
    /// that a rate divides by.
    pub const fn declared(self) -> (&'static str, Unit, Nature) {
        match self {
            Self::StepTime => ("step time", Unit::Ns, Nature::Total),
            Self::StepCpuTime => ("CPU time per step", Unit::Ns, Nature::Total),
            Self::GcShare => ("GC share of {whole}", Unit::Ratio, Nature::Level),
            Self::GcCpuTime => ("GC CPU time per {per}", Unit::Ns, Nature::Total),
            Self::GpuCost => ("GC cost by replay", Unit::Ratio, Nature::Level),
            Self::Pauses => ("{generation} pauses per {per}", Unit::Count, Nature::Total),
            Self::PauseTime => ("{generation} time per {per}", Unit::Ns, Nature::Total),
            Self::Longest => ("longest pause", Unit::Ns, Nature::Lasting),
            Self::TurnP99 => ("turns, p99", Unit::Ns, Nature::Level),
            Self::TurnLongest => ("longest turn", Unit::Ns, Nature::Lasting),
            Self::ArrivalP99 => ("arrivals wait, p99", Unit::Ns, Nature::Level),
            Self::OffCpuShare => ("pauses off CPU", Unit::Ratio, Nature::Level),
            Self::Objects => ("heap, objects", Unit::Count, Nature::Lasting),
            Self::HeapGrowth => ("heap growth, /s", Unit::Count, Nature::Level),
            Self::Arenas => ("arenas of pymalloc", Unit::Bytes, Nature::Lasting),
        }
    }
}

/// A figure before and after the change. The values of a side are means over its runs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FigureComparison {
    /// The figure; it implies the unit.
    pub figure: FigureId,
    /// Generation collected; `null` for other figures and for pauses of unknown generation.
    pub generation: Option<u8>,
    /// Basis of `before` and `after`. Differences, intervals and p are inferred.
    pub basis: Basis,
    /// The figure before the change; `null` if unknown.
    pub before: Option<f64>,
    /// The figure after the change; `null` if unknown.
    pub after: Option<f64>,
    /// `after` - `before`, in the unit of the figure; `null` if either is unknown.
    pub difference: Option<Interval>,
    /// `after` / `before` - 1; `null` if either is unknown or `before` is 0. If `before` may be 0 by chance, its
    /// interval is the interval of `difference`, divided by `before`.
    pub change_ratio: Option<Interval>,
    /// Two-sided p of no difference, 0 to 1, of this figure alone, over the runs (Welch). `null`
    /// without a test.
    pub p: Option<f64>,
}

/// A difference with its 95 % confidence interval; only several runs on each side show the interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interval {
    /// The difference.
    pub value: f64,
    /// Lower end of the interval; `null` without one.
    pub low: Option<f64>,
    /// Upper end of the interval; `null` without one.
    pub high: Option<f64>,
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LineChange {
    /// No run before the change lists it.
    Appeared,
    /// No run after the change lists it.
    Went,
    /// It has another number in the same function.
    Moved,
    /// It is listed on both sides.
    Same,
}

/// The collections that one own line triggered in training, before and after the change.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LineComparison {
    /// The line; if it moved, as after the change.
    pub location: Location,
    /// Its number before the change; `null` if it is not listed there or unknown.
    pub before_line: Option<u32>,
    /// What became of it.
    pub change: LineChange,
    /// Time of its collections before the change, in ns per step or second (`per`), mean over the
    /// runs; 0 if it is not listed.
    pub before_ns: f64,
    /// The same after the change.
    pub after_ns: f64,
}

/// The idle time that one cause has, before and after the change, mean over the runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IdleComparison {
    /// Why devices were idle.
    pub cause: IdleCause,
    /// Its share of the time of all devices from their first to their last operation before the change,
    /// 0 to 1 (inferred). What did not change is a larger share of a shorter run.
    pub before_ratio: f64,
    /// The same after the change.
    pub after_ratio: f64,
    /// Its mean idle time per training step before the change, in ns, summed over the devices of a process
    /// (inferred). What did not change stays the same, however long the run is. `null` if no steps are
    /// known of a process with a device.
    pub before_step_ns: Option<f64>,
    /// The same after the change.
    pub after_step_ns: Option<f64>,
}

/// What limits a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ComparisonNote {
    /// A side has one run: the noise between runs is unknown, so there are no intervals, no p and no
    /// verdict.
    OneRun,
    /// No training steps are known of the runs: rates are per second, and step time is not compared.
    NoSteps,
    /// Training was recognized by different marks, or in recordings that do not see the same: whole runs are
    /// compared.
    DifferentPhases,
    /// A run is too short for a test: fewer than three parts of training.
    TooShort,
    /// A run has no known training phase.
    NoTraining,
    /// A trace is incomplete: cut off, damaged, or with lost events.
    Incomplete,
    /// The commands differ.
    DifferentCommands,
}
