//! The parts of a report about one trace or one process.

use super::AllocationsReport;
use super::Basis;
use super::CountersReport;
use super::GrowthReport;
use super::LinesReport;
use super::PauseTotal;
use super::PausesReport;
use super::PressureReport;
use super::RecordedReport;
use schemars::JsonSchema;
use serde::Serialize;

/// One trace.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TraceReport {
    /// File name as given.
    pub file: String,
    /// Command that was recorded, empty where it is not known.
    pub command: Vec<String>,
    /// Process attached to with `-p`.
    pub attached_pid: Option<u32>,
    /// Host.
    pub host: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Version of gctrace that recorded it; absent in traces of other tools.
    pub recorded_by: Option<String>,
    /// How it was recorded; absent in traces of other tools.
    pub recorded: Option<RecordedReport>,
    /// Rank of the whole recording.
    pub rank: Option<u32>,
    /// Start on the clock of the trace.
    pub started_ns: u64,
    /// Start since 1970 (UTC).
    pub started_unix_ns: Option<u64>,
    /// Length of the recording.
    pub duration_ns: u64,
    /// Of `duration_ns`: inferred from the first and last event where the trace has no first or
    /// last line.
    pub basis: Basis,
    /// Count and time of its pauses.
    pub pauses: PauseTotal,
    /// The longest.
    pub max_ns: Option<u64>,
    /// Observed time of its processes that ran the collector.
    pub observed_ns: u64,
    /// Time stopped, as in `totals`.
    pub stopped_ns: u64,
    /// `stopped_ns` / `observed_ns`.
    pub stopped_ratio: Option<f64>,
    /// Processes that ran the collector.
    pub processes: u64,
    /// Why the recording ended; absent where the trace has no last line.
    pub ended: Option<String>,
    /// Exit code of the command.
    pub exit_code: Option<i32>,
    /// Where the file is cut off: byte and line.
    pub cut_at: Option<String>,
    /// Why the file could not be read to its end; what came before is in the figures.
    pub damage: Option<String>,
    /// Events lost.
    pub lost: u64,
    /// Things that made no sense, the first few with their place.
    pub anomalies: Vec<String>,
    /// Most frames of a stack that were recorded; 0 where stacks were not.
    pub stack_depth: Option<u32>,
    /// Counters that were asked for and that the machine does not have, by name, and why.
    pub counters_missing: std::collections::BTreeMap<String, String>,
    /// What the recorder had to say, at most 100 notes; `notes_left_out` counts the others.
    pub notes: Vec<String>,
    /// Notes beyond those in `notes`.
    pub notes_left_out: u64,
}

/// One process that ran the collector.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProcessReport {
    /// Index in `traces`.
    pub trace: usize,
    /// Process id on the host.
    pub pid: u32,
    /// Process id inside its own namespace, when that is another.
    pub namespace_pid: Option<u32>,
    /// Parent.
    pub parent: Option<u32>,
    /// Rank in a distributed job.
    pub rank: Option<u32>,
    /// Command line, or the name given by another tool.
    pub command: Vec<String>,
    /// `launched`, `child` or `attached`; absent in traces of other tools.
    pub origin: Option<String>,
    /// Its interpreter.
    pub interpreter: Option<InterpreterReport>,
    /// From when on its pauses are complete, after the start of the recording.
    pub since_start_ns: u64,
    /// How long it was recorded.
    pub observed_ns: u64,
    /// Of `observed_ns`: inferred where begin or end is that of its events.
    pub basis: Basis,
    /// Pauses.
    pub pauses: PausesReport,
    /// By generation: 0, 1, 2, unknown.
    pub by_generation: [PauseTotal; 4],
    /// By reason: automatic, manual, shutdown, unknown.
    pub by_reason: [PauseTotal; 4],
    /// Time during which the collector ran, overlaps once.
    pub paused_ns: u64,
    /// Time during which its Python code stood still.
    pub stopped_ns: u64,
    /// `stopped_ns` / `observed_ns`, at most 1.
    pub stopped_ratio: Option<f64>,
    /// Threads that ran the collector.
    pub threads: u64,
    /// Automatic collections of the youngest generation per second of observed time.
    pub young_per_s: Option<f64>,
    /// Objects that automatic collections freed, per second of observed time.
    pub freed_per_s: Option<f64>,
    /// Settings of the collector.
    pub settings: Option<SettingsReport>,
    /// How the full collection grows with the heap.
    pub growth: Option<GrowthReport>,
    /// Python lines and stacks that trigger its collections; absent where no pause has a stack.
    pub lines: Option<LinesReport>,
    /// Its allocation pressure, where recorded.
    pub pressure: Option<PressureReport>,
    /// Its allocations as windows on the allocator saw them (`--alloc`).
    pub allocations: Option<AllocationsReport>,
    /// Its performance counters, where recorded.
    pub counters: Option<CountersReport>,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    pub exit_signal: Option<i32>,
}

/// The interpreter of a process.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InterpreterReport {
    /// Version.
    pub version: String,
    /// `generational`, `incremental` or `free-threaded`.
    pub collector: String,
    /// Build without the global interpreter lock.
    pub free_threaded: bool,
    /// File that holds the collector.
    pub file: String,
    /// How the collector was found in it.
    pub found_by: String,
}

/// The collector's settings of a process, as last seen.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SettingsReport {
    /// Always measured.
    pub basis: Basis,
    /// `gc.isenabled()`.
    pub enabled: Option<bool>,
    /// `gc.get_threshold()`.
    pub thresholds: [i32; 3],
    /// How often they changed after they were first seen.
    pub changes: u64,
}
