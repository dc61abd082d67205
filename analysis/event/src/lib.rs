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

// Writing takes Linux's system calls, to reserve space and never to wait for a reader; only Linux
// records.
#[cfg(target_os = "linux")]
mod file;
#[cfg(target_os = "linux")]
mod line;
pub mod read;
mod record;
#[cfg(target_os = "linux")]
mod sink;
pub mod summary;

#[cfg(target_os = "linux")]
pub use file::TraceFile;
#[cfg(target_os = "linux")]
pub use file::WriteError;
#[cfg(target_os = "linux")]
pub use file::compressed_by_name;
pub use record::Allocations;
pub use record::Annotation;
pub use record::BirthCount;
pub use record::Collective;
pub use record::Collector;
pub use record::Counter;
pub use record::Counters;
pub use record::CudaCall;
pub use record::CudaLaunches;
pub use record::CudaLayer;
pub use record::CycleCount;
pub use record::CycleEdge;
pub use record::CycleId;
pub use record::CycleSignature;
pub use record::DeviceMemory;
pub use record::EventSource;
pub use record::ExaminedProcesses;
pub use record::Frame;
pub use record::FrameId;
pub use record::Garbage;
pub use record::GcReason;
pub use record::GcSettings;
pub use record::GpuDevice;
pub use record::GpuOp;
pub use record::GpuOpKind;
pub use record::GpuProcess;
pub use record::GpuSample;
pub use record::GpuSync;
pub use record::GpuSyncKind;
pub use record::Interpreter;
pub use record::KindCount;
pub use record::KindId;
pub use record::Note;
pub use record::ObjectKind;
pub use record::OmittedPauses;
pub use record::Pause;
pub use record::PauseMemory;
pub use record::Pressure;
pub use record::ProbeCost;
pub use record::Process;
pub use record::ProcessCounters;
pub use record::ProcessExit;
pub use record::ProcessOrigin;
pub use record::Record;
pub use record::RecordingMode;
pub use record::StepMark;
pub use record::StepMarker;
pub use record::TraceEnd;
pub use record::TraceHeader;
pub use record::is_throttling;

/// Maximum number of frames of a recorded stack.
pub const MAX_STACK_DEPTH: u32 = 64;

/// Name and version of the trace format, the value of `format` in a trace's first line.
pub const FORMAT: &str = "gctrace.trace/1";
