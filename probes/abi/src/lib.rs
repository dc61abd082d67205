//! The binary interfaces that gctrace's probes read: kinds of functions, their arguments, CPython's
//! layouts in memory.
//!
//! The vocabulary between `gctrace-probes`, which finds all this in files, and `gctrace-ebpf`, whose
//! programs read it in processes; neither knows the other. Data only. Arguments follow the x86-64
//! System V calling convention, offsets are in bytes.
//!
//! ```
//! use gctrace_abi::ArgumentRegister;
//! use gctrace_abi::CollectorArguments;
//!
//! // gc_collect_main(tstate, generation, reason) of CPython 3.13
//! let arguments = CollectorArguments {
//!     tstate: Some(ArgumentRegister::Rdi),
//!     generation: Some(ArgumentRegister::Rsi),
//!     reason: Some(ArgumentRegister::Rdx),
//!     ..CollectorArguments::default()
//! };
//! assert_eq!(arguments.generation.map(|register| register as u8), Some(2));
//! ```

mod collector;
pub mod cpython;
mod cuda;
mod frames;
mod objects;
mod points;
mod sanitizers;

pub use collector::{
    CollectorLayout, GcBase, GenerationStats, SelfCheck, StatsLayout, StatsLocation,
};
pub use cuda::{BytesArgument, CallKind, GridArgument, StreamArgument};
pub use frames::{FrameLayout, GilHolder, InstructionPointer, LineTableFormat};
pub use objects::{KnownType, ObjectLayout};
pub use points::{AllocationSize, ArgumentRegister, CollectorArguments, ProbePointKind};
pub use sanitizers::is_sanitizer_runtime;
