//! The parts of a report about one trace, how it was recorded, or one process.

use super::{
    AfterFreeze, AllocationsReport, Basis, CalledReport, CleanupReport, CountersReport,
    GarbageReport, GrowthReport, HeapTrend, LayersReport, LinesReport, MemoryReport, PauseTotal,
    PausesReport, PressureReport, SettingsReport, UnseenReport,
};
use crate::inherited::InheritedHeap;
use gctrace_event::{CollectorKind, ProcessOrigin, RecordingMode};
use serde::Serialize;

/// One trace file and its recording.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TraceReport {
    /// File name as given on the command line.
    pub file: String,
    /// Command that was recorded; empty if unknown.
    pub command: Vec<String>,
    /// Process id given with `-p`; `null` if a command was recorded.
    pub attached_pid: Option<u32>,
    /// Name of the host of the recording; `null` if unknown.
    pub host: Option<String>,
    /// Release of the host's kernel, as in `uname -r`; `null` if unknown.
    pub kernel: Option<String>,
    /// Version of gctrace that recorded the trace; `null` for other tools.
    pub recorded_by: Option<String>,
    /// How the trace was recorded; `null` for other tools.
    pub recorded: Option<RecordedReport>,
    /// Logical CPUs that the recording could use (affinity mask and cgroup quota considered);
    /// `null` if unknown.
    pub cpus: Option<u32>,
    /// Hash of the Git commit checked out in the command's working directory; `null` if unknown.
    pub git_commit: Option<String>,
    /// Whether tracked files of that directory differed from the repository's index; `null` if
    /// unknown.
    pub git_modified: Option<bool>,
    /// Rank of the whole recording; `null` if unknown.
    pub rank: Option<u32>,
    /// Start of the recording, in ns on the clock of the trace.
    pub started_ns: u64,
    /// Start of the recording, in ns of Unix time; `null` if unknown.
    pub started_unix_ns: Option<u64>,
    /// Length of the recording, in ns.
    pub duration_ns: u64,
    /// Basis of `duration_ns`: inferred from the first and the last event if the trace has no first
    /// or last line.
    pub basis: Basis,
    /// Count and time of its pauses.
    pub pauses: PauseTotal,
    /// Longest pause, in ns; `null` without pauses.
    pub max_ns: Option<u64>,
    /// Observed time of its processes that ran the collector, in ns.
    pub observed_ns: u64,
    /// Time that Python code could not run, in ns, as in `totals`.
    pub stopped_ns: u64,
    /// `stopped_ns` / `observed_ns`; `null` if nothing was observed.
    pub stopped_ratio: Option<f64>,
    /// Number of processes that ran the collector.
    pub processes: u64,
    /// Why the recording ended; `null` if the trace has no last line.
    pub ended: Option<String>,
    /// Exit code of the command; `null` if unknown.
    pub exit_code: Option<i32>,
    /// Byte and line where the file is cut off; `null` if it is complete.
    pub cut_at: Option<String>,
    /// Why the file could not be read to its end; what came before is in the figures. `null` if it
    /// could.
    pub damage: Option<String>,
    /// Number of lost records; `null` if the trace lacks its last line, the one with this number.
    pub lost: Option<u64>,
    /// Inconsistent records that were ignored: the first few, with their position.
    pub anomalies: Vec<String>,
    /// Largest number of frames recorded per stack; 0 if stacks were not recorded, `null` if
    /// unknown.
    pub stack_depth: Option<u32>,
    /// Requested counters that could not be opened, by name, with the reason.
    pub counters_missing: std::collections::BTreeMap<String, String>,
    /// Notes of the recorder, at most 100.
    pub notes: Vec<String>,
    /// Number of further notes, not in `notes`.
    pub notes_left_out: u64,
    /// The file of the same trace that was given before; its events are counted twice.
    #[serde(skip)]
    pub repeats: Option<String>,
    /// The process that wrote it while it was read; `None` if it is whole, or none did.
    #[serde(skip)]
    pub writer: Option<TraceWriter>,
}

/// A process that writes a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceWriter {
    /// Its id; `None` if it is in another pid namespace, or on another machine.
    pub pid: Option<u32>,
}

