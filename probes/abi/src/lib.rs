//! The binary interfaces that gctrace's probes read: kinds of functions, and their arguments.
//!
//! The vocabulary between `gctrace-probes` and `gctrace-ebpf`: the former finds all this in files, the latter's
//! programs read it in processes. Neither knows the other. Data only. Arguments follow the x86-64 System V calling
//! convention.
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

mod cuda;
mod points;
mod sanitizers;

pub use cuda::{BytesArgument, CallKind, GridArgument, StreamArgument};
pub use points::{AllocationSize, ArgumentRegister, CollectorArguments, ProbePointKind};
pub use sanitizers::is_sanitizer_runtime;
