//! The live view at one time: plain figures, each with its unit in its name. Owns the types; they are also the schema
//! of `gctrace top --format json` (one object per interval). The figures are computed in `live.rs` and the files
//! beside this one.

mod garbage;
mod pauses;

pub use garbage::{
    CycleFigures, FreezeFigures, GarbageFigures, KindFigures, SelectedGarbage, TrendFigures,
};
pub use pauses::{
    CodeLine, CollectionCounts, GENERATION_NAMES, GENERATIONS, Histogram, LongPause,
    PAUSE_CLASSES_NS, PauseFigures, PauseOutcomes,
};

use crate::report::{Basis, IdlePart, LatestLayers, PauseTotal, StepSource};
use crate::turns::live::LoopFigures;
use gctrace_event::RecordingMode;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Name and version of the schema, the value of `schema` in a snapshot.
pub const SCHEMA: &str = "gctrace.top/2";

/// One snapshot of `gctrace top --format json`: all figures of the live view at one time.
/// Timestamps are ns of CLOCK_MONOTONIC unless the name says otherwise. A member that is absent is
/// unknown or not recorded, never 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Snapshot {
    /// Name and version of this schema: always `gctrace.top/2`.
    pub schema: &'static str,
    /// Time of the snapshot, in ns.
    pub at_ns: u64,
    /// Time of the snapshot, in ns of Unix time.
    pub at_unix_ns: u64,
    /// Start of the recording, in ns.
    pub started_ns: u64,
    /// Name of the host that gctrace records on.
    pub host: String,
    /// How it is recorded: `ebpf` (kernel probes), `inject` (in-process) or `both`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub mode: RecordingMode,
    /// Length of the interval, in ns. Figures "of the interval" cover the time before
    /// `interval_end_ns`.
    pub interval_ns: u64,
    /// End of the interval, slightly before `at_ns`: all pauses up to then have been read.
    pub interval_end_ns: u64,
    /// Processes that run Python, in the order of their discovery. A process that ended is kept for some seconds.
    pub processes: Vec<ProcessFigures>,
    /// GPUs, by NVML index; empty if NVML is not polled.
    pub gpus: Vec<GpuFigures>,
    /// The most recent pauses of at least `long_pause_ns`, oldest first, at most 200.
    pub long_pauses: Vec<LongPause>,
    /// Shortest length of a long pause, in ns.
    pub long_pause_ns: u64,
    /// Sums over all processes, ended ones included.
    pub totals: SnapshotTotals,
    /// Lost records and overhead of gctrace.
    pub recorder: RecorderCost,
    /// The most recent messages for the user, oldest first.
    pub notes: Vec<Notice>,
    /// More figures of one process; absent unless one is selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<ProcessDetail>,
}

/// Sums over all processes, ended ones included.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotTotals {
    /// Collections since the start of the recording.
    pub collections: CollectionCounts,
    /// Number of processes that ran Python.
    pub processes: u64,
    /// The number of these that ended.
    pub ended: u64,
    /// Pauses that ended in the interval, by generation (0, 1, 2, unknown).
    pub interval_pauses: [u64; GENERATIONS],
    /// Pause time in the interval, in ns, summed over processes; it may exceed the interval.
    pub interval_pause_ns: u64,
}

/// Lost records and overhead of gctrace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Inferred: CPU time that recording cost the recorded programs since the start, in ns: hits of the probes on the
    /// collector times the likely cost of a hit, and the same in-process. CUDA calls are not included. Absent if it
    /// was not measured.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Notice {
    /// Time of the message, in ns.
    pub at_ns: u64,
    /// Process id of the process concerned; absent if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The message as text, for people, at most 1,024 bytes; its wording may change.
    pub message: String,
}

/// Figures that a snapshot contains for the selected process only: trigger lines, steps and a
/// timeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessDetail {
    /// Process id of the selected process on the host.
    pub pid: u32,
    /// Lines that triggered collections, by pause time, descending, at most 20.
    pub lines: Vec<LineFigures>,
    /// Pauses of all other lines and of unknown ones. If there are more than a thousand lines, the lines with the
    /// least time are added here and counted anew.
    pub other_lines: PauseTotal,
    /// If its heap grows, the line with the fastest growth of living objects, of a sample of all allocations
    /// (`--alloc`, in-process); absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub born_at: Option<CodeLine>,
    /// What its collections free; absent if none was examined (`--garbage`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub garbage: Option<SelectedGarbage>,
    /// PyTorch's memory by layer in the latest measured step; absent without one (`--layers`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<LatestLayers>,
    /// The most recent steps, oldest first, at most 60.
    pub steps: Vec<StepFigures>,
    /// The mark that delimits the steps: `backward pass` (start to start), or the name of the profiler's annotation;
    /// empty without steps.
    #[serde(serialize_with = "basis")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub step_basis: Option<StepSource>,
    /// Timeline of the last seconds, oldest first, in cells of `cell_ns`; the last one ends at
    /// `timeline_end_ns`.
    pub timeline: Vec<TimelineCell>,
    /// Length of a cell, in ns.
    pub cell_ns: u64,
    /// End of the last cell, in ns.
    pub timeline_end_ns: u64,
}

