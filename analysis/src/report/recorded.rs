//! The part of a report about how a trace was recorded.

use gctrace_event::RecordingMode;
use schemars::JsonSchema;
use serde::Serialize;

/// How a trace was recorded by gctrace, and what that mode cannot record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RecordedReport {
    /// `ebpf`: by kernel probes; `inject`: in-process; `both`.
    #[schemars(with = "String")]
    pub mode: RecordingMode,
    /// Number of pauses by the source that recorded them.
    pub sources: Sources,
    /// What this mode does not record, one sentence each.
    pub not_recorded: Vec<String>,
}

/// Number of pauses by the source that recorded them, and how far two sources differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Sources {
    /// Pauses that only the kernel's probes recorded.
    pub probes: u64,
    /// Pauses recorded in-process only; their reason is unknown.
    pub injected: u64,
    /// Pauses recorded by both; the timestamps are those of the probes.
    pub both: u64,
    /// Median difference between the two sources, in ns: at the start or the end of a pause,
    /// whichever is larger. `null` if no pause was recorded by both.
    pub both_apart_p50_ns: Option<u64>,
    /// 99th percentile of that difference, in ns; `null` if no pause was recorded by both.
    pub both_apart_p99_ns: Option<u64>,
    /// Largest such difference, in ns (the thread may have been preempted in between); `null` if no
    /// pause was recorded by both.
    pub both_apart_max_ns: Option<u64>,
}
