//! What the live view shows at one moment: plain figures, every one with its unit in its name.
//!
//! Owns the shapes, which are also those of `gctrace top --format json` (one object for each interval).
//! How the figures come about is `live.rs` and the files beside this one. Times are nanoseconds of
//! `CLOCK_MONOTONIC` unless a name says otherwise.

use serde::Serialize;
use std::collections::BTreeMap;

/// Upper bounds of the classes of pause times in nanoseconds: 1 - 2.5 - 5 steps from 10 us to 10 s. What is
/// longer is in one class more.
pub const PAUSE_CLASSES_NS: [u64; 19] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Number of pauses by [`PAUSE_CLASSES_NS`]; the last is of those longer than all bounds.
pub type Histogram = [u64; PAUSE_CLASSES_NS.len() + 1];

/// Generations 0, 1, 2 and, last, those whose generation the source could not tell.
pub const GENERATIONS: usize = 4;

/// Everything, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Snapshot {
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
    pub totals: Totals,
    /// What gctrace itself lost and cost.
    pub recorder: Recorder,
    /// What the user should know, oldest first; the last few.
    pub notes: Vec<Notice>,
    /// More about one process, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
}

/// Collections, counted since the begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Collections {
    /// How many, by generation ([`GENERATIONS`]).
    pub pauses: [u64; GENERATIONS],
    /// Their time together, by generation.
    pub pause_ns: [u64; GENERATIONS],
    /// Number and time by generation and reason (`automatic`, `manual`, `shutdown`, `unknown`).
    pub by_reason: BTreeMap<&'static str, [CountAndTime; GENERATIONS]>,
    /// How long they were, by generation.
    pub histogram: [Histogram; GENERATIONS],
    /// Objects freed, as far as known.
    pub collected: u64,
    /// Objects found unreachable and not freed, as far as known.
    pub uncollectable: u64,
    /// Pauses that tell how many objects they freed.
    pub with_collected: u64,
    /// Longest pause.
    pub longest_ns: u64,
}

/// A number of pauses and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CountAndTime {
    /// How many.
    pub count: u64,
    /// Together.
    pub time_ns: u64,
}

/// All processes together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Collections of all processes.
    pub collections: Collections,
    /// Processes seen that ran Python.
    pub processes: u64,
    /// Those of them that have ended.
    pub ended: u64,
    /// Pauses that ended in the interval, by generation.
    pub interval_pauses: [u64; GENERATIONS],
    /// Time of the interval in pauses, added over all processes: may exceed the interval.
    pub interval_pause_ns: u64,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessFigures {
    /// Process id on the host.
    pub pid: u32,
    /// In its own pid namespace, where that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_pid: Option<u32>,
    /// Parent on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Rank in a distributed job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Command line, words joined by spaces.
    pub command: String,
    /// For example `3.13.0t`; empty where not known.
    pub interpreter: String,
    /// From when on its pauses are complete.
    pub since_ns: u64,
    /// How it ended, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// Collections since `since_ns`.
    pub collections: Collections,
    /// Pauses that ended in the interval, by generation.
    pub interval_pauses: [u64; GENERATIONS],
    /// Time of the interval in pauses. Where interpreters or threads collect at the same time their pauses
    /// are added.
    pub interval_pause_ns: u64,
    /// Time in pauses of each of the last [`crate::live::HISTORY_SECONDS`] seconds, oldest first; the last ends
    /// with the interval. Shorter where the process is younger.
    pub history_ns: Vec<u64>,
    /// Time in pauses since `since_ns` in millionths of the wall time.
    pub share_ppm: u64,
    /// The last pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<PauseFigures>,
    /// The longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<PauseFigures>,
    /// Objects that the collector tracks, as last told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap_objects: Option<HeapObjects>,
    /// `gc.isenabled()`, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// `gc.get_threshold()`, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<[i32; 3]>,
    /// What it allocates, as last told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<PressureFigures>,
    /// Resident memory in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// GPUs that it uses.
    pub gpus: Vec<ProcessGpu>,
}

/// The end of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// When.
    pub at_ns: u64,
    /// Exit code, if it ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The signal that killed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// A pause in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PauseFigures {
    /// Its end.
    pub ended_ns: u64,
    /// Length.
    pub duration_ns: u64,
    /// Generation 0 to 2, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u8>,
}

/// How many objects the collector tracks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeapObjects {
    /// How many.
    pub count: u64,
    /// All of them; otherwise those of the oldest generation only.
    pub all: bool,
    /// Time of the pause that told it.
    pub at_ns: u64,
}

/// What a process allocates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PressureFigures {
    /// Container objects allocated less those freed, per second: inferred from the collections.
    pub net_containers_per_second: u64,
    /// Bytes of arenas mapped less those unmapped, per second, where that is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arena_bytes_per_second: Option<i64>,
    /// Allocations per second of the program's CPU time, where `--alloc` counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocations_per_cpu_second: Option<u64>,
    /// End of the stretch that it is about.
    pub at_ns: u64,
}

