//! Options that take one of a few words.

use clap::ValueEnum;

/// For whom something is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Which calls of CUDA are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CudaMode {
    /// Every launch and every CUDA event is an event of the trace
    All,
    /// Launches are counted by the millisecond: a trace of hours stays small
    Launches,
    /// Synchronisation, copies, memory and collectives, no launches
    Sync,
    /// Nothing of CUDA
    Off,
}

/// How a recording is asked to see collections and GPU work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordMode {
    /// What fits the machine and the rights of its user
    Auto,
    /// Probes of the kernel alone: needs privileges
    Ebpf,
    /// A library in the recorded programs alone: needs none
    Inject,
    /// Both, and each pause is told by both
    Both,
}

impl RecordMode {
    /// As it is written on the command line and in the header of a trace.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ebpf => "ebpf",
            Self::Inject => "inject",
            Self::Both => "both",
        }
    }
}
