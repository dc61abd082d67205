//! gctrace's vocabulary of events and the trace.json format.
//!
//! Reading a trace, here one of another tool in memory; [`read::TraceReader::open`] opens files:
//!
//! ```
//! use gctrace_event::Record;
//! use gctrace_event::read::DecodedItem;
//! use gctrace_event::read::EventReader;
//! use gctrace_event::read::TraceInput;
//! use gctrace_event::read::TraceReader;
//!
//! let trace: &[u8] =
//!     br#"[{"ph":"X","cat":"gc","name":"gc gen2","pid":1,"tid":1,"ts":10,"dur":2.5}]"#;
//! let input = TraceInput::new("trace.json", trace)?;
//! let mut reader = TraceReader::new(EventReader::new(input));
//! let mut pauses = Vec::new();
//! while let Some(item) = reader.next_item()? {
//!     if let DecodedItem::Record(Record::Pause(pause)) = item {
//!         pauses.push(pause);
//!     }
//! }
//! assert_eq!(reader.finish().cut, None);
//! assert_eq!(pauses.len(), 1);
//! assert_eq!((pauses[0].generation, pauses[0].duration_ns()), (2, 2500));
//! # Ok::<(), gctrace_event::read::ReadError>(())
//! ```
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod compression;
// Writing takes Linux's system calls, to reserve space and never to wait for a reader; only Linux
// records.
#[cfg(target_os = "linux")]
mod file;
mod foreign_times;
pub mod leb128;
#[cfg(target_os = "linux")]
mod line;
mod notebook;
pub mod paths;
pub mod read;
mod record;
#[cfg(target_os = "linux")]
mod sink;
pub mod summary;
mod unpaired;

pub use compression::TraceCompression;
#[cfg(target_os = "linux")]
pub use file::TraceFile;
#[cfg(target_os = "linux")]
pub use file::WriteError;
pub use foreign_times::ForeignTimes;
pub use notebook::{NotebookCells, cell_name};
pub use record::*;
pub use unpaired::{UnpairedPauses, overlap_ns};

/// Maximum number of frames of a recorded stack.
pub const MAX_STACK_DEPTH: u32 = 64;

/// Name and version of the trace format, the value of `format` in a trace's first line.
pub const FORMAT: &str = "gctrace.trace/1";
