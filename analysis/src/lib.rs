//! gctrace's analysis: events in, report out.
//!
//! Pure: nothing here opens files or prints. Memory grows with the number of processes and of
//! distinct stacks, by some 12 bytes per pause (40 more in processes that use a GPU), and by about
//! 50 bytes per CUDA call and per GPU operation; other events are not kept. The memory of [`live`]
//! is bounded, however long it runs.
//!
//! One trace, here in memory, from its bytes to the report:
//!
//! ```
//! use gctrace_analysis::Analysis;
//! use gctrace_event::read::EventReader;
//! use gctrace_event::read::TraceInput;
//! use gctrace_event::read::TraceReader;
//!
//! let trace: &[u8] =
//!     br#"[{"ph":"X","cat":"gc","name":"gc gen2","pid":1,"tid":1,"ts":10,"dur":2.5}]"#;
//! let input = TraceInput::new("trace.json", trace)?;
//! let mut reader = TraceReader::new(EventReader::new(input));
//! let mut analysis = Analysis::default();
//! analysis.begin_trace("trace.json");
//! while let Some(item) = reader.next_item()? {
//!     analysis.add(item);
//! }
//! analysis.end_trace(reader.finish(), None);
//! analysis.settle();
//! let report = analysis.report();
//! assert_eq!(report.totals.pauses.count, 1);
//! assert_eq!(report.totals.pauses.time_ns, 2500);
//! # Ok::<(), gctrace_event::read::ReadError>(())
//! ```
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod accumulate;
mod advice;
mod allocations;
mod analysis;
mod bounded;
mod called;
pub mod clean;
mod cleanup;
pub mod compare;
mod counters;
mod coverage;
mod cpu;
mod cuda;
mod distribution;
pub mod figure;
mod freeze;
mod garbage;
pub mod gpu;
mod gpu_samples;
mod growth;
mod inherited;
mod layers;
mod leak_watch;
pub mod live;
mod memory;
pub mod parallel;
pub mod paths;
mod pauses;
mod phases;
mod pressure;
mod regression;
pub mod report;
mod settings;
pub mod spans;
mod stacks;
mod summary;
#[cfg(feature = "parquet")]
pub mod tables;
mod time;
pub mod tune;
mod turns;
pub mod units;
mod verdict;
pub mod words;

pub use analysis::{
    Analysis, CommonClock, ListedPause, OneClock, PauseList, PausedProcess, PausesNotListed,
    ProcessMemoryList, ProcessOnClock, ProcessStacks, SampledStack, StackId, WeightedStack,
};
pub use summary::ProcessStepRow;
