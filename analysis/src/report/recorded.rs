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
    /// How far the two were apart at the begin or the end of a pause, whichever was more: the median. Absent
    /// where no pause was seen by both.
    pub both_apart_p50_ns: Option<u64>,
    /// 99 % were no farther apart.
    pub both_apart_p99_ns: Option<u64>,
    /// The most: the thread may have been preempted in between.
    pub both_apart_max_ns: Option<u64>,
}
