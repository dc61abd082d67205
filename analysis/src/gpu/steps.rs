//! Training steps: their lengths, the share of garbage collection, and whether steps with a full collection were
//! longer.

pub(crate) mod comparison;

use self::comparison::{MedianComparison, StepComparison};
use super::device::DeviceTimeline;
use super::idle::{IdleCause, IdlePart};
use super::kept::KeptTimeline;
use super::replay::StepIdle;
use super::replays::JobReplays;
use super::timeline::{ProcessTimeline, StepSource, StepSpan, ThreadIndex, Timeline};
use crate::ProcessStepRow;
use crate::distribution::Distribution;
use crate::figure::Basis;
use crate::spans::PauseSpan;
use crate::time::intervals::Intervals;
use crate::time::{add_to, duration_ns, sum, times};
use gctrace_event::Pause;
use gctrace_stats::ratio;
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

/// Training steps: annotations `ProfilerStep#n` of the PyTorch profiler, or the time from one mark of
/// a step to the next.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepsReport {
    /// Basis of lengths: measured, or inferred if any steps are periods of launches. Comparisons
    /// have their own.
    pub basis: Basis,
    /// Processes with steps, the most steps first, at most 64.
    pub processes: Vec<ProcessSteps>,
    /// Number of processes with steps that are not listed.
    pub processes_left_out: u64,
}

/// The steps of one process: from its thread with the most steps.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessSteps {
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// Process id: on the host if gctrace recorded the process, otherwise as the trace states it.
    pub pid: u32,
    /// Rank in a distributed job; `null` if unknown.
    pub rank: Option<u32>,
    /// Id of the thread that ran the steps.
    pub tid: u32,
    /// The mark that delimits the steps.
    pub source: StepSource,
    /// Number of steps of the thread `tid`; the other figures are about these.
    pub count: u64,
    /// Number of steps of other threads; these figures omit them.
    pub left_out: u64,
    /// Distribution of the lengths of these steps.
    pub length: StepLengths,
    /// Time of collections within the steps, of any thread of the process, overlapping ones once,
    /// in ns. `null` if the trace would not show collections.
    pub gc_ns: Option<u64>,
    /// `gc_ns` as a share of the time of all steps, 0 to 1; `null` as `gc_ns`.
    pub gc_ratio: Option<f64>,
    /// Number of steps with a collection.
    pub with_gc: u64,
    /// Idle time of the process's devices within the steps, in ns, summed over devices; `null`
    /// without GPU times.
    pub gpu_idle_ns: Option<u64>,
    /// `gpu_idle_ns` by cause, as in `gpu.idle` (inferred), the longest first; `null` where
    /// there is no ledger.
    pub gpu_idle_causes: Option<Vec<IdlePart>>,
    /// How full collections were recognized: by their generation or their length.
    pub full_by: FullBy,
    /// Number of full collections in the steps.
    pub full_collections: u64,
    /// Steps with a full collection compared with steps without one.
    pub with_full: StepComparison,
    /// Steps that follow one with a full collection compared with all others, both without a full
    /// collection of their own and without the warm-up: after a full collection caches are cold.
    pub after_full: MedianComparison,
    /// The longest steps, longest first, at most ten.
    pub longest: Vec<StepReport>,
}

/// How full collections were recognized, given what the trace contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FullBy {
    /// By their generation.
    Generation,
    /// By a pause of 1 ms or more: the trace contains no generations.
    Length,
    /// By their generation, where the trace contains it, otherwise by their length.
    GenerationOrLength,
}

/// A distribution of lengths. Percentiles are by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepLengths {
    /// Sum of the lengths, in ns.
    pub total_ns: u64,
    /// Mean length of a step, in ns.
    pub mean_ns: u64,
    /// Length of the shortest step, in ns.
    pub min_ns: u64,
    /// Median of the lengths, in ns.
    pub p50_ns: u64,
    /// 90th percentile of the lengths, in ns.
    pub p90_ns: u64,
    /// 99th percentile of the lengths, in ns.
    pub p99_ns: u64,
    /// Length of the longest step, in ns.
    pub max_ns: u64,
    /// Largest relative error of the percentiles; 0 if they are exact (up to 4,096 steps).
    pub percentile_error_ratio: f64,
}

