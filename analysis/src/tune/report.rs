//! The report of `gctrace tune`, schema `gctrace.tune/1` (docs/report-schema.md).

use crate::report::Basis;
use serde::Serialize;

/// How settings of the collector compare, measured while they alternated.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneReport {
    /// Name and version of this schema: always `gctrace.tune/1`.
    pub schema: &'static str,
    /// Basis of all figures: measured.
    pub basis: Basis,
    /// The verdict.
    pub outcome: TuneOutcome,
    /// The setting with the largest gain, if there is one: by the means, others may be as fast.
    pub best: Option<String>,
    /// The command that runs the program with this setting, without a measurement. Where no setting is proven, with
    /// the setting that most likely gains; `null`: there is none.
    pub apply: Option<String>,
    /// Whether the settings alternated in blocks of steps of one run, or in whole runs.
    pub method: TuneMethod,
    /// Unit of the times: a step; where steps are unknown a run, or a millisecond of work.
    pub unit: TuneUnit,
    /// The clock of the comparison that the verdict rests on.
    pub measure: TuneMeasure,
    /// Steps per block; `null` for whole runs.
    pub block_steps: Option<u64>,
    /// Steps made; 0 where steps are unknown.
    pub steps: u64,
    /// Steps of the warm-up, in no figure: at least 50, in each run.
    pub warm_up_steps: u64,
    /// Steps of a run long enough for a verdict on every setting, or for the precision asked for, as it looks now;
    /// `null`: each has, or runs were compared.
    pub needed_steps: Option<u64>,
    /// Ranks of a job that had the same setting at the same time, or 1.
    pub ranks: u64,
    /// Other processes with steps, in no figure.
    pub other_processes: u64,
    /// CPU time that gctrace's code in the program took per step, in ns; `null` where steps are unknown.
    pub agent_ns: Option<u64>,
    /// The settings, in the order given; the others are compared with the first.
    pub settings: Vec<TunedSetting>,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TunedSetting {
    /// As on the command line.
    pub setting: String,
    /// Number of its blocks, each paired with one of the first setting, or of its runs.
    pub pairs: u64,
    /// Mean wall time of a step (or run), in ns; `null` without pairs. For blocks, all times include a charge for
    /// full collections by the collector's rule; the first setting's times too.
    pub wall_ns: Option<u64>,
    /// Mean CPU time of a step, of the thread that makes steps (for a run: of all its processes), in ns; `null` if it
    /// was not recorded.
    pub cpu_ns: Option<u64>,
    /// Standard deviation of the runs' mean times by the clock of `measure`, in ns; `null` for blocks.
    pub standard_deviation_ns: Option<u64>,
    /// Mean time of collections per step (or run), in ns: CPU time for blocks; `null` if it was not recorded.
    pub pause_ns: Option<u64>,
    /// Collections per run, by generation; `null` for blocks, as they suspend the old generation.
    pub collections: Option<[f64; 3]>,
    /// Largest resident memory of its runs, in bytes, summed over processes; `null` for blocks of one run, as they
    /// share their memory.
    pub peak_rss_bytes: Option<u64>,
    /// Wall time compared with the first setting; `null` for itself, or of too few pairs.
    pub wall_difference: Option<MeasuredDifference>,
    /// CPU time compared with the first setting; `null` for itself, of too few pairs, or if it was
    /// not recorded.
    pub cpu_difference: Option<MeasuredDifference>,
    /// Share of the difference of CPU time that is computed, from the rate and the measured cost of full
    /// collections, not measured; `null` for runs, and for the first setting.
    pub computed_share: Option<f64>,
    /// Why there is no verdict on this setting; `null` if there is one, and for the first setting.
    pub refused: Option<TuneRefusal>,
}

/// A difference of mean times between a setting and the first one: for blocks, the mean of the differences within
/// pairs of neighbors; for runs, the difference of the means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeasuredDifference {
    /// The difference, in ns per step (or run); negative: faster than the first setting.
    pub mean_ns: i64,
    /// Lower end of its 95 % confidence interval, in ns. The interval may be looked at any time. For runs it follows
    /// from how much all of them vary outside of collections; for blocks from a self-normalized mixture, and it is
    /// wider by the possible error of the charge for full collections.
    pub low_ns: i64,
    /// Upper end of the interval, in ns.
    pub high_ns: i64,
    /// The difference as a share of the first setting's mean.
    pub mean_ratio: f64,
    /// Lower end of the interval as such a share.
    pub low_ratio: f64,
    /// Upper end of the interval as such a share.
    pub high_ratio: f64,
    /// Two-sided p of no difference, over all looks, 0 to 1. For runs, the p of all time; for a gain, the larger one
    /// of this and the p of collections. For blocks, by the mixture.
    pub p_value: f64,
    /// The same, adjusted for the number of settings by Holm's method. 0 to 1.
    pub holm_p_value: f64,
}

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TuneOutcome {
    /// A setting is faster than the first.
    Gain,
    /// At least one setting is slower than the first, and none is faster.
    Loss,
    /// No difference was found.
    NoDifference,
    /// There is no setting that could have a verdict.
    Refused,
}

/// Why there is no verdict on a setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum TuneRefusal {
    /// Too few pairs of neighboring blocks, or of runs.
    FewPairs {
        /// Pairs there are.
        pairs: u64,
        /// Pairs needed.
        needed: u64,
    },
}

/// How settings were compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TuneMethod {
    /// In blocks of steps of one run.
    Blocks,
    /// In whole runs.
    Runs,
}

/// Unit of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TuneUnit {
    /// A step.
    Step,
    /// A run, from the start of the command to its end.
    Run,
    /// A millisecond of the process's CPU time outside of collections: no step was known.
    WorkMs,
}

/// The clock of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TuneMeasure {
    /// Wall time.
    Wall,
    /// CPU time: other programs disturb it less.
    Cpu,
}
