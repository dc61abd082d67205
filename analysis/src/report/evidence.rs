//! The parts of a report that support the verdict.

use super::{Basis, ByCause, Location, PauseTotal, PausesReport};
use gctrace_event::{GcReason, UnseenCollections};
use serde::Serialize;

/// One of the ten longest pauses of all traces: where, when and why it occurred.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorstPause {
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// Process id: on the host if gctrace recorded the process, otherwise as the trace states it.
    pub pid: u32,
    /// Rank of the process; `null` if unknown.
    pub rank: Option<u32>,
    /// Kernel id of the collecting thread.
    pub tid: u32,
    /// Name of the collecting thread; `null` if unknown.
    pub thread: Option<String>,
    /// The trigger line: the innermost line outside the standard library and installed packages, or
    /// the innermost line if there is none. `null` without a stack.
    pub line: Option<Location>,
    /// Start of the pause, in ns after the start of the recording.
    pub after_start_ns: u64,
    /// Start of the pause, in ns on the clock of the trace.
    pub start_ns: u64,
    /// Start of the pause, in ns of Unix time; `null` if the trace does not state the wall-clock
    /// time.
    pub unix_ns: Option<u64>,
    /// Length of the pause, in ns.
    pub duration_ns: u64,
    /// Generation collected, 0 to 2 (full collection); `null` if unknown.
    pub generation: Option<u8>,
    /// Why the collection ran: `automatic`, `manual` (`gc.collect()`), `shutdown` or `unknown`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub reason: GcReason,
    /// Objects found unreachable and freed; `null` if unknown.
    pub collected: Option<u64>,
    /// Objects after the collection: in the whole heap (CPython 3.14 and later) or in the oldest
    /// generation; `null` if unknown.
    pub objects: Option<u64>,
    /// CPU time of the collecting thread during the pause, in ns; `null` if it was not recorded.
    pub cpu_ns: Option<u64>,
    /// Whether the process or thread ended during the pause.
    pub unfinished: bool,
}

/// Collections that freed nothing, by kind.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FreedNothingReport {
    /// Always measured, from the number of objects that each collection freed.
    pub basis: Basis,
    /// Collections that freed nothing.
    #[serde(flatten)]
    pub by_cause: ByCause,
    /// All collections that freed nothing: the sum of the five kinds.
    pub total: PauseTotal,
    /// Share of `total` in the time of all pauses, 0 to 1.
    pub time_ratio: f64,
    /// All automatic full collections, for comparison with `automatic_full`.
    pub of_automatic_full: PauseTotal,
}

/// Collections requested by `gc.collect()` or `PyGC_Collect`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplicitCallsReport {
    /// Always measured: the reason was recorded with each collection.
    pub basis: Basis,
    /// Statistics of the pauses of these collections.
    pub pauses: PausesReport,
    /// Their share of the time of all pauses, 0 to 1.
    pub time_ratio: f64,
    /// Their share of the observed time; `null` if nothing was observed.
    pub observed_ratio: Option<f64>,
    /// Number of processes with such collections.
    pub processes: u64,
    /// Such collections per second of observed time of these processes; `null` if nothing was
    /// observed.
    pub rate_per_s: Option<f64>,
    /// Collections of unknown reason; some may be explicit too.
    pub of_unknown_reason: PauseTotal,
}

/// What recording cost the program, in CPU time of its threads.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OverheadReport {
    /// Always inferred: hits are counted. The time of our code at a hit is measured as the program runs. The time of
    /// the kernel and CPython is measured with warm and with cold caches; these are the ends of the range.
    pub basis: Basis,
    /// Hits and time per hit by kind of probe, in alphabetical order.
    pub probes: Vec<ProbeReport>,
    /// Hits times the likely time of a hit, in ns, summed over the probes with both that recorded processes hit;
    /// `null` if there are none. Without stops.
    pub time_ns: Option<u64>,
    /// Least of the range that contains it, in ns.
    pub time_at_least_ns: Option<u64>,
    /// Most of it, in ns.
    pub time_at_most_ns: Option<u64>,
    /// For how long programs were stopped until they had their probes, in ns; no CPU time. `null` if
    /// none was.
    pub stopped_ns: Option<u64>,
    /// The same for probes that other processes of the machine hit; `null` if there are none.
    pub elsewhere_ns: Option<u64>,
    /// CPU time of the recorded programs, in ns, the overhead included; `null` if unknown.
    pub cpu_ns: Option<u64>,
    /// By how much the program's CPU time is longer than without recording, as a share of that; `null`
    /// if unknown.
    pub cpu_ratio: Option<f64>,
    /// The same of `time_at_least_ns`.
    pub cpu_ratio_at_least: Option<f64>,
    /// The same of `time_at_most_ns`.
    pub cpu_ratio_at_most: Option<f64>,
    /// Hits of probes in recorded processes without a measured time; they are not in `time_ns`.
    pub hits_without_time: u64,
    /// Number of traces without overhead figures (cut off, or from other tools).
    pub traces_without_overhead: u64,
}

/// The overhead of one kind of probe.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProbeReport {
    /// Name of the kind of probe, for example `collector, entry and return`.
    pub probe: String,
    /// Whether other processes hit it: processes that are not recorded but run the same interpreter or use the same
    /// libraries. The recorded ones did not pay for that.
    pub elsewhere: bool,
    /// Number of hits, over all traces.
    pub hits: u64,
    /// Likely CPU time per hit, in ns; over several traces the mean weighted by hits. `null` if it was not measured.
    /// For `program stopped`, the length of a stop.
    pub ns_per_hit: Option<f64>,
}