fn number_or_0<S: Serializer>(number: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(number.unwrap_or(0))
}

/// One training step and what happened during it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepReport {
    /// Its number in the trace (`ProfilerStep#n`), otherwise counted from 0.
    pub number: u64,
    /// Start, in ns on the clock of the trace.
    pub start_ns: u64,
    /// Length of the step, in ns.
    pub duration_ns: u64,
    /// Time of collections within the step, in ns; 0 if the trace would not show collections.
    #[serde(serialize_with = "number_or_0")]
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub gc_ns: Option<u64>,
    /// Number of full collections that started in it.
    pub full_collections: u64,
    /// Idle time of the process's devices within it, in ns; `null` without GPU times.
    pub gpu_idle_ns: Option<u64>,
    /// The same by cause, as for the process. If a gap is in several steps, each has its share of every part.
    pub gpu_idle_causes: Option<Vec<IdlePart>>,
}

/// The first steps are warm-up, thus part of start-up, as long as each is this many times longer
/// than the median step: compiling and autotuning take seconds, a slow step seldom the triple.
const WARM_UP_FACTOR: u64 = 3;
/// Processes in the report.
const PROCESSES: usize = 64;
/// Longest steps of a process in the report.
const LONGEST: usize = 10;
/// If the generation is unknown, a pause of this length is assumed to be a full collection: with
/// CPython's default thresholds collections of the younger generations visit some thousand objects,
/// and visiting one takes some tens of nanoseconds.
const FULL_FROM_NS: u64 = 1_000_000;

/// All steps; `None` if there are none. `all_full`: processes (trace and id) with a collector that runs only full
/// collections, as in free-threaded builds.
pub(crate) fn report(
    timelines: &[KeptTimeline],
    replays: &JobReplays,
    all_full: &HashSet<(usize, u32)>,
) -> Option<StepsReport> {
    let mut with_steps: Vec<_> = replays.with_steps(timelines).collect();
    with_steps.retain(|(timeline, _)| !timeline.steps.is_empty());
    if with_steps.is_empty() {
        return None;
    }
    with_steps.sort_by_key(|(timeline, _)| Reverse(timeline.steps.len()));
    let left_out = with_steps.split_off(with_steps.len().min(PROCESSES)).len();
    let of_process = |(timeline, causes): &(&KeptTimeline, Option<&StepIdle>)| {
        let full = all_full.contains(&(timeline.process_trace, timeline.pid));
        let idle = if timeline.has_gpu_times() { Some(idle(&timeline.whole())) } else { None };
        ProcessStepTable::of(timeline, idle.as_deref(), *causes, full)?.report()
    };
    let processes: Vec<ProcessSteps> = with_steps.iter().filter_map(of_process).collect();
    let periodic = |process: &ProcessSteps| process.source == StepSource::PeriodicLaunches;
    Some(StepsReport {
        basis: if processes.iter().any(periodic) { Basis::Inferred } else { Basis::Measured },
        processes,
        processes_left_out: left_out as u64,
    })
}

/// Each step of every process with steps, by rank. `all_full` as for [`report`].
pub(crate) fn rows(
    timelines: &[KeptTimeline],
    replays: &JobReplays,
    all_full: &HashSet<(usize, u32)>,
) -> Vec<ProcessStepRow> {
    let row = |(timeline, causes): (&KeptTimeline, Option<&StepIdle>)| {
        let full = all_full.contains(&(timeline.process_trace, timeline.pid));
        let idle = if timeline.has_gpu_times() { Some(idle(&timeline.whole())) } else { None };
        let table = ProcessStepTable::of(timeline, idle.as_deref(), causes, full)?;
        Some(ProcessStepRow {
            trace: timeline.trace,
            pid: timeline.pid,
            rank: timeline.rank,
            host: None,
            steps: table.steps,
        })
    };
    let mut rows: Vec<ProcessStepRow> = replays.with_steps(timelines).filter_map(row).collect();
    rows.sort_by_key(|row| (row.rank.is_none(), row.rank, row.trace, row.pid));
    rows
}

