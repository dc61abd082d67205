//! The part of a report about training steps.

use super::Basis;
use schemars::JsonSchema;
use serde::Serialize;

/// Training steps: annotations `ProfilerStep#n` of the PyTorch profiler, or else the time from the
/// begin of one backward pass to that of the next.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StepsReport {
    /// Of lengths: measured. Comparisons have their own.
    pub basis: Basis,
    /// Processes with steps, those with the most first, at most 64.
    pub processes: Vec<ProcessSteps>,
    /// Processes with steps that are not listed.
    pub processes_left_out: u64,
}

/// The steps of one process: those of its thread with the most.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProcessSteps {
    /// Index of the trace.
    pub trace: usize,
    /// Process.
    pub pid: u32,
    /// Rank in a distributed job, where known.
    pub rank: Option<u32>,
    /// The thread that made the steps.
    pub tid: u32,
    /// What a step was recognised by: `profiler-step` or `backward-pass`.
    pub source: String,
    /// How many.
    pub count: u64,
    /// Steps of other threads, which are not in these figures.
    pub left_out: u64,
    /// Their lengths.
    pub length: StepLengths,
    /// Time in garbage collections within the steps, of any thread of the process, overlapping ones
    /// once; absent where the trace cannot tell.
    pub gc_ns: Option<u64>,
    /// `gc_ns` / time of all steps.
    pub gc_ratio: Option<f64>,
    /// Steps with any collection in them.
    pub with_gc: u64,
    /// Idle time of the process's devices within the steps, devices added; absent without times of
    /// the GPU.
    pub gpu_idle_ns: Option<u64>,
    /// How a full collection was recognised: `generation`, or `length` (the trace tells no generations:
    /// a pause of 1 ms or more), or `generation-or-length` where it tells some.
    pub full_by: String,
    /// Full collections in the steps.
    pub full_collections: u64,
    /// Steps with a full collection against steps without.
    pub with_full: StepComparison,
    /// Steps after one with a full collection against those before it, pair by pair; neither of the
    /// pair has one itself.
    pub after_full: StepComparison,
    /// The longest steps, longest first, at most ten.
    pub longest: Vec<StepReport>,
}

/// A distribution of lengths. Percentiles are by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct StepLengths {
    /// All together.
    pub total_ns: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Shortest.
    pub min_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90 % are at most as long.
    pub p90_ns: u64,
    /// 99 % are at most as long.
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// How far percentiles can be off, as a ratio; 0 when they are exact (up to 4,096 steps).
    pub percentile_error_ratio: f64,
}

/// Two kinds of steps compared.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepComparison {
    /// Of `difference`: inferred, with the assumption that steps vary independently otherwise. It says
    /// how much longer these steps are, not that the collections are the whole reason.
    pub basis: Basis,
    /// Steps of the kind in question (with a full collection; after one).
    pub count: u64,
    /// Their mean length; absent without any.
    pub mean_ns: Option<u64>,
    /// Steps to compare with (without one; before one).
    pub other_count: u64,
    /// Their mean length; absent without any.
    pub other_mean_ns: Option<u64>,
    /// How much longer the former are; absent where there are too few.
    pub difference: Option<StepDifference>,
    /// Why there is no difference.
    pub missing: Option<String>,
}

/// A difference of means with its 95 % confidence interval by bootstrap (10,000 resamples with a
/// fixed seed, percentile method; Efron and Tibshirani, An Introduction to the Bootstrap, 1993). Of
/// more than 256 steps neighbours are averaged to 256 batches first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepDifference {
    /// Mean difference; negative: shorter.
    pub mean_ns: i64,
    /// Lower end of the interval.
    pub low_ns: i64,
    /// Upper end of the interval.
    pub high_ns: i64,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepReport {
    /// Its number in the trace, else counted from 0.
    pub number: u64,
    /// Begin.
    pub start_ns: u64,
    /// Length.
    pub duration_ns: u64,
    /// Time in garbage collections within it; 0 where the trace cannot tell.
    pub gc_ns: u64,
    /// Full collections that began in it.
    pub full_collections: u64,
    /// Idle time of the process's devices within it; absent without times of the GPU.
    pub gpu_idle_ns: Option<u64>,
}
