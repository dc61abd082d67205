//! Settings of the collector compared with each other, measured while they alternated.
//!
//! Owns the comparison behind `gctrace tune`: `tune/steps.rs` reads the tables of steps that the injected
//! library writes, `tune/blocks.rs` makes of them groups of neighboring blocks, one block per setting, and
//! `tune/compare.rs` the report. Whole runs are compared as blocks are.

mod blocks;
mod compare;
mod report;
mod steps;

pub use blocks::{Measured, MeasuredBlocks, MeasuredSetting, blocks, whole_run};
pub use compare::{FEWEST_EVENTS, FEWEST_PAIRS, compare};
pub use report::{
    MeasuredDifference, TuneMeasure, TuneMethod, TuneOutcome, TuneRefusal, TuneReport, TuneUnit,
    TunedSetting,
};
pub use steps::{StepRow, StepTable};
