//! Settings of the collector compared with each other, measured by turns.
//!
//! Owns the comparison behind `gctrace tune`: `tune/compare.rs` compares whole runs. `tune/verdict.rs` draws
//! conclusions for the settings, from runs or from blocks of steps; the injected library compares the blocks.

mod compare;
mod report;
mod verdict;

pub use compare::{FEWEST_RUNS, MOST_RUNS, Measured, MeasuredRuns, compare};
pub use report::{
    MeasuredDifference, TuneMeasure, TuneMethod, TuneOutcome, TuneRefusal, TuneReport, TuneUnit,
    TunedSetting,
};
