//! The live view at one time: plain figures, each with its unit in its name. Owns the types,
//! which are also the schema of `gctrace top --format json` (one object per interval). The
//! figures are computed in `live.rs` and the files beside this one.

mod detail;
mod garbage;
mod gpu;
mod pauses;
mod process_figures;

pub use detail::{LineFigures, ProcessDetail, StepFigures, TimelineCell};
pub use garbage::{
    CycleFigures, FreezeFigures, GarbageDetail, GarbageFigures, KindFigures, KindName, TrendFigures,
};
pub use gpu::{GpuBusy, GpuFigures, ProcessGpu};
pub use pauses::{
    CodeLine, CollectionCounts, GENERATIONS, Histogram, LongPause, PAUSE_CLASSES_NS, PauseFigures,
};
pub use process_figures::{HeapObjects, PressureFigures, ProcessEnd, ProcessFigures};

use gctrace_event::RecordingMode;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Name and version of the schema, the value of `schema` in a snapshot.
pub const SCHEMA: &str = "gctrace.top/2";

/// One snapshot of `gctrace top --format json`: all figures of the live view at one time.
/// Timestamps are ns of CLOCK_MONOTONIC unless the name says otherwise. A member that is absent is
/// unknown or not recorded, never 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Snapshot {
    /// Name and version of this schema: always `gctrace.top/2`.
    pub schema: &'static str,
    /// Time of the snapshot, in ns.
    pub at_ns: u64,
    /// Time of the snapshot, in ns of Unix time.
    pub at_unix_ns: u64,
    /// Start of the recording, in ns.
    pub started_ns: u64,
    /// Host name of the machine on which gctrace records.
    pub host: String,
    /// How it is recorded: `ebpf` (kernel probes), `inject` (in-process) or `both`.
    #[schemars(with = "String")]
    pub mode: RecordingMode,
    /// Length of the interval, in ns. Figures "of the interval" cover the time before
    /// `interval_end_ns`.
    pub interval_ns: u64,
    /// End of the interval, slightly before `at_ns`: all pauses up to then have been read.
    pub interval_end_ns: u64,
    /// Processes that run Python, in the order in which they were first seen. A process that ended
    /// is kept for some seconds.
    pub processes: Vec<ProcessFigures>,
    /// GPUs, by NVML index; empty if NVML is not polled.
    pub gpus: Vec<GpuFigures>,
    /// The most recent pauses of at least `long_pause_ns`, oldest first, at most 200.
    pub long_pauses: Vec<LongPause>,
    /// Shortest length of a long pause, in ns.
    pub long_pause_ns: u64,
    /// Sums over all processes, including those that ended.
    pub totals: SnapshotTotals,
    /// Lost records and overhead of gctrace.
    pub recorder: RecorderCost,
    /// The most recent messages for the user, oldest first.
    pub notes: Vec<Notice>,
    /// More figures of one process; absent unless one is selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<ProcessDetail>,
}

/// Sums over all processes, including those that ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct SnapshotTotals {
    /// Collections since the start of the recording.
    pub collections: CollectionCounts,
    /// Number of processes that ran Python.
    pub processes: u64,
    /// Of these, the number that ended.
    pub ended: u64,
    /// Pauses that ended in the interval, by generation (0, 1, 2, unknown).
    pub interval_pauses: [u64; GENERATIONS],
    /// Pause time in the interval, in ns, summed over processes; it may exceed the interval.
    pub interval_pause_ns: u64,
}

/// Lost records and overhead of gctrace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct RecorderCost {
    /// Number of lost records since the start, by where they were dropped; empty if no record of an
    /// examined process was lost.
    pub lost: BTreeMap<String, u64>,
    /// Number of processes that may have run Python without being recorded, for example because
    /// they ended before they could be examined.
    pub unexamined: u64,
    /// Measured: CPU time of gctrace since its start, in ns; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// Measured: CPU time of gctrace in the interval, in millionths of one core; absent until it
    /// was read twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ppm: Option<u64>,
    /// Resident memory of gctrace, in bytes; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// Number of hits of probes and hooks in recorded programs since the start.
    pub hits: u64,
    /// Inferred: time that recording cost the recorded programs since the start, in ns: hits of the
    /// probes on the collector times the measured time per hit, and what the library measured
    /// in-process. CUDA calls are not included. Absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_overhead_ns: Option<u64>,
    /// Inferred: the same for programs of this machine that are not recorded but run the same
    /// interpreter, in ns. Absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere_overhead_ns: Option<u64>,
    /// Path of the trace that is written at the same time; absent without `--record`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// A message for the user, for example that there are too many processes to show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Notice {
    /// Time of the message, in ns.
    pub at_ns: u64,
    /// Process id of the process concerned; absent if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The message as text, for people, at most 1,024 bytes; its wording may change.
    pub message: String,
}
