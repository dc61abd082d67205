//! Settings of the collector compared with each other, measured by turns.
//!
//! Owns the comparison behind `gctrace tune`: `tune/compare.rs` compares whole runs, `tune/verdict.rs` says what
//! follows for the settings, of runs or of blocks of steps, which the injected library compares.

mod compare;
mod report;
mod verdict;

pub use compare::{FEWEST_RUNS, MOST_RUNS, Measured, MeasuredRuns, compare};
pub use report::{
    MeasuredDifference, TuneMeasure, TuneMethod, TuneOutcome, TuneRefusal, TuneReport, TuneUnit,
    TunedSetting,
};