/// The steps of one process with what happened in each.
struct ProcessStepTable<'a> {
    timeline: &'a ProcessTimeline,
    /// Steps of the thread with the most.
    spans: Vec<StepSpan>,
    /// Whether the trace would show collections.
    shows_gc: bool,
    full_by: FullBy,
    /// Number of steps with a collection.
    with_gc: u64,
    /// What happened in each of `spans`.
    steps: Vec<StepReport>,
}

impl<'a> ProcessStepTable<'a> {
    /// `idle`: when each device of the process did nothing, `causes`: why; `None` if unknown.
    fn of(
        timeline: &'a ProcessTimeline,
        idle: Option<&[Intervals]>,
        causes: Option<&StepIdle>,
        all_full: bool,
    ) -> Option<Self> {
        let thread = busiest_thread(timeline)?;
        let spans = timeline.steps.iter().filter(|step| step.thread == thread);
        let spans: Vec<StepSpan> = spans.copied().collect();
        let shows_gc = timeline.is_ours || !timeline.pauses.is_empty();
        let collected = Intervals::from_iter(timeline.pauses.iter().map(PauseSpan::span));
        let mut with_gc = 0;
        let steps = spans.iter().enumerate().map(|(at, span)| {
            let begun = begun_in(&timeline.pauses, span);
            let full = begun.iter().filter(|pause| all_full || is_full(pause));
            let gc_ns = collected.length_within(span.start_ns, span.end_ns);
            with_gc += u64::from(!begun.is_empty() || gc_ns > 0);
            let causes = causes.and_then(|causes| causes.get(at));
            StepReport {
                number: span.number,
                start_ns: span.start_ns,
                duration_ns: duration_ns(span.start_ns, span.end_ns),
                gc_ns: if shows_gc { Some(gc_ns) } else { None },
                full_collections: full.count() as u64,
                gpu_idle_ns: idle.map(|idle| {
                    let within = |gaps: &Intervals| gaps.length_within(span.start_ns, span.end_ns);
                    sum(idle.iter().map(within))
                }),
                gpu_idle_causes: causes
                    .map(|causes| IdlePart::sorted(causes.iter().map(|(cause, ns)| (*cause, *ns)))),
            }
        });
        let steps = steps.collect();
        let full_by = full_by(&timeline.pauses, all_full);
        Some(Self { timeline, spans, shows_gc, full_by, with_gc, steps })
    }

    fn report(&self) -> Option<ProcessSteps> {
        let timeline = self.timeline;
        let first = self.spans.first()?;
        let length = self.lengths()?;
        let gc_ns = sum(self.steps.iter().filter_map(|step| step.gc_ns));
        let gc_ns = if self.shows_gc { Some(gc_ns) } else { None };
        let idle_ns: Option<Vec<u64>> = self.steps.iter().map(|step| step.gpu_idle_ns).collect();
        Some(ProcessSteps {
            trace: timeline.trace,
            pid: timeline.pid,
            rank: timeline.rank,
            tid: timeline.threads[first.thread].tid,
            source: first.source,
            count: self.steps.len() as u64,
            left_out: (timeline.steps.len() - self.steps.len()) as u64,
            gc_ns,
            gc_ratio: gc_ns.and_then(|gc_ns| ratio(gc_ns, length.total_ns)),
            length,
            with_gc: self.with_gc,
            gpu_idle_ns: idle_ns.map(sum),
            gpu_idle_causes: self.causes(),
            full_by: self.full_by,
            full_collections: self.steps.iter().map(|step| step.full_collections).sum(),
            with_full: self.with_full(),
            after_full: self.after_full(),
            longest: self.longest(),
        })
    }

    /// Causes over all steps; `None` if they are unknown for any.
    fn causes(&self) -> Option<Vec<IdlePart>> {
        let mut sums: BTreeMap<IdleCause, u64> = BTreeMap::new();
        for step in &self.steps {
            for part in step.gpu_idle_causes.as_ref()? {
                add_to(sums.entry(part.cause).or_default(), part.time_ns);
            }
        }
        Some(IdlePart::sorted(sums))
    }

