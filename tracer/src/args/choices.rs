//! Enumerations for options that take one of a few values.

use clap::ValueEnum;

/// Whether output is for people or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Human-readable text
    Text,
    /// Machine-readable JSON
    Json,
}

/// How much of the CUDA calls is recorded, by probes or by the injected library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CudaMode {
    /// Every call, each launch and CUDA event as a record of its own
    All,
    /// Launches only as counts per millisecond, which keeps traces of hours small
    Launches,
    /// Synchronization, copies, memory and collectives, but no launches
    Sync,
    /// No CUDA calls
    Off,
}

/// Requested sources of collections and GPU work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordMode {
    /// The best mode that the machine and the user's privileges allow
    Auto,
    /// Kernel probes only; needs privileges
    Ebpf,
    /// A library in the recorded programs only; needs no privileges
    Inject,
    /// Both sources for each pause
    Both,
}

impl RecordMode {
    /// The name on the command line and in trace headers.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ebpf => "ebpf",
            Self::Inject => "inject",
            Self::Both => "both",
        }
    }
}
