//! Where gctrace's probes go: interpreters, functions, offsets.
//!
//! [`resolve`] examines a file: whether it contains a CPython collector, where its functions are, the cheapest safe
//! instruction of each for a probe, and how the collector's state is laid out in memory. [`identify()`] is the cheap
//! first check, made on every program at exec. [`maps`], [`proc_status`] and [`process_memory`] read the figures of
//! `/proc` about a running process, [`malloc`] the memory that its C library keeps. [`counters`] opens CPU performance
//! counters, [`nvml`] samples GPUs through NVIDIA's driver, [`cuda`] knows the CUDA, NCCL and torch libraries.
//! [`ProcessMemory`] reads another process for `gctrace-cpython`.
//!
//! Bytes in, facts out: nothing here uses BPF, writes to a process or prints.
//!
//! Where the probes of an interpreter go:
//!
//! ```no_run
//! use gctrace_probes::ResolveOptions;
//! use gctrace_probes::resolve;
//! use std::path::Path;
//!
//! let file = Path::new("/usr/bin/python3");
//! match resolve(file, &ResolveOptions::default())? {
//!     Some(found) => println!("CPython {}, {} probes", found.version, found.points.len()),
//!     None => println!("no collector in {}", file.display()),
//! }
//! # Ok::<(), gctrace_probes::ResolveError>(())
//! ```
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arch;
mod cache;
mod code;
pub mod counters;
pub mod cuda;
mod elf;
mod error;
mod identify;
mod loading;
pub mod malloc;
pub mod maps;
mod memory;
pub mod nvml;
mod placement;
pub mod proc_status;
pub mod process_memory;
pub mod progress;
mod python;
mod resolution;
mod version;

pub use elf::Machine;
pub use error::ResolveError;
pub use gctrace_abi::{ArgumentRegister, CollectorArguments, ProbePointKind, is_sanitizer_runtime};
pub use identify::{ProgramKind, identify, likely_libpython};
pub use loading::{Loading, exported_bytes, loading};
pub use memory::ProcessMemory;
pub use python::allocator::{AllocationPoint, Allocator, allocator};
pub use python::{resolve, resolve_bytes};
pub use resolution::{ProbePoint, Resolution, ResolveOptions, SearchStrategy, StrategyOutcome};
pub use version::PythonVersion;