    /// `None` without steps.
    fn lengths(&self) -> Option<StepLengths> {
        let mut distribution = Distribution::default();
        let mut min_ns = u64::MAX;
        for step in &self.steps {
            min_ns = min_ns.min(step.duration_ns);
            distribution.add(step.duration_ns);
        }
        let [p50_ns, p90_ns, p99_ns] = distribution.percentiles([50.0, 90.0, 99.0])?;
        Some(StepLengths {
            total_ns: distribution.sum(),
            mean_ns: distribution.sum() / distribution.count(),
            min_ns,
            p50_ns,
            p90_ns,
            p99_ns,
            max_ns: distribution.max()?,
            percentile_error_ratio: distribution.error_ratio(),
        })
    }

    fn with_full(&self) -> StepComparison {
        let lengths = |full: bool| -> Vec<f64> {
            let steps = self.steps.iter().filter(|step| (step.full_collections > 0) == full);
            steps.map(|step| step.duration_ns as f64).collect()
        };
        StepComparison::of(&lengths(true), &lengths(false), self.shows_gc)
    }

    fn after_full(&self) -> MedianComparison {
        let trained = gctrace_units::part(&self.steps, warm_up(&self.spans)..);
        let (mut after, mut others) = (Vec::new(), Vec::new());
        for pair in trained.windows(2) {
            match pair {
                [_, step] if step.full_collections > 0 => {}
                [before, step] if before.full_collections > 0 => after.push(step.duration_ns),
                [_, step] => others.push(step.duration_ns),
                _ => {}
            }
        }
        MedianComparison::of(after, others, self.shows_gc)
    }

    fn longest(&self) -> Vec<StepReport> {
        let mut steps: Vec<&StepReport> = self.steps.iter().collect();
        steps.sort_by_key(|step| (Reverse(step.duration_ns), step.start_ns));
        steps.into_iter().take(LONGEST).cloned().collect()
    }
}

/// Number of steps of the warm-up, of the steps of one thread in order.
pub(crate) fn warm_up(steps: &[StepSpan]) -> usize {
    let length_ns = |step: &StepSpan| duration_ns(step.start_ns, step.end_ns);
    let mut lengths: Vec<u64> = steps.iter().map(length_ns).collect();
    let median_ns = gctrace_stats::median_low(&mut lengths).unwrap_or(0);
    let long_ns = times(median_ns, WARM_UP_FACTOR);
    steps.iter().take_while(|step| length_ns(step) > long_ns).count()
}

/// The thread with the most steps; the first of several.
pub(crate) fn busiest_thread(timeline: &ProcessTimeline) -> Option<ThreadIndex> {
    let mut counts: BTreeMap<ThreadIndex, usize> = BTreeMap::new();
    for step in &timeline.steps {
        *counts.entry(step.thread).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(thread, count)| (*count, Reverse(*thread)));
    most.map(|(thread, _)| thread)
}

/// Idle time by device.
fn idle(timeline: &Timeline) -> Vec<Intervals> {
    let works = DeviceTimeline::of(timeline);
    let idle = works.iter().map(|work| {
        let gaps = work.gaps();
        Intervals::from_iter(gaps.iter().map(|gap| (gap.start_ns, gap.end_ns)))
    });
    idle.collect()
}

/// Pauses that started within a step; pauses are sorted by start.
fn begun_in<'a>(pauses: &'a [PauseSpan], step: &StepSpan) -> &'a [PauseSpan] {
    let first = pauses.partition_point(|pause| pause.start_ns < step.start_ns);
    let behind = pauses.partition_point(|pause| pause.start_ns < step.end_ns);
    &pauses[first..behind]
}

fn is_full(pause: &PauseSpan) -> bool {
    match pause.generation {
        Pause::UNKNOWN_GENERATION => pause.duration_ns() >= FULL_FROM_NS,
        generation => generation == 2,
    }
}

fn full_by(pauses: &[PauseSpan], all_full: bool) -> FullBy {
    let unknown = |pause: &PauseSpan| pause.generation == Pause::UNKNOWN_GENERATION;
    match () {
        () if all_full || !pauses.iter().any(unknown) => FullBy::Generation,
        () if pauses.iter().all(unknown) => FullBy::Length,
        () => FullBy::GenerationOrLength,
    }
}
