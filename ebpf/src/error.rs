//! Errors between gctrace and the kernel.

use std::path::PathBuf;

/// An error of the BPF side. The errors that it wraps are the kernel's or libbpf's own text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel lacks a feature that recording requires.
    #[error(
        "kernel {release} lacks {missing}: probes need Linux {} or newer, with type information (BTF)",
        crate::OLDEST_LINUX
    )]
    Unsupported {
        /// `uname -r`.
        release: String,
        /// The missing features, in words.
        missing: String,
    },
    /// Probes are perf events on this kernel, and this process may not open them.
    #[error(
        "kernel {release} implements probes as perf events, and only CAP_SYS_ADMIN may open these (file capabilities are enough from Linux 6.6 on): run it with sudo"
    )]
    PerfEvents {
        /// `uname -r`.
        release: String,
    },
    /// The kernel rejected the programs.
    #[error("the kernel did not load gctrace's BPF programs")]
    Load(#[source] libbpf_rs::Error),
    /// Allocation windows are not possible.
    #[error(
        "this kernel has no uprobe multi links (Linux 6.6 or newer): without them, attaching and detaching the probes on an allocator takes seconds"
    )]
    NoMultiLinks,
    /// Lists of garbage cannot be walked.
    #[error("this kernel's programs cannot loop (bpf_loop, Linux 5.17 or newer)")]
    NoLoops,
    /// Attaching to a fixed tracepoint failed.
    #[error("cannot attach to the tracepoint {tracepoint}")]
    Tracepoint {
        /// For example `sched_process_exec`.
        tracepoint: &'static str,
        /// The kernel's error.
        source: libbpf_rs::Error,
    },
    /// Arenas cannot be counted.
    #[error(
        "arenas are not counted: the kernel's list of system call tracepoints cannot be read ({0}); fix with: mount -t tracefs nodev /sys/kernel/tracing"
    )]
    SystemCalls(std::io::Error),
    /// A probe could not be placed.
    #[error("cannot place probes in {}", file.display())]
    Attach {
        /// The probed file.
        file: PathBuf,
        /// The kernel's error.
        source: libbpf_rs::Error,
    },
    /// A map could not be read or written.
    #[error("cannot use the BPF map {map}")]
    Map {
        /// Name of the map.
        map: &'static str,
        /// The kernel's error.
        source: libbpf_rs::Error,
    },
    /// More different interpreters than the tables can hold.
    #[error("more than {limit} {what} in one recording")]
    TooMany {
        /// The kind of entry.
        what: &'static str,
        /// The table's capacity.
        limit: u32,
    },
    /// The address space of this process has no room for the rings.
    #[error("no room in memory for a ring buffer of {} KiB", bytes / 1024)]
    NoRoom {
        /// Size of the ring of pauses.
        bytes: u32,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The kernel does not support this ring buffer size.
    #[error("ring buffer size {0} is not a power of two of at least one page (4096)")]
    RingSize(u32),
    /// Our own executable could not be examined for the calibration.
    #[error("cannot measure the cost of a probe: {0}")]
    Calibration(String),
}
