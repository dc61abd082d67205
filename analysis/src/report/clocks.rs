//! The part of a report about traces of one process that were put together.

use super::Basis;
use schemars::JsonSchema;
use serde::Serialize;

/// A trace of the PyTorch profiler and gctrace's trace of the same process: in all figures of GPU work
/// they are one, with the profiler's operations, calls and steps and with gctrace's pauses.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ClockReport {
    /// Of `offset_ns`: measured where the same moments were found in both traces, inferred where it
    /// rests on the wall clock that each trace names.
    pub basis: Basis,
    /// Index in `traces` of the profiler's.
    pub trace: usize,
    /// Index in `traces` of gctrace's.
    pub gc_trace: usize,
    /// The process on the host, as gctrace's trace has it.
    pub pid: u32,
    /// The process as the profiler's trace has it; another where it ran in a pid namespace.
    pub profiler_pid: u32,
    /// How they were recognised as one process.
    pub recognised_by: RecognisedBy,
    /// What the offset rests on.
    pub aligned_by: AlignedBy,
    /// Added to a time of gctrace's trace to get the profiler's.
    pub offset_ns: i64,
    /// What of the offset the wall clocks did not say: the offset less the one by wall clock.
    pub beyond_wall_clock_ns: i64,
    /// The error that remains: median absolute deviation of the matches from the offset. Absent with
    /// the wall clock alone.
    pub error_ns: Option<u64>,
    /// What `error_ns` covers and what it does not, in words.
    pub error_basis: String,
    /// Moments found in both traces that the offset rests on.
    pub matches: u64,
    /// Pauses of gctrace's trace that fall into the time that the profiler covers.
    pub pauses: u64,
    /// Pauses of gctrace's trace before or after that; they are in no figure of GPU work.
    pub pauses_outside: u64,
    /// Collections in both traces. They count once in this report, as gctrace's.
    pub pauses_in_both: u64,
    /// Collections that only the profiler's trace has; they are kept.
    pub pauses_of_profiler_only: u64,
    /// What else is to be known, in words.
    pub notes: Vec<String>,
}

/// Why two traces are taken to be of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecognisedBy {
    /// The same process id at the same time.
    ProcessId,
    /// The profiler's process id is the process's in its own namespace, at the same time.
    NamespaceProcessId,
    /// The same rank at the same time.
    Rank,
    /// The only ones of that time.
    Time,
}

/// What the offset of two clocks rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlignedBy {
    /// Calls of CUDA that both traces hold.
    Calls,
    /// Collections that both traces hold.
    Pauses,
    /// The moment since 1970 that each trace names for its times.
    WallClock,
}

/// A trace of the profiler for which there may be one of gctrace's, which could not be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotMerged {
    /// Index in `traces`.
    pub trace: usize,
    /// Its process.
    pub pid: u32,
    /// Why not, in words.
    pub why: String,
}