/// Collections that the injected library could not see, by the interpreters' own count; they are in no
/// other figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnseenReport {
    /// Number of collections of interpreters before the library's hook was in place.
    pub at_start: u64,
    /// Number of the last collections of interpreters; no callback is called for these.
    pub at_end: u64,
    /// Number of starts and ends of interpreters with collections that could not be counted.
    pub uncounted: u64,
    /// CPU time that the ends of interpreters took, after the last function of `atexit`, in ns: their last
    /// collections and all else that is freed; `null` if unknown.
    pub end_ns: Option<u64>,
}

impl From<UnseenCollections> for UnseenReport {
    fn from(unseen: UnseenCollections) -> Self {
        let UnseenCollections { at_start, at_end, uncounted, end_ns } = unseen;
        Self { at_start, at_end, uncounted, end_ns: if end_ns > 0 { Some(end_ns) } else { None } }
    }
}

/// Recordings that keep only the last part (`--keep`): exact sums of the time before that part, deleted since, and in
/// no other figure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeletedReport {
    /// Number of segments that are deleted.
    pub segments: u64,
    /// Time from the start of the recording to the first segment that is left, in ns; for several recordings, the
    /// sum.
    pub time_ns: u64,
    /// All pauses in that time; pauses that were only counted are among them.
    pub pauses: PauseTotal,
    /// The longest of them, in ns; `null` if there were none.
    pub longest_ns: Option<u64>,
    /// The pauses by generation, ascending; pauses of unknown generation last.
    pub generations: Vec<DeletedGeneration>,
    /// All times off the CPU in that time that were recorded, of threads each.
    pub waits: PauseTotal,
    /// All operations on GPUs in that time that were recorded; the time of each counts, also of simultaneous ones.
    pub operations: PauseTotal,
    /// All calls of CUDA and NCCL in that time that were recorded.
    pub calls: PauseTotal,
    /// Number of events lost in that time.
    pub lost: u64,
}

/// The deleted pauses of one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeletedGeneration {
    /// The generation; `null` if it is unknown.
    pub generation: Option<u8>,
    /// Number of pauses.
    pub count: u64,
    /// Their time, in ns.
    pub time_ns: u64,
    /// The longest, in ns.
    pub longest_ns: u64,
    /// Objects that they freed, as far as that is known.
    pub collected: u64,
    /// Objects that they found unreachable and did not free, as far as that is known.
    pub uncollectable: u64,
}

/// GPU work that a recorder only counted. All figures on GPU work are of one part for each process, with nothing left
/// out: the part with the longest pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OmittedGpuReport {
    /// The operations that were only counted, and their time on GPUs; each counts, also simultaneous ones.
    pub operations: PauseTotal,
    /// The calls of CUDA and NCCL that were only counted, and the time of threads in them.
    pub calls: PauseTotal,
    /// Length of the part that the figures are of, in ns, the longest of all processes; `null` if there is
    /// none.
    pub known_ns: Option<u64>,
}

/// What the figures do not include.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissingData {
    /// Number of lost records, by where they were dropped; empty if none were lost.
    pub lost: std::collections::BTreeMap<String, u64>,
    /// Number of processes that may have run Python without being recorded, or for longer than
    /// recorded, by reason. A reason is a predicate, such as `ended before being examined`.
    pub unexamined: std::collections::BTreeMap<String, u64>,
    /// Whether every process that may have run Python was examined, so that nothing is missing beyond these counts.
    /// `null` if a trace does not contain this: older versions, other tools, and traces without a last line.
    pub every_process_examined: Option<bool>,
    /// Collections that the library could not see, over all traces; `null` if no trace states it. Traces of probes,
    /// of older versions and of other tools, and traces without a last line, do not.
    pub unseen: Option<UnseenReport>,
    /// Pauses shorter than `--min-pause`: counted without details. Their time is in the totals.
    pub omitted: PauseTotal,
    /// Times of threads off the CPU that a recorder only counted, beyond `--per-day`; in no other figure.
    pub omitted_waits: PauseTotal,
    /// Other records that a recorder only counted, beyond `--per-day`, by name: `called`, calls of finalizers and
    /// callbacks; `layers`, measured steps; `memory`, readings of device memory; `memory_calls`, CUDA calls about
    /// memory and calls that failed; `backward`, passes of steps with other marks; `gpu_samples`, NVML's; in no other
    /// figure. `samples` count where a later one of their process was taken.
    pub omitted_others: std::collections::BTreeMap<String, PauseTotal>,
    /// GPU work that a recorder only counted, beyond `--per-day`; `null` if there is none.
    pub omitted_gpu_work: Option<OmittedGpuReport>,
    /// Sums of deleted parts of recordings that keep the last part; `null` if nothing was deleted.
    pub deleted: Option<DeletedReport>,
    /// Pauses cut short by the end of their process or thread; they are in the figures.
    pub unfinished: PauseTotal,
    /// Number of inconsistent records that were ignored.
    pub anomalies: u64,
    /// Files that were named but could not be read, with the reason.
    pub unreadable: Vec<String>,
    /// Number of traces without a last line: cut off, or the recorder was killed.
    pub traces_without_end: u64,
    /// Number of processes that were already running when the recording started; their earlier activity is unknown.
    pub attached: u64,
    /// Number of processes with overlapping pauses that may be counted twice, because their trace is far out of
    /// order.
    pub inexact_overlaps: u64,
    /// Number of pauses that the probes and the library recorded separately (`--mode both`); each is
    /// in the figures once.
    pub recorded_twice: u64,
}