fn basis<S: Serializer>(source: &Option<StepSource>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if let Some(source) = source { source.basis() } else { "" })
}

/// A line that triggered collections, itself or through a library that it called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LineFigures {
    /// The innermost line outside the standard library and installed packages, or the innermost
    /// line if there is none.
    pub line: CodeLine,
    /// The library line with the most pause time that was reached from it; absent if the
    /// collections started in `line` itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<CodeLine>,
    /// Number and time of the pauses that started in `line` or below it.
    pub pauses: PauseTotal,
}

/// One training step and the pauses in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepFigures {
    /// Start of the step, in ns.
    pub start_ns: u64,
    /// Length of the step, in ns.
    pub duration_ns: u64,
    /// Pauses of the process: the number that started within the step (at least 1 if any ran), and the time with at
    /// least one running.
    pub pauses: PauseTotal,
}

/// A short interval of one process and its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimelineCell {
    /// Time with at least one pause running, in ns.
    pub gc_ns: u64,
    /// Time with any operation of the process running on its first GPU (CUPTI), in ns; absent if not recorded or not
    /// received yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_busy_ns: Option<u64>,
    /// Utilization of its GPU in percent, from the last NVML sample; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_utilization_percent: Option<u32>,
}

/// One GPU as one process uses it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessGpu {
    /// Index of the device: CUDA's index within the process, or NVML's if `by_nvml`.
    pub device: u32,
    /// Whether `device` is NVML's index, as in `gpus`.
    pub by_nvml: bool,
    /// NVML's index of the device; absent if unknown. CUDA may number devices differently: if a
    /// process uses one device by either numbering, they are assumed to be the same; if it uses
    /// several, there is one entry per index of either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvml_index: Option<u32>,
    /// Memory allocated by PyTorch's allocator, in bytes; absent if it is not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch_allocated_bytes: Option<u64>,
    /// Memory that PyTorch's allocator reserved from the driver, in bytes; absent if it is not
    /// recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch_reserved_bytes: Option<u64>,
    /// Memory of the process on the GPU (NVML), in bytes; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Busy and idle time from CUPTI; absent if CUPTI does not record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<GpuBusy>,
    /// Idle time by cause; absent if CUPTI does not record, and in the first seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<GpuIdle>,
}

/// Why one process left one GPU idle, coarsely: from its pauses and CUDA calls, as if its program and
/// the GPU were one queue each. `gctrace analyze` of a trace is more exact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuIdle {
    /// Basis of all times by cause: inferred.
    pub basis: Basis,
    /// Length of the interval that `causes` is about, in ns: the last 60 s that are known, or less if
    /// the first operation is more recent.
    pub window_ns: u64,
    /// End of that interval, in ns: some seconds ago, when all calls have been handed over.
    pub window_end_ns: u64,
    /// Idle time in the interval by cause, the longest first; causes without any are left out. `host`
    /// is an upper bound: waiting for data, files and other ranks is in it, as nothing shows that
    /// live. The other causes, except `unknown`, are inferred.
    pub causes: Vec<IdlePart>,
    /// The same since the first operation.
    pub total: Vec<IdlePart>,
}

/// Busy and idle time of one process on one GPU, from CUPTI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuBusy {
    /// Length of the interval that `busy_ns`, `idle_ns` and `idle_in_gc_ns` cover, in ns: the
    /// interval of the snapshot, or less if the first operation is more recent; 0 if the last
    /// operation is more than 60 s old.
    pub window_ns: u64,
    /// End of that interval, in ns: at most the end of the last known operation, as the GPU
    /// delivers its records late. If it is seconds old, the process no longer uses the GPU, or its
    /// records are delayed.
    pub window_end_ns: u64,
    /// Time with any operation running, in ns.
    pub busy_ns: u64,
    /// Time without an operation running, in ns.
    pub idle_ns: u64,
    /// Idle time during pauses of the process, in ns: overlap, not necessarily caused by them.
    pub idle_in_gc_ns: u64,
    /// Busy time since the first operation, in ns.
    pub total_busy_ns: u64,
    /// Idle time from the first to the last known operation, in ns. May decrease when the record of
    /// an operation arrives late.
    pub total_idle_ns: u64,
    /// The part of `total_idle_ns` during pauses of the process, in ns. May decrease likewise.
    pub total_idle_in_gc_ns: u64,
}

/// The last NVML sample of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuFigures {
    /// NVML's index of the GPU on the host, from 0.
    pub index: u32,
    /// Product name of the GPU, as NVML reports it; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Share of the driver's last sample period with any kernel running, in percent; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u32>,
    /// Memory in use, in bytes; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    /// Total memory, in bytes; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// Time of the sample, in ns.
    pub at_ns: u64,
}

