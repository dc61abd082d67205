//! The parts of a report that prove the verdict.

use super::Basis;
use super::Location;
use schemars::JsonSchema;
use serde::Serialize;

/// Count and time of some pauses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PauseTotal {
    /// How many.
    pub count: u64,
    /// Their lengths added.
    pub time_ns: u64,
}

/// A set of pauses.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PausesReport {
    /// Always measured.
    pub basis: Basis,
    /// How many.
    pub count: u64,
    /// Their lengths added; overlaps counted as often as they occur.
    pub time_ns: u64,
    /// Half of the pauses are no longer than this (nearest rank).
    pub p50_ns: Option<u64>,
    /// 90 % of the pauses are no longer than this.
    pub p90_ns: Option<u64>,
    /// 99 % of the pauses are no longer than this.
    pub p99_ns: Option<u64>,
    /// The longest.
    pub max_ns: Option<u64>,
    /// How far the percentiles can be off: 0 up to 4,096 pauses, otherwise 0.001, for a single
    /// process 0.01. Everything else is exact.
    pub percentile_error_ratio: f64,
    /// Objects freed, by the pauses that tell.
    pub collected: u64,
    /// Objects found unreachable and not freed, by the pauses that tell.
    pub uncollectable: u64,
    /// Pauses that freed nothing and found nothing.
    pub freed_nothing: PauseTotal,
    /// Pauses that do not tell what they freed.
    pub outcome_unknown: u64,
    /// Processor time within the pauses, where recorded.
    pub cpu: Option<CpuTime>,
    /// Of free-threaded builds.
    pub stop_the_world: Option<StopTheWorld>,
}

/// Processor time within pauses.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CpuTime {
    /// Pauses for which it is known.
    pub pauses: u64,
    /// Their length.
    pub pause_ns: u64,
    /// How long the collecting thread was on a processor.
    pub on_cpu_ns: u64,
    /// Share of the pauses during which it was not: preempted, or waiting for memory to be paged
    /// in.
    pub off_cpu_ratio: f64,
}

/// Free-threaded builds: the collector runs, and within that time it stops the other threads.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StopTheWorld {
    /// Runs for which it is known.
    pub runs: u64,
    /// Length of these runs.
    pub run_ns: u64,
    /// How long the other threads were stopped in them.
    pub stopped_ns: u64,
}

/// One of the longest pauses.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WorstPause {
    /// Index in `traces`.
    pub trace: usize,
    /// Process.
    pub pid: u32,
    /// Rank of the process.
    pub rank: Option<u32>,
    /// Kernel thread id.
    pub tid: u32,
    /// Name of the thread.
    pub thread: Option<String>,
    /// The line that triggered it: the innermost that is not of a library, else the innermost.
    pub line: Option<Location>,
    /// Begin, after the start of the recording.
    pub after_start_ns: u64,
    /// Begin, on the clock of the trace.
    pub start_ns: u64,
    /// Begin, since 1970 (UTC), where the trace tells.
    pub unix_ns: Option<u64>,
    /// Length.
    pub duration_ns: u64,
    /// Generation, where known.
    pub generation: Option<u8>,
    /// Why it ran.
    pub reason: String,
    /// Objects freed.
    pub collected: Option<u64>,
    /// Objects in the heap (3.14 and later) or the oldest generation afterwards.
    pub objects: Option<u64>,
    /// Time on a processor.
    pub cpu_ns: Option<u64>,
    /// The process or thread ended in it.
    pub unfinished: bool,
}

/// Collections that freed nothing: the work was for nothing.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FreedNothingReport {
    /// Always measured.
    pub basis: Basis,
    /// Automatic collections of the whole heap.
    pub automatic_full: PauseTotal,
    /// Other automatic collections.
    pub automatic_partial: PauseTotal,
    /// Collections that the program asked for.
    pub manual: PauseTotal,
    /// Those at the end of the interpreter.
    pub shutdown: PauseTotal,
    /// Those of unknown reason.
    pub unknown: PauseTotal,
    /// All of them.
    pub total: PauseTotal,
    /// Their share of the time of all pauses.
    pub time_ratio: f64,
    /// All automatic collections of the whole heap, for comparison.
    pub of_automatic_full: PauseTotal,
}

/// Collections by `gc.collect()` or `PyGC_Collect`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExplicitCallsReport {
    /// Always measured.
    pub basis: Basis,
    /// The pauses.
    pub pauses: PausesReport,
    /// Their share of the time of all pauses.
    pub time_ratio: f64,
    /// Share of the observed time.
    pub observed_ratio: Option<f64>,
    /// Processes in which they happened.
    pub processes: u64,
    /// Calls per second of observed time of these processes.
    pub rate_per_s: Option<f64>,
    /// Collections whose reason is not known: some of them may have been asked for too.
    pub of_unknown_reason: PauseTotal,
}

