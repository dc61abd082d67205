//! gctrace's analysis: events in, report out.
//!
//! Pure: nothing here opens files or prints. Memory is bounded by the number of processes and of
//! distinct stacks, not by the number of events.

mod advice;
mod allocations;
mod analysis;
mod counters;
mod cuda;
mod distribution;
mod gpu_samples;
mod growth;
pub mod paths;
mod pressure;
mod process;
mod regression;
pub mod report;
mod stacks;
mod summary;
mod tally;
mod union;
pub mod units;
mod verdict;
mod worst;

pub use analysis::Analysis;
pub use stacks::ProcessStacks;
pub use stacks::WeightedStack;