/// One process that runs Python: its description, its pauses, its settings and its memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessFigures {
    /// Process id on the host; another process may get it after this one ended.
    pub pid: u32,
    /// Process id in its own pid namespace; absent if it is the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_pid: Option<u32>,
    /// Process id of the parent on the host; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Rank in a distributed job; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Command line, arguments separated by spaces.
    pub command: String,
    /// Version of CPython, for example `3.13.0t`; empty if unknown.
    pub interpreter: String,
    /// Start of the time with complete pauses, in ns.
    pub since_ns: u64,
    /// How it ended; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<ProcessEnd>,
    /// Counts and times of its collections since `since_ns`, by generation and reason.
    pub collections: CollectionCounts,
    /// Pauses that ended in the interval, by generation (0, 1, 2, unknown).
    pub interval_pauses: [u64; GENERATIONS],
    /// Pause time in the interval, in ns; pauses of interpreters or threads that collect at the
    /// same time are summed.
    pub interval_pause_ns: u64,
    /// Time of the interval with at least one pause running, in ns; at most the interval.
    pub interval_paused_ns: u64,
    /// Pause time (summed) of each of the last 60 seconds, in ns, oldest first; the last second
    /// ends with the interval. Fewer entries if the process is younger.
    pub history_ns: Vec<u64>,
    /// Time since `since_ns` with at least one pause running, in ns.
    pub paused_ns: u64,
    /// `paused_ns` in millionths of the wall time since `since_ns`.
    pub share_ppm: u64,
    /// The pause that ended last; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<PauseFigures>,
    /// The longest pause; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<PauseFigures>,
    /// Number of containers, as last reported by a collection; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap_objects: Option<HeapObjects>,
    /// What its collections free, by type; absent if none was examined (`--garbage`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub garbage: Option<GarbageFigures>,
    /// How its heap grows; absent for fewer than five full collections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap_trend: Option<TrendFigures>,
    /// Objects still freed after its heap was frozen; absent unless a freeze was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze: Option<FreezeFigures>,
    /// Whether automatic collection is enabled (`gc.isenabled()`), as last recorded; absent if
    /// unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Thresholds of generations 0, 1 and 2 (`gc.get_threshold()`), as last recorded; absent if
    /// unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<[i32; 3]>,
    /// What `gctrace auto` does in it, as it last reported; absent if it does not run there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto: Option<AutoFigures>,
    /// Its latest allocation pressure; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<PressureFigures>,
    /// Resident memory, in bytes; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// Turns of its loop; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<LoopFigures>,
    /// GPUs that the process uses; empty if none or unknown.
    pub gpus: Vec<ProcessGpu>,
}

impl ProcessFigures {
    /// Part of the windows of all GPUs of the process, as CUPTI reported it, in ppm; `None` without
    /// a window.
    pub fn window_ppm(&self, part: fn(&GpuBusy) -> u64) -> Option<u64> {
        let exact = self.gpus.iter().filter_map(|gpu| gpu.busy);
        let parts = exact.clone().map(|exact| part(&exact)).sum();
        ppm(parts, exact.map(|exact| exact.window_ns).sum())
    }
}

/// `part` of `whole` in millionths, `None` where there is no whole.
pub fn ppm(part: u64, whole: u64) -> Option<u64> {
    let millionths = (u128::from(part) * 1_000_000).checked_div(u128::from(whole))?;
    Some(gctrace_units::u64_or_most(millionths))
}

/// What `gctrace auto` does in a process, and what that saves.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AutoFigures {
    /// Its activity: `setting_up`, `watching`, `exploring`, `proving`, `holding`, `following` (another rank) or
    /// `stopped` (everything is given back).
    pub state: String,
    /// The setting that it holds, as `gctrace apply` takes it; absent if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// CPU time saved since settings are compared, less what finding them cost, in ns; negative: lost.
    /// Absent if no gain is proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved: Option<SavedTime>,
    /// What finding and checking the setting cost, in ns of CPU time (estimated).
    pub cost_ns: u64,
}

/// A saving with its interval: measured in pairs of blocks of steps, in part computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SavedTime {
    /// The mean, in ns.
    pub mean_ns: i64,
    /// Lower end of the 95 % interval, in ns.
    pub low_ns: i64,
    /// Upper end.
    pub high_ns: i64,
}

/// When a process ended, and its exit code or signal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessEnd {
    /// Time of the end, in ns.
    pub at_ns: u64,
    /// Exit code; absent if a signal killed it or if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Signal that killed it; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// Number of containers (objects that the collector tracks).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeapObjects {
    /// Number of containers after that collection, in the part of the heap that `all` states.
    pub count: u64,
    /// Whether `count` covers the whole heap; otherwise only the oldest generation.
    pub all: bool,
    /// Time of the pause that reported it, in ns.
    pub at_ns: u64,
}

/// How fast a process allocates, by the latest records of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PressureFigures {
    /// Net containers per second: containers allocated minus containers freed, inferred from the collections. Absent
    /// if these do not report it (`--mode inject`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net_containers_per_second: Option<u64>,
    /// Bytes of arenas mapped minus arenas unmapped, per second; absent if they are not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arena_bytes_per_second: Option<i64>,
    /// Allocations per second of the program's CPU time; absent without `--alloc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocations_per_cpu_second: Option<u64>,
    /// End of the interval that these figures cover, in ns.
    pub at_ns: u64,
}
