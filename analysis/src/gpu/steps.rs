//! Training steps: their lengths, the share of garbage collection, and whether those with a full
//! collection were longer.

use super::device::DeviceTimeline;
use super::kept::KeptTimeline;
use super::replay::StepIdle;
use super::replays::JobReplays;
use super::timeline::{ProcessTimeline, StepSource, StepSpan, ThreadIndex, Timeline};
use crate::ProcessStepRow;
use crate::distribution::Distribution;
use crate::report::{
    Basis, FullBy, IdleCause, IdlePart, MedianComparison, MedianDifference, NoComparison,
    ProcessSteps, StepComparison, StepDifference, StepLengths, StepReport, StepsReport,
};
use crate::spans::PauseSpan;
use crate::time::intervals::Intervals;
use crate::time::{add_to, duration, sum, times};
use gctrace_event::Pause;
use gctrace_stats::{Estimate, bootstrap, ratio, signed};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

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

/// All steps; `None` if there are none. `all_full`: processes (trace and id) whose collector runs
/// only full collections, as in free-threaded builds.
pub(crate) fn report(
    timelines: &[KeptTimeline],
    replays: &JobReplays,
    all_full: &HashSet<(usize, u32)>,
) -> Option<StepsReport> {
    let with_steps = replays.with_steps(timelines);
    let mut with_steps: Vec<_> =
        with_steps.filter(|(timeline, _)| !timeline.steps.is_empty()).collect();
    if with_steps.is_empty() {
        return None;
    }
    with_steps.sort_by_key(|(timeline, _)| Reverse(timeline.steps.len()));
    let left_out = with_steps.split_off(with_steps.len().min(PROCESSES)).len();
    let of_process = |(timeline, causes): &(&KeptTimeline, Option<&StepIdle>)| {
        let full = all_full.contains(&(timeline.process_trace, timeline.pid));
        let idle = timeline.has_gpu_times().then(|| idle(&timeline.whole()));
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
        let idle = timeline.has_gpu_times().then(|| idle(&timeline.whole()));
        let table = ProcessStepTable::of(timeline, idle.as_deref(), causes, full)?;
        let known = timeline.is_ours || !timeline.pauses.is_empty();
        Some(ProcessStepRow {
            trace: timeline.trace,
            pid: timeline.pid,
            rank: timeline.rank,
            host: None,
            steps: table.steps.iter().map(|step| step.report(known)).collect(),
        })
    };
    let mut rows: Vec<ProcessStepRow> = replays.with_steps(timelines).filter_map(row).collect();
    rows.sort_by_key(|row| (row.rank.unwrap_or(u32::MAX), row.trace, row.pid));
    rows
}

/// The steps of one process with what happened in each.
struct ProcessStepTable<'a> {
    timeline: &'a ProcessTimeline,
    thread: ThreadIndex,
    source: StepSource,
    full_by: FullBy,
    steps: Vec<StepSums<'a>>,
}

#[derive(Clone, Copy)]
struct StepSums<'a> {
    span: StepSpan,
    gc_ns: u64,
    collections: u64,
    full: u64,
    gpu_idle_ns: Option<u64>,
    gpu_idle_causes: Option<&'a BTreeMap<IdleCause, u64>>,
}

impl StepSums<'_> {
    /// `shows_gc`: whether the trace would show collections.
    fn report(&self, shows_gc: bool) -> StepReport {
        StepReport {
            number: self.span.number,
            start_ns: self.span.start_ns,
            duration_ns: self.duration_ns(),
            gc_ns: shows_gc.then_some(self.gc_ns),
            full_collections: self.full,
            gpu_idle_ns: self.gpu_idle_ns,
            gpu_idle_causes: self.causes(),
        }
    }

    fn causes(&self) -> Option<Vec<IdlePart>> {
        let causes = self.gpu_idle_causes?.iter();
        Some(IdlePart::sorted(causes.map(|(cause, ns)| (*cause, *ns))))
    }

    fn duration_ns(&self) -> u64 {
        duration(self.span.start_ns, self.span.end_ns)
    }
}

impl<'a> ProcessStepTable<'a> {
    /// `idle`: when each device of the process did nothing, `causes`: why; `None` if unknown.
    fn of(
        timeline: &'a ProcessTimeline,
        idle: Option<&[Intervals]>,
        causes: Option<&'a StepIdle>,
        all_full: bool,
    ) -> Option<Self> {
        let thread = busiest_thread(timeline)?;
        let spans = || timeline.steps.iter().filter(|step| step.thread == thread);
        let collected = Intervals::from_iter(timeline.pauses.iter().map(PauseSpan::span));
        let steps = spans().enumerate().map(|(at, span)| {
            let begun = begun_in(&timeline.pauses, span);
            let full = begun.iter().filter(|pause| all_full || is_full(pause));
            let overlapping = collected.length_within(span.start_ns, span.end_ns);
            StepSums {
                span: *span,
                gc_ns: overlapping,
                collections: (begun.len() as u64).max(u64::from(overlapping > 0)),
                full: full.count() as u64,
                gpu_idle_ns: idle.map(|idle| {
                    let within = |gaps: &Intervals| gaps.length_within(span.start_ns, span.end_ns);
                    sum(idle.iter().map(within))
                }),
                gpu_idle_causes: causes.and_then(|causes| causes.get(at)),
            }
        });
        Some(Self {
            timeline,
            thread,
            source: spans().next()?.source,
            full_by: full_by(&timeline.pauses, all_full),
            steps: steps.collect(),
        })
    }

