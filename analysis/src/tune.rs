//! Settings of the collector compared with each other, measured while they alternated.
//!
//! Owns the comparison behind `gctrace tune`: `tune/steps.rs` reads the tables of steps that the injected
//! library writes, `tune/blocks.rs` makes of them groups of neighboring blocks, one block per setting, and
//! `tune/compare.rs` the report. Whole runs are compared as blocks are.

mod blocks;
mod compare;
mod report;
mod steps;

pub use blocks::Measured;
pub use blocks::MeasuredBlocks;
pub use blocks::MeasuredSetting;
pub use blocks::blocks;
pub use blocks::whole_run;
pub use compare::FEWEST_EVENTS;
pub use compare::FEWEST_PAIRS;
pub use compare::compare;
pub use report::MeasuredDifference;
pub use report::TuneMeasure;
pub use report::TuneMethod;
pub use report::TuneOutcome;
pub use report::TuneRefusal;
pub use report::TuneReport;
pub use report::TuneUnit;
pub use report::TunedSetting;
pub use steps::StepRow;
pub use steps::StepTable;
