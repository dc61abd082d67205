//! What `gctrace apply` does in a program, as far as it needs no Python: `python/apply` has the rest.
//!
//! - `marks`: decides which marks are steps;
//! - `memory`: the memory that is left;
//! - `files`: files that are written, and the kernel's data on the process.

pub(crate) mod files;
pub(crate) mod marks;
pub(crate) mod memory;

use gctrace_settings::ApplyRequest;
use std::path::PathBuf;

/// The settings to apply in this process, from its variables.
#[derive(Debug)]
pub(crate) struct ApplyOptions {
    pub(crate) request: ApplyRequest,
    /// Whether calls of a function are steps, and nothing else is.
    pub(crate) counts_function: bool,
    /// Where to report; `None`: in one line, at the end.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) rank: Option<u32>,
    /// Processes of the job, by `WORLD_SIZE`; 1 without it.
    pub(crate) ranks: u32,
    /// Number of ranks on this host, by `LOCAL_WORLD_SIZE`; `None`: unknown.
    pub(crate) local_ranks: Option<u32>,
    /// As [`gctrace_ring::InjectOptions::filters`].
    pub(crate) filters: u32,
}