    fn report(&self) -> Option<ProcessSteps> {
        let timeline = self.timeline;
        let length = self.lengths()?;
        let gc_ns = sum(self.steps.iter().map(|step| step.gc_ns));
        let known = timeline.is_ours || !timeline.pauses.is_empty();
        let idle_ns: Option<Vec<u64>> = self.steps.iter().map(|step| step.gpu_idle_ns).collect();
        Some(ProcessSteps {
            trace: timeline.trace,
            pid: timeline.pid,
            rank: timeline.rank,
            tid: timeline.threads[self.thread].tid,
            source: self.source,
            count: self.steps.len() as u64,
            left_out: (timeline.steps.len() - self.steps.len()) as u64,
            gc_ns: known.then_some(gc_ns),
            gc_ratio: known.then(|| ratio(gc_ns, length.total_ns)).flatten(),
            length,
            with_gc: self.count(|step| step.collections > 0),
            gpu_idle_ns: idle_ns.map(sum),
            gpu_idle_causes: self.causes(),
            full_by: self.full_by,
            full_collections: self.steps.iter().map(|step| step.full).sum(),
            with_full: self.with_full(known),
            after_full: self.after_full(known),
            longest: self.longest(known),
        })
    }

    /// Of all steps; `None` if unknown of any.
    fn causes(&self) -> Option<Vec<IdlePart>> {
        let mut sums: BTreeMap<IdleCause, u64> = BTreeMap::new();
        for step in &self.steps {
            for (cause, time_ns) in step.gpu_idle_causes? {
                add_to(sums.entry(*cause).or_default(), *time_ns);
            }
        }
        Some(IdlePart::sorted(sums))
    }

    fn count(&self, which: impl Fn(&StepSums) -> bool) -> u64 {
        self.steps.iter().filter(|step| which(step)).count() as u64
    }

    /// `None` without steps.
    fn lengths(&self) -> Option<StepLengths> {
        let mut distribution = Distribution::default();
        let mut min_ns = u64::MAX;
        for step in &self.steps {
            min_ns = min_ns.min(step.duration_ns());
            distribution.add(step.duration_ns());
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

    fn with_full(&self, known: bool) -> StepComparison {
        let lengths = |full: bool| -> Vec<f64> {
            let steps = self.steps.iter().filter(|step| (step.full > 0) == full);
            steps.map(|step| step.duration_ns() as f64).collect()
        };
        let (these, others) = (lengths(true), lengths(false));
        let estimate = bootstrap::difference(&these, &others);
        let (with, without) = (these.len() as u64, others.len() as u64);
        let few = NoComparison::FewSteps { with, without };
        let missing = if known { few } else { NoComparison::UnknownCollections };
        comparison(&these, &others, estimate, missing)
    }

    fn after_full(&self, known: bool) -> MedianComparison {
        let spans: Vec<StepSpan> = self.steps.iter().map(|step| step.span).collect();
        let trained = self.steps.get(warm_up(&spans)..).unwrap_or_default();
        let (mut after, mut others) = (Vec::new(), Vec::new());
        for pair in trained.windows(2) {
            match pair {
                [_, step] if step.full > 0 => {}
                [before, step] if before.full > 0 => after.push(step.duration_ns()),
                [_, step] => others.push(step.duration_ns()),
                _ => {}
            }
        }
        let lengths = |steps: &[u64]| steps.iter().map(|ns| *ns as f64).collect::<Vec<f64>>();
        let estimate = bootstrap::median_difference(&lengths(&after), &lengths(&others));
        let (count, other_count) = (after.len() as u64, others.len() as u64);
        let few = NoComparison::FewAfterFull { after: count, others: other_count };
        MedianComparison {
            basis: Basis::Inferred,
            count,
            median_ns: gctrace_stats::median_low(&mut after),
            other_count,
            other_median_ns: gctrace_stats::median_low(&mut others),
            difference: estimate.map(|estimate| MedianDifference {
                median_ns: signed(estimate.value),
                low_ns: signed(estimate.low),
                high_ns: signed(estimate.high),
            }),
            missing: estimate.is_none().then_some(if known {
                few
            } else {
                NoComparison::UnknownCollections
            }),
        }
    }

    fn longest(&self, shows_gc: bool) -> Vec<StepReport> {
        let mut steps: Vec<&StepSums> = self.steps.iter().collect();
        steps.sort_by_key(|step| (Reverse(step.duration_ns()), step.span.start_ns));
        steps.iter().take(LONGEST).map(|step| step.report(shows_gc)).collect()
    }
}

/// Number of steps of the warm-up, of the steps of one thread in order.
pub(crate) fn warm_up(steps: &[StepSpan]) -> usize {
    let length_ns = |step: &StepSpan| duration(step.start_ns, step.end_ns);
    let mut lengths: Vec<u64> = steps.iter().map(length_ns).collect();
    let median_ns = gctrace_stats::median_low(&mut lengths).unwrap_or(0);
    let long_ns = times(median_ns, WARM_UP_FACTOR);
    steps.iter().take_while(|step| length_ns(step) > long_ns).count()
}

/// The thread with the most steps; of several the first.
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

fn comparison(
    these: &[f64],
    others: &[f64],
    estimate: Option<Estimate>,
    missing: NoComparison,
) -> StepComparison {
    let mean_ns = |lengths: &[f64]| {
        let sum: f64 = lengths.iter().sum();
        let count = lengths.len();
        (count > 0).then(|| signed(sum / count as f64).unsigned_abs())
    };
    StepComparison {
        basis: Basis::Inferred,
        count: these.len() as u64,
        mean_ns: mean_ns(these),
        other_count: others.len() as u64,
        other_mean_ns: mean_ns(others),
        difference: estimate.map(|estimate| StepDifference {
            mean_ns: signed(estimate.value),
            low_ns: signed(estimate.low),
            high_ns: signed(estimate.high),
        }),
        missing: estimate.is_none().then_some(missing),
    }
}
