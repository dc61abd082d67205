//! The part of a report about training steps.

use super::{Basis, IdlePart, NoComparison};
use gctrace_event::NamedMarker;
use gctrace_stats::bootstrap;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// Training steps: annotations `ProfilerStep#n` of the PyTorch profiler, or the time from one mark of
/// a step to the next.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StepsReport {
    /// Basis of lengths: measured, or inferred if any steps are periods of launches. Comparisons
    /// have their own.
    pub basis: Basis,
    /// Processes with steps, the most steps first, at most 64.
    pub processes: Vec<ProcessSteps>,
    /// Number of processes with steps that are not listed.
    pub processes_left_out: u64,
}

/// The steps of one process: those of its thread with the most steps.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProcessSteps {
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// Process id: on the host if gctrace recorded the process, otherwise as the trace states it.
    pub pid: u32,
    /// Rank in a distributed job; `null` if unknown.
    pub rank: Option<u32>,
    /// Id of the thread that ran the steps.
    pub tid: u32,
    /// What delimits the steps.
    pub source: StepSource,
    /// Number of steps of the thread `tid`, which the other figures are about.
    pub count: u64,
    /// Number of steps of other threads, which these figures omit.
    pub left_out: u64,
    /// Distribution of the lengths of these steps.
    pub length: StepLengths,
    /// Time of collections within the steps, of any thread of the process, overlapping ones once,
    /// in ns. `null` if the trace would not show collections.
    pub gc_ns: Option<u64>,
    /// `gc_ns` as a share of the time of all steps, 0 to 1; `null` as `gc_ns`.
    pub gc_ratio: Option<f64>,
    /// Number of steps with a collection.
    pub with_gc: u64,
    /// Idle time of the process's devices within the steps, in ns, summed over devices; `null`
    /// without GPU times.
    pub gpu_idle_ns: Option<u64>,
    /// `gpu_idle_ns` by cause, as in [`super::IdleLedger`] (inferred), the longest first; `null` where
    /// there is no ledger.
    pub gpu_idle_causes: Option<Vec<IdlePart>>,
    /// How full collections were recognized: by their generation or their length.
    pub full_by: FullBy,
    /// Number of full collections in the steps.
    pub full_collections: u64,
    /// Steps with a full collection compared with steps without one.
    pub with_full: StepComparison,
    /// Steps that follow one with a full collection compared with all others, both without a full
    /// collection of their own and without the warm-up: after a full collection caches are cold.
    pub after_full: MedianComparison,
    /// The longest steps, longest first, at most ten.
    pub longest: Vec<StepReport>,
}

/// What delimits a step, in order of preference: the first that a process has any steps by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StepSource {
    /// An annotation `ProfilerStep#n`.
    ProfilerStep,
    /// From the start of one call of the function named by `--step-function` to that of the next.
    Function,
    /// From the end of one step of a torch optimizer to that of the next of the same class.
    Optimizer,
    /// From the start of one backward pass to that of the next on the same thread.
    BackwardPass,
    /// From one request for the next batch of a torch `DataLoader` to the next.
    DataLoader,
    /// From one launch of a kernel that recurs at constant distance to the next.
    PeriodicLaunches,
}

impl StepSource {
    /// What a step is, in a word: the annotation, or the mark that delimits it.
    #[must_use]
    pub fn basis(self) -> &'static str {
        match self {
            Self::ProfilerStep => "ProfilerStep",
            Self::Function => "call of the step function",
            Self::Optimizer => "optimizer step",
            Self::BackwardPass => "backward pass",
            Self::DataLoader => "batch of the DataLoader",
            Self::PeriodicLaunches => "period of launches",
        }
    }
}

impl From<&NamedMarker> for StepSource {
    fn from(marker: &NamedMarker) -> Self {
        match marker {
            NamedMarker::Function(_) => Self::Function,
            NamedMarker::Optimizer(_) => Self::Optimizer,
            NamedMarker::Backward => Self::BackwardPass,
            NamedMarker::DataLoader(_) => Self::DataLoader,
        }
    }
}

/// How full collections were recognized, given what the trace contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FullBy {
    /// By their generation.
    Generation,
    /// By a pause of 1 ms or more: the trace contains no generations.
    Length,
    /// By their generation, where the trace contains it, otherwise by their length.
    GenerationOrLength,
}