/// One full collection in a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GrowthPoint {
    /// Begin, after the start of the recording.
    pub after_start_ns: u64,
    /// Objects that were looked at: those left and those freed.
    pub objects: u64,
    /// Length.
    pub duration_ns: u64,
}

/// How the full collection's pause grows with the heap of one process. Collections at the end of
/// the interpreter are left out.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GrowthReport {
    /// The fit is inferred: it assumes that the pause is a straight line in the number of objects.
    pub basis: Basis,
    /// Full collections with a known number of objects.
    pub collections: u64,
    /// The first of them.
    pub first: GrowthPoint,
    /// The last of them.
    pub last: GrowthPoint,
    /// The one with the most objects.
    pub largest: GrowthPoint,
    /// Some of them, evenly spread over the series, at most 64, in order of time.
    pub over_time: Vec<GrowthPoint>,
    /// Nanoseconds more per million objects more; absent where the heap hardly changed.
    pub ns_per_million_objects: Option<f64>,
    /// Share of the variance of the pauses that the line explains, 0 to 1.
    pub r_squared: Option<f64>,
    /// The pause of a heap twice the largest; only where the line explains at least half of the
    /// variance.
    pub at_twice_the_heap: Option<Prediction>,
}

impl GrowthReport {
    /// The collection nearest to this share of the time between the first and the last.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in a series needs no more than 52 bits; casts of floats saturate"
    )]
    pub fn at(&self, ratio: f64) -> GrowthPoint {
        let span = self.last.after_start_ns - self.first.after_start_ns;
        let at_ns = self.first.after_start_ns + (span as f64 * ratio) as u64;
        let distance = |point: &&GrowthPoint| point.after_start_ns.abs_diff(at_ns);
        *self
            .over_time
            .iter()
            .min_by_key(distance)
            .unwrap_or(&self.last)
    }
}

/// A pause that was not seen.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Prediction {
    /// Always predicted.
    pub basis: Basis,
    /// Objects in the heap.
    pub objects: u64,
    /// Length of a full collection.
    pub duration_ns: u64,
}

/// What recording cost the program.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OwnCost {
    /// Inferred: hits are counted, the time per hit is measured on the same machine at the end of
    /// the recording.
    pub basis: Basis,
    /// By kind of probe.
    pub probes: Vec<ProbeReport>,
    /// Hits times time per hit, all probes that have both; absent where no probe has.
    pub time_ns: Option<u64>,
    /// Its share of the observed time.
    pub observed_ratio: Option<f64>,
    /// Hits without a measured time; they are not in `time_ns`.
    pub unpriced_hits: u64,
    /// Traces that do not tell the cost (of other tools, or cut off).
    pub traces_without_cost: u64,
}

/// One kind of probe.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProbeReport {
    /// What it probes.
    pub probe: String,
    /// Times it was hit.
    pub hits: u64,
    /// Nanoseconds per hit (over several traces: the mean by hits).
    pub ns_per_hit: Option<f64>,
}

/// What is not in the figures.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct MissingData {
    /// Events lost while recording, by where.
    pub lost: std::collections::BTreeMap<String, u64>,
    /// Processes that could have run Python unseen, or for longer than was seen, by reason: a clause whose subject
    /// they are, such as `ended before being examined`.
    pub unexamined: std::collections::BTreeMap<String, u64>,
    /// Every process that could have run Python was examined: nothing is missing but what is counted here. `null`
    /// where a trace does not tell: those of older versions, of other tools, and without a last line.
    pub every_process_examined: Option<bool>,
    /// Pauses under `--min-pause`: counted, not described. Their time is in the totals.
    pub omitted: PauseTotal,
    /// Pauses cut short by the end of their process or thread; they are in the figures.
    pub unfinished: PauseTotal,
    /// Things in the traces that made no sense and were left out.
    pub anomalies: u64,
    /// Files that were named and are in no figure, with the reason.
    pub unreadable: Vec<String>,
    /// Traces without a last line: cut off, or the recorder was killed.
    pub traces_without_end: u64,
    /// Processes that were running before the recording; what came before is not known.
    pub attached: u64,
    /// Processes whose overlapping pauses may have been counted twice, because the trace is far
    /// out of order.
    pub inexact_overlaps: u64,
}

/// One thing to do.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Advice {
    /// A stable name, for programs.
    pub id: String,
    /// What to do, in one line.
    pub action: String,
    /// The evidence in this report, and why the action helps.
    pub why: String,
    /// Lines to add or a command to run.
    pub code: Option<String>,
    /// What can go wrong.
    pub risk: Option<String>,
    /// At least this much time of the run is saved, by replay, what is not known taken for the worse; negative: it may
    /// cost as much. Absent where the GPU's times are not known.
    pub saves_at_least_ns: Option<i64>,
    /// At most this much is saved, if the program behaves as recorded: of the run, by replay, where
    /// `saves_at_least_ns` is given, otherwise of pause time.
    pub saves_at_most_ns: Option<u64>,
    /// Of both: predicted.
    pub basis: Basis,
}
