//! What the live view shows at one moment: plain figures, every one with its unit in its name.
//!
//! Owns the shapes, which are also those of `gctrace top --format json` (one object for each interval).
//! How the figures come about is `live.rs` and the files beside this one. Times are nanoseconds of
//! `CLOCK_MONOTONIC` unless a name says otherwise.

mod detail;
mod gpu;
mod pauses;
mod process_figures;

pub use detail::LineFigures;
pub use detail::ProcessDetail;
pub use detail::StepFigures;
pub use detail::TimelineCell;
pub use gpu::GpuBusy;
pub use gpu::GpuFigures;
pub use gpu::ProcessGpu;
pub use pauses::CodeLine;
pub use pauses::CollectionCounts;
pub use pauses::CountAndTime;
pub use pauses::GENERATIONS;
pub use pauses::Histogram;
pub use pauses::LongPause;
pub use pauses::PAUSE_CLASSES_NS;
pub use pauses::PauseFigures;
pub use process_figures::HeapObjects;
pub use process_figures::PressureFigures;
pub use process_figures::ProcessEnd;
pub use process_figures::ProcessFigures;

use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Name and version of the schema, the value of `schema` in a snapshot.
pub const SCHEMA: &str = "gctrace.top/2";

/// Everything, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Snapshot {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// When it was taken.
    pub at_ns: u64,
    /// The same moment in wall-clock time: nanoseconds since 1970.
    pub at_unix_ns: u64,
    /// Begin of the recording.
    pub started_ns: u64,
    /// Name of the machine.
    pub host: String,
    /// How it is recorded: `ebpf`, `inject` or `both`.
    pub mode: String,
    /// Figures called "of the interval" are of this stretch of time, which ended at `interval_until_ns`.
    pub interval_ns: u64,
    /// A little before `at_ns`: pauses of that time have all been read.
    pub interval_until_ns: u64,
    /// Processes that run Python, in the order in which they appeared. One that has ended stays for some
    /// seconds.
    pub processes: Vec<ProcessFigures>,
    /// GPUs by NVML's index.
    pub gpus: Vec<GpuFigures>,
    /// Pauses of `long_pause_ns` and longer, oldest first; the last [`crate::live::LONG_PAUSES`] of them.
    pub long_pauses: Vec<LongPause>,
    /// From which length on a pause is a long one.
    pub long_pause_ns: u64,
    /// All processes together, those that ended included.
    pub totals: SnapshotTotals,
    /// What gctrace itself lost and cost.
    pub recorder: RecorderCost,
    /// What the user should know, oldest first; the last few.
    pub notes: Vec<Notice>,
    /// More about one process, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<ProcessDetail>,
}

/// All processes together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct SnapshotTotals {
    /// Collections of all processes.
    pub collections: CollectionCounts,
    /// Processes seen that ran Python.
    pub processes: u64,
    /// Those of them that have ended.
    pub ended: u64,
    /// Pauses that ended in the interval, by generation.
    pub interval_pauses: [u64; GENERATIONS],
    /// Time of the interval in pauses, added over all processes: may exceed the interval.
    pub interval_pause_ns: u64,
}

/// What gctrace lost and cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct RecorderCost {
    /// Events lost since the begin, by where; empty: no event of an examined process was lost.
    pub lost: BTreeMap<String, u64>,
    /// Processes that could have run Python unseen, because they ended, say, before they could be examined.
    pub unexamined: u64,
    /// CPU time of gctrace since its start (measured).
    pub cpu_ns: u64,
    /// CPU time of gctrace in the interval, in millionths of one core (measured).
    pub cpu_ppm: u64,
    /// Resident memory of gctrace in bytes.
    pub resident_bytes: u64,
    /// Times that probes or hooks in recorded programs were hit since the begin.
    pub hits: u64,
    /// CPU time that the probes on the collector took of recorded programs since the begin: their hits by what one
    /// was measured to cost (inferred). Calls of CUDA, and hooks within programs, are not in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_cost_ns: Option<u64>,
    /// Where the trace is written at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// A sentence for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Notice {
    /// When.
    pub at_ns: u64,
    /// The process that it is about, if one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What.
    pub message: String,
}