/// A distribution of lengths. Percentiles are by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct StepLengths {
    /// Sum of the lengths, in ns.
    pub total_ns: u64,
    /// Mean length of a step, in ns.
    pub mean_ns: u64,
    /// Length of the shortest step, in ns.
    pub min_ns: u64,
    /// Median of the lengths, in ns.
    pub p50_ns: u64,
    /// 90th percentile of the lengths, in ns.
    pub p90_ns: u64,
    /// 99th percentile of the lengths, in ns.
    pub p99_ns: u64,
    /// Length of the longest step, in ns.
    pub max_ns: u64,
    /// Largest relative error of the percentiles; 0 if they are exact (up to 4,096 steps).
    pub percentile_error_ratio: f64,
}

/// A comparison of the mean lengths of two kinds of steps.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepComparison {
    /// Basis of `difference`: inferred, assuming that steps otherwise vary independently. The
    /// difference need not be caused by the collections alone.
    pub basis: Basis,
    /// Number of steps of the kind in question (with a full collection, or after one).
    pub count: u64,
    /// Their mean length, in ns; `null` if there are none.
    pub mean_ns: Option<u64>,
    /// Number of steps to compare with (without a full collection, or before one).
    pub other_count: u64,
    /// Their mean length, in ns; `null` if there are none.
    pub other_mean_ns: Option<u64>,
    /// How much longer the former are; `null` if there are too few steps.
    pub difference: Option<StepDifference>,
    /// Why `difference` is `null`, as text.
    pub missing: Option<NoComparison>,
}

impl StepComparison {
    /// Fewer steps of a kind than this are not compared.
    pub const FEWEST: usize = bootstrap::FEWEST;
}

/// A comparison of the median lengths of two kinds of steps.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MedianComparison {
    /// Basis of `difference`: inferred, as in [`StepComparison`].
    pub basis: Basis,
    /// Number of steps of the kind in question.
    pub count: u64,
    /// Their median length, in ns; `null` if there are none.
    pub median_ns: Option<u64>,
    /// Number of steps to compare with.
    pub other_count: u64,
    /// Their median length, in ns; `null` if there are none.
    pub other_median_ns: Option<u64>,
    /// How much longer the former are, by their medians; `null` if there are too few steps.
    pub difference: Option<MedianDifference>,
    /// Why `difference` is `null`, as text.
    pub missing: Option<NoComparison>,
}

/// A difference of medians with its 95 % confidence interval by bootstrap, as [`StepDifference`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MedianDifference {
    /// Difference of the medians, in ns; negative: shorter.
    pub median_ns: i64,
    /// Lower end of the confidence interval, in ns.
    pub low_ns: i64,
    /// Upper end of the confidence interval, in ns.
    pub high_ns: i64,
}

impl MedianDifference {
    /// Whether the interval excludes 0.
    #[must_use]
    pub fn is_significant(&self) -> bool {
        self.low_ns > 0 || self.high_ns < 0
    }
}

/// A difference of means with its 95 % confidence interval by bootstrap (10,000 resamples with a
/// fixed seed, percentile method; Efron and Tibshirani, An Introduction to the Bootstrap, 1993;
/// its ends moved outwards for few steps, Hesterberg, The American Statistician 69, 2015).
/// More than 256 steps are first averaged to 256 batches of neighbors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepDifference {
    /// Difference of the means, in ns; negative: shorter.
    pub mean_ns: i64,
    /// Lower end of the confidence interval, in ns.
    pub low_ns: i64,
    /// Upper end of the confidence interval, in ns.
    pub high_ns: i64,
}

fn number_or_0<S: Serializer>(number: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(number.unwrap_or(0))
}

/// One training step and what happened during it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepReport {
    /// Its number in the trace (`ProfilerStep#n`), otherwise counted from 0.
    pub number: u64,
    /// Start, in ns on the clock of the trace.
    pub start_ns: u64,
    /// Length of the step, in ns.
    pub duration_ns: u64,
    /// Time of collections within the step, in ns; 0 if the trace would not show collections.
    #[serde(serialize_with = "number_or_0")]
    #[schemars(with = "u64")]
    pub gc_ns: Option<u64>,
    /// Number of full collections that started in it.
    pub full_collections: u64,
    /// Idle time of the process's devices within it, in ns; `null` without GPU times.
    pub gpu_idle_ns: Option<u64>,
    /// The same by cause, as of the process. Of a gap that is in several steps each has its share of
    /// every part.
    pub gpu_idle_causes: Option<Vec<IdlePart>>,
}
