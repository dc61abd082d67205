//! What can go wrong between us and the kernel.

use std::path::PathBuf;

/// An error of the BPF side. The chain below it is the kernel's or libbpf's own words.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel lacks something without which nothing can be recorded.
    #[error(
        "kernel {release} lacks {missing}: probes need Linux {} or newer, with type information (BTF)",
        crate::OLDEST_LINUX
    )]
    Unsupported {
        /// `uname -r`.
        release: String,
        /// What is missing, in words.
        missing: String,
    },
    /// Probes are perf events there, and this process may not open such.
    #[error(
        "kernel {release} makes probes of perf events, and lets only CAP_SYS_ADMIN place them (file capabilities are enough from Linux 6.6 on): run it with sudo"
    )]
    PerfEvents {
        /// `uname -r`.
        release: String,
    },
    /// The programs were refused.
    #[error("the kernel did not load gctrace's BPF programs")]
    Load(#[source] libbpf_rs::Error),
    /// Windows on the allocator are not possible.
    #[error(
        "this kernel has no uprobe multi links, without which the probes on an allocator would take seconds to place and to take out: Linux 6.6 or newer is needed for that"
    )]
    NoMultiLinks,
    /// One of the fixed tracepoints could not be used.
    #[error("cannot attach to the tracepoint {tracepoint}")]
    Tracepoint {
        /// For example `sched_process_exec`.
        tracepoint: &'static str,
        /// The kernel's reason.
        source: libbpf_rs::Error,
    },
    /// Arenas cannot be counted.
    #[error(
        "arenas are not counted: the kernel's list of system call tracepoints cannot be read ({0}); mend with: mount -t tracefs nodev /sys/kernel/tracing"
    )]
    SystemCalls(std::io::Error),
    /// A probe could not be placed.
    #[error("cannot place probes in {}", file.display())]
    Attach {
        /// The probed file.
        file: PathBuf,
        /// The kernel's reason.
        source: libbpf_rs::Error,
    },
    /// A map could not be read or written.
    #[error("cannot use the BPF map {map}")]
    Map {
        /// Name of the map.
        map: &'static str,
        /// The kernel's reason.
        source: libbpf_rs::Error,
    },
    /// More different interpreters than the tables hold.
    #[error("more than {limit} {what} in one recording")]
    TooMany {
        /// What there is too many of.
        what: &'static str,
        /// How many fit.
        limit: u32,
    },
    /// The rings find no room in the address space of this process.
    #[error("no room in memory for a ring buffer of {} KiB", bytes / 1024)]
    NoRoom {
        /// Size of the ring of pauses.
        bytes: u32,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// The ring buffer's size is not one the kernel takes.
    #[error("ring buffer size {0} is not a power of two of at least one page (4096)")]
    RingSize(u32),
    /// The own executable could not be examined for the calibration.
    #[error("cannot measure the cost of a probe: {0}")]
    Calibration(String),
}
