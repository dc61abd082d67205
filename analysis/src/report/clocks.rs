//! The part of a report about merged traces of one process.

use super::{Basis, MergeNote, NotMergedReason};
use schemars::JsonSchema;
use serde::Serialize;

/// A trace of the PyTorch profiler that was merged with gctrace's trace of the same process. The
/// report treats them as one: operations, calls and steps are the profiler's, pauses are gctrace's.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ClockReport {
    /// Basis of `offset_ns`: measured if the same calls or collections were found in both traces,
    /// inferred if it rests on the wall clocks.
    pub basis: Basis,
    /// Index in `traces` of the profiler's trace.
    pub trace: usize,
    /// Index in `traces` of gctrace's trace.
    pub gc_trace: usize,
    /// Process id on the host, from gctrace's trace.
    pub pid: u32,
    /// Process id in the profiler's trace; differs from `pid` in a pid namespace.
    pub profiler_pid: u32,
    /// How the two traces were matched to one process.
    pub recognized_by: RecognizedBy,
    /// What the clock offset was computed from.
    pub aligned_by: AlignedBy,
    /// Clock offset in ns: added to a timestamp of gctrace's trace it gives the profiler's.
    pub offset_ns: i64,
    /// `offset_ns` minus the offset of the wall clocks, in ns.
    pub beyond_wall_clock_ns: i64,
    /// Error of the offset, in ns: median absolute deviation of the matches. `null` if aligned by
    /// the wall clocks alone.
    pub error_ns: Option<u64>,
    /// What `error_ns` covers and what it does not, as text.
    pub error_basis: String,
    /// Number of matched calls or collections that the offset rests on.
    pub matches: u64,
    /// Pauses of gctrace's trace within the time that the profiler covers.
    pub pauses: u64,
    /// Pauses of gctrace's trace outside that time; they are in no figure of GPU work.
    pub pauses_outside: u64,
    /// Collections in both traces; the report counts them once, as gctrace's.
    pub pauses_in_both: u64,
    /// Collections only in the profiler's trace; they are included.
    pub pauses_of_profiler_only: u64,
    /// Remarks on the merge, one sentence each.
    pub notes: Vec<MergeNote>,
}

/// How two traces were matched to one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecognizedBy {
    /// Same process id, overlapping in time.
    ProcessId,
    /// The profiler's process id is the process's id in its own namespace; overlapping in time.
    NamespaceProcessId,
    /// Same rank, overlapping in time.
    Rank,
    /// The only two traces that overlap in time.
    Time,
}

/// What a clock offset was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlignedBy {
    /// CUDA calls in both traces.
    Calls,
    /// Collections in both traces.
    Pauses,
    /// The wall-clock time that each trace states for its timestamps.
    WallClock,
}

impl AlignedBy {
    /// What the error of the clock offset covers and what it does not.
    pub(crate) fn error_basis(self) -> &'static str {
        match self {
            Self::Calls => {
                "median absolute deviation of the start differences of calls in both traces; a \
                 constant delay between the two tools, some microseconds, cannot be detected"
            }
            Self::Pauses => {
                "median absolute deviation of the midpoint differences of collections in both \
                 traces; a constant delay between the two tools, some microseconds, cannot be \
                 detected"
            }
            Self::WallClock => {
                "not measured: the traces share no calls and no collections that could be matched. \
                 The profiler's conversion to wall-clock time is off by some microseconds; if the \
                 wall clock was set between the starts of gctrace and the profiler, the offset is \
                 wrong by that amount"
            }
        }
    }
}

/// A trace of the PyTorch profiler that could not be merged with one of gctrace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotMerged {
    /// Index in `traces` of the profiler's trace.
    pub trace: usize,
    /// Process id as the profiler's trace states it; 0 if it contains none.
    pub pid: u32,
    /// Why it was not merged, as text.
    pub why: NotMergedReason,
}