/// One process that ran the collector.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessReport {
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// Process id: on the host if gctrace recorded the process, otherwise as the trace states it.
    pub pid: u32,
    /// Process id in its own pid namespace; `null` if it is the same.
    pub namespace_pid: Option<u32>,
    /// Process id of the parent; `null` if unknown.
    pub parent: Option<u32>,
    /// Rank in a distributed job; `null` if unknown, and for a launcher of ranks: a process with a
    /// child of another rank.
    pub rank: Option<u32>,
    /// Command line, or the name that another tool gave it.
    pub command: Vec<String>,
    /// `launched`, `child` or `attached` (already running); `null` in traces of other tools.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub origin: Option<ProcessOrigin>,
    /// Interpreter that the process runs, and its collector; `null` if unknown.
    pub interpreter: Option<InterpreterReport>,
    /// Version of PyTorch that it loaded; `null` if it loaded none or if unknown.
    pub torch: Option<String>,
    /// Start of the time with complete pauses, in ns after the start of the recording.
    pub since_start_ns: u64,
    /// Length of its recording, in ns.
    pub observed_ns: u64,
    /// Basis of `observed_ns`: inferred if its start or end was taken from its events.
    pub basis: Basis,
    /// Collections of it that the library could not see; `null` if recorded with probes, as they see these
    /// collections, and if unknown.
    pub unseen: Option<UnseenReport>,
    /// Statistics of its pauses, on all its threads.
    pub pauses: PausesReport,
    /// Pauses by generation: 0, 1, 2, unknown.
    pub by_generation: [PauseTotal; 4],
    /// Pauses by reason: automatic, manual, shutdown, unknown.
    pub by_reason: [PauseTotal; 4],
    /// Time with the collector running, in ns; overlapping pauses count once.
    pub paused_ns: u64,
    /// Time that its Python code could not run, in ns, as in `totals`.
    pub stopped_ns: u64,
    /// `stopped_ns` / `observed_ns`, 0 to 1; `null` if too little was observed.
    pub stopped_ratio: Option<f64>,
    /// Number of threads that ran the collector.
    pub threads: u64,
    /// Automatic collections of generation 0 per second of observed time; `null` if too little was
    /// observed.
    pub young_per_s: Option<f64>,
    /// Objects freed by automatic collections per second of observed time; `null` if unknown.
    pub freed_per_s: Option<f64>,
    /// Settings of its collector; `null` if they were not recorded.
    pub settings: Option<SettingsReport>,
    /// How the pause of a full collection grows with the heap; `null` without such collections.
    pub growth: Option<GrowthReport>,
    /// The most objects that a full collection traversed; `None` if unknown.
    #[serde(skip)]
    pub(crate) largest_heap: Option<u64>,
    /// What its first collections show of objects that it inherited, if it was forked.
    #[serde(skip)]
    pub(crate) inherited: InheritedHeap,
    /// What its explicit cleanup costs and gives back; `null` without any.
    pub cleanup: Option<CleanupReport>,
    /// Whether it keeps more and more memory; `null` without five samples of anything after its warm-up.
    pub trend: Option<HeapTrend>,
    /// Its memory, and what its collections gave back.
    pub memory: MemoryReport,
    /// Objects still freed after `gc.freeze()`; `null` unless a freeze was seen.
    pub after_freeze: Option<AfterFreeze>,
    /// What its collections free; `null` if none was examined (`--garbage`).
    pub garbage: Option<GarbageReport>,
    /// Python lines and stacks that trigger its collections; `null` if no pause has a stack.
    pub lines: Option<LinesReport>,
    /// Functions of the program that its collections called, at most 10 with the most time; empty if
    /// there was none, or if they were not recorded (with probes, in CPython 3.8, free-threaded, or
    /// with the JIT compiler).
    pub called: Vec<CalledReport>,
    /// PyTorch's memory by layer (`--layers`); `null` if no step was measured.
    pub layers: Option<LayersReport>,
    /// Its allocation pressure; `null` if it was not recorded.
    pub pressure: Option<PressureReport>,
    /// Its allocations (`--alloc`); `null` if they were not recorded.
    pub allocations: Option<AllocationsReport>,
    /// Its performance counters; `null` if they were not recorded.
    pub counters: Option<CountersReport>,
    /// Exit code; `null` if it was killed by a signal, did not end or its end is unknown.
    pub exit_code: Option<i32>,
    /// Signal that killed it; `null` otherwise.
    pub exit_signal: Option<i32>,
}

impl TraceReport {
    /// Whether events at its end or within it are missing.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.cut_at.is_some() || self.damage.is_some() || matches!(self.lost, Some(1..))
    }
}

impl ProcessReport {
    /// Whether its interpreter is known to have no GIL.
    pub(crate) fn is_free_threaded(&self) -> bool {
        matches!(&self.interpreter, Some(interpreter) if interpreter.free_threaded)
    }
}

/// The interpreter of a process, and how gctrace located its collector.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterpreterReport {
    /// Version of CPython, for example `3.13.1`.
    pub version: String,
    /// Kind of the collector: `generational`, `incremental` or `free-threaded`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub collector: CollectorKind,
    /// Whether it is a free-threaded build, without the GIL.
    pub free_threaded: bool,
    /// File that contains the collector, an executable or a libpython, as seen in the process's
    /// mount namespace.
    pub file: String,
    /// How the collector was located in the file.
    pub found_by: String,
}

/// How a trace was recorded by gctrace, and the limits of that mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordedReport {
    /// `ebpf`: by kernel probes; `inject`: in-process; `both`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub mode: RecordingMode,
    /// Number of pauses by the source that recorded them.
    pub sources: Sources,
    /// What this mode does not record, one sentence each.
    pub not_recorded: Vec<String>,
}

/// Number of pauses by the source that recorded them, and how far two sources differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sources {
    /// Pauses that only the kernel's probes recorded.
    pub probes: u64,
    /// Pauses recorded in-process only.
    pub injected: u64,
    /// Pauses recorded by both; the timestamps are the probes'.
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
