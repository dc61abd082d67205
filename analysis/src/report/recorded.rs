//! The part of a report that says how a trace came about.

use schemars::JsonSchema;
use serde::Serialize;

/// How a trace of gctrace was recorded, and what cannot be in it for that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RecordedReport {
    /// `ebpf`: by probes of the kernel; `inject`: from within the programs; `both`.
    pub mode: String,
    /// Who saw the pauses.
    pub sources: Sources,
    /// What such a recording does not see, a sentence each.
    pub cannot_see: Vec<String>,
}

/// Pauses by who saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Sources {
    /// Seen by probes alone.
    pub probes: u64,
    /// Seen from within alone: of such a pause the reason is not known.
    pub injected: u64,
    /// Seen by both; the times are those of the probes.
    pub both: u64,
    /// Most that the two were apart at the begin or the end of a pause; absent where no pause was seen by both.
    pub both_apart_max_ns: Option<u64>,
    /// The same on average.
    pub both_apart_mean_ns: Option<u64>,
}