/// What one process does on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessGpu {
    /// Index as the source counts: CUDA's own within the process where `busy` is there, else NVML's.
    pub device: u32,
    /// Whether `device` is NVML's index ([`GpuFigures::index`]).
    pub by_nvml: bool,
    /// Memory of the process on it in bytes (NVML).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Exact times from CUPTI, where it records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<GpuBusy>,
}

/// Exact times of one process's work on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GpuBusy {
    /// Length of the stretch of time that this is about, and its end: records come from the GPU late.
    pub window_ns: u64,
    /// Its end.
    pub until_ns: u64,
    /// Any operation ran.
    pub busy_ns: u64,
    /// None ran.
    pub idle_ns: u64,
    /// Idle while the process was in a pause: overlap, which need not be the cause.
    pub idle_in_gc_ns: u64,
    /// Since the first operation: any ran.
    pub total_busy_ns: u64,
    /// Since the first operation, up to the last: none ran.
    pub total_idle_ns: u64,
    /// Of `total_idle_ns`: the process was in a pause.
    pub total_idle_in_gc_ns: u64,
}

/// One GPU as NVML tells of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuFigures {
    /// NVML's index.
    pub index: u32,
    /// Product name, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Part of the driver's last sample period in which any kernel ran, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u32>,
    /// Memory in use in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    /// Memory that it has in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// When NVML was asked.
    pub at_ns: u64,
}

/// A long pause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LongPause {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Rank of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Begin.
    pub begin_ns: u64,
    /// The same moment in nanoseconds since 1970.
    pub begin_unix_ns: u64,
    /// Length.
    pub duration_ns: u64,
    /// Generation 0 to 2, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u8>,
    /// Why it ran: `automatic`, `manual`, `shutdown` or `unknown`.
    pub reason: &'static str,
    /// Objects freed, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collected: Option<u64>,
    /// Objects found unreachable and not freed, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncollectable: Option<u64>,
    /// Where the program was, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<Line>,
    /// The thread or process ended inside it.
    pub unfinished: bool,
}

/// A line of Python.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Line {
    /// Function, qualified where the interpreter tells it.
    pub function: String,
    /// File, as the interpreter names it.
    pub file: String,
    /// Line number, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// What gctrace lost and cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Recorder {
    /// Events lost since the begin, by where; empty: nothing was lost.
    pub lost: BTreeMap<String, u64>,
    /// CPU time of gctrace since its start (measured).
    pub cpu_ns: u64,
    /// CPU time of gctrace in the interval, in millionths of one core (measured).
    pub cpu_ppm: u64,
    /// Resident memory of gctrace in bytes.
    pub resident_bytes: u64,
    /// Times that probes or hooks in recorded programs were hit since the begin.
    pub hits: u64,
    /// What a hit costs the program in nanoseconds, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_hit: Option<f64>,
    /// Where the trace is written at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// A sentence for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Notice {
    /// When.
    pub at_ns: u64,
    /// The process that it is about, if one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What.
    pub message: String,
}

/// More about one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Detail {
    /// Which.
    pub pid: u32,
    /// Lines that collections began in, most time first; the first [`crate::live::LINES`].
    pub lines: Vec<LineFigures>,
    /// Time and number of pauses of other lines, and of those without a known line.
    pub other_lines: CountAndTime,
    /// The last steps, oldest first; the last [`crate::live::STEPS`].
    pub steps: Vec<StepFigures>,
    /// What a step is, in words: `backward pass` (begin to begin), or the name of the profiler's annotation.
    pub step_basis: String,
    /// Timeline of the last seconds, oldest first: [`TimelineCell`]s of `cell_ns` each, the last of which ends
    /// at `timeline_until_ns`.
    pub timeline: Vec<TimelineCell>,
    /// Length of a cell.
    pub cell_ns: u64,
    /// End of the last cell.
    pub timeline_until_ns: u64,
}

/// A line that collections began in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LineFigures {
    /// Which.
    pub line: Line,
    /// Pauses that began there.
    pub pauses: CountAndTime,
}

/// A step of training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepFigures {
    /// Begin.
    pub begin_ns: u64,
    /// Length.
    pub duration_ns: u64,
    /// Pauses of the process within it.
    pub pauses: CountAndTime,
}

/// A short stretch of time of one process and its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimelineCell {
    /// Time in pauses.
    pub gc_ns: u64,
    /// Time in which any operation of the process ran on its first GPU (CUPTI); `None` where that is not
    /// recorded, or not told yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_busy_ns: Option<u64>,
    /// Utilization of the GPU that it uses, as NVML last said, in percent, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_utilization_percent: Option<u32>,
}
