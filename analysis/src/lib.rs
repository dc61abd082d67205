//! gctrace's analysis: events in, report out.
//!
//! Pure: nothing here opens files or prints. Memory is bounded by the number of processes, not by
//! the number of events.

mod advice;
mod analysis;
mod distribution;
mod growth;
mod process;
mod regression;
pub mod report;
mod summary;
mod tally;
mod union;
pub mod units;
mod verdict;
mod worst;

pub use analysis::Analysis;
