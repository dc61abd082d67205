//! From everything recorded to the programs that the predictions are about.

use super::assumed_outcome::RunBaseline;
use super::{ProgramModel, Scenario, outcome, scenarios, without_any};
use crate::accumulate::trace_state::TraceState;
use crate::gpu::kept::KeptTimeline;
use crate::gpu::replay::{JoinedSkeletons, ReplayChange};
use crate::gpu::replays::{JobReplays, RunLength};
use crate::report::{
    CauseReport, GpuCost, GpuWorkReport, PauseTotal, ProcessReport, SettingsReport, WhatIf,
};
use crate::time::stats::ratio;
use crate::time::{after, duration, times};
use gctrace_event::ProcessOrigin;
use std::collections::{HashMap, HashSet};

/// The predictions, and the cost of the pauses as measured.
#[derive(Debug, Default)]
pub(crate) struct WhatIfReport {
    pub(crate) what_if: Vec<WhatIf>,
    /// `None` without the GPU's times, or without pauses.
    pub(crate) cost: Option<GpuCost>,
}

/// The programs of a recording, and the changes whose effect is predicted.
pub(crate) struct PlannedChanges<'a> {
    programs: Vec<ProgramModel<'a>>,
    scenarios: Vec<Scenario>,
    without_any: ReplayChange,
}

impl<'a> PlannedChanges<'a> {
    /// Over all traces: of processes with GPU times if there are any, otherwise of those that made
    /// CUDA calls or took steps.
    pub(crate) fn of(
        traces: &[TraceState],
        timelines: &'a [KeptTimeline],
        processes: &[ProcessReport],
    ) -> Self {
        let programs = programs(traces, timelines, processes);
        Self { scenarios: scenarios(&programs), without_any: without_any(&programs), programs }
    }

    /// The changes that a replay is asked for, of the timelines with GPU times in their order. First
    /// the one without any pause that a setting affects, then the two sides of each scenario.
    pub(crate) fn changes(&self) -> Vec<&ReplayChange> {
        let sides = self.scenarios.iter();
        let sides = sides.flat_map(|side| [&side.pessimistic, &side.optimistic]);
        std::iter::once(&self.without_any).chain(sides).collect()
    }

    /// `replays`: of the timelines with GPU times, with [`Self::changes`].
    pub(crate) fn outlook(
        self,
        replays: &JobReplays,
        work: Option<&GpuWorkReport>,
    ) -> WhatIfReport {
        let programs = &self.programs;
        let jobs = replays.jobs();
        let run = |change| RunLength::of(&jobs, JoinedSkeletons::FIRST_CHANGE + change);
        let measured = RunLength::of(&jobs, JoinedSkeletons::MEASURED);
        let replay = (!jobs.is_empty())
            .then(|| RunBaseline::new(programs, measured, work.and_then(error_ratio)));
        let scenarios = self.scenarios.into_iter().enumerate();
        let outcomes = scenarios.map(|(at, scenario)| {
            let replay = replay.as_ref();
            let runs = replay.map(|replay| (replay, [run(1 + 2 * at), run(2 + 2 * at)]));
            outcome(scenario, programs, runs)
        });
        WhatIfReport {
            what_if: outcomes.collect(),
            cost: replay.as_ref().and_then(|replay| cost(programs, replay, run(0))),
        }
    }
}

/// Error of the cost of all pauses, as a share of their length: two standard errors, or the
/// unexplained part of the steps with pauses if that is larger; of the process or job with the
/// largest error. For ranks that wait for each other only the job as a whole is used: replayed
/// alone, one rank's steps keep the effect of the others' pauses.
fn error_ratio(work: &GpuWorkReport) -> Option<f64> {
    let jobs = || work.ranks.iter().flat_map(|ranks| &ranks.jobs);
    let ranks = jobs().flat_map(|job| &job.ranks);
    let ranks: HashSet<(u64, u32)> = ranks.map(|rank| (rank.trace, rank.pid)).collect();
    let in_job = |cause: &&CauseReport| ranks.contains(&(cause.trace as u64, cause.pid));
    let of_jobs = jobs().filter_map(|job| {
        let pauses = job.pauses.as_ref()?;
        let twice_ns = times(pauses.all_standard_error_ns?, 2);
        ratio(twice_ns, pauses.all.paused_ns)
    });
    let alone = work.cause.iter().filter(|cause| !in_job(cause));
    let each = alone.filter_map(|cause| {
        let twice_ns = times(cause.standard_error_ns?, 2);
        let unexplained = cause.steps.and_then(|steps| steps.unexplained_ns);
        let larger_ns = Some(twice_ns).max(unexplained.map(i64::unsigned_abs))?;
        ratio(larger_ns, cause.pauses.time_ns)
    });
    each.chain(of_jobs).max_by(f64::total_cmp)
}

/// `None` if all pauses are at interpreter shutdown.
fn cost(
    programs: &[ProgramModel<'_>],
    replay: &RunBaseline<'_>,
    without: RunLength,
) -> Option<GpuCost> {
    let mut all = PauseTotal::default();
    let mut longest_ns = 0;
    for (_, pause) in programs.iter().flat_map(ProgramModel::pauses) {
        all.add(pause.duration_ns());
        longest_ns = pause.duration_ns().max(longest_ns);
    }
    (all.count > 0).then(|| GpuCost {
        run_ns: replay.measured.length_ns,
        cost_ns: duration(without.length_ns, replay.measured.length_ns),
        error_ns: replay.error_ns(all.time_ns),
        pauses: all,
        longest_ns,
    })
}

fn programs<'a>(
    traces: &[TraceState],
    timelines: &'a [KeptTimeline],
    processes: &[ProcessReport],
) -> Vec<ProgramModel<'a>> {
    let with_gpu = timelines.iter().any(KeptTimeline::has_gpu_times);
    let relevant = |timeline: &&KeptTimeline| {
        if with_gpu { timeline.has_gpu_times() } else { !timeline.pauses.is_empty() }
    };
    let timelines = timelines.iter().filter(relevant);
    // Of several with one id, the one that was stopped longest, which comes first.
    let mut by_id: HashMap<(usize, u32), &ProcessReport> = HashMap::new();
    for process in processes {
        by_id.entry((process.trace, process.pid)).or_insert(process);
    }
    timelines
        .map(|timeline| {
            let process = by_id.get(&(timeline.process_trace, timeline.pid));
            program(traces, timeline, process.copied())
        })
        .collect()
}

fn program<'a>(
    traces: &[TraceState],
    timeline: &'a KeptTimeline,
    process: Option<&ProcessReport>,
) -> ProgramModel<'a> {
    let settings = process.and_then(|process| process.settings.as_ref());
    let interpreter = process.and_then(|process| process.interpreter.as_ref());
    let trace = traces.get(timeline.process_trace);
    // Nothing is predicted for a timeline without anything.
    let mut span_ns = timeline.activity().unwrap_or_default();
    let (mut freed, mut reserved) = (0, 0);
    // A merged timeline has the clock of the other trace, and contains only what is within its
    // time.
    let own_clock = timeline.trace == timeline.process_trace;
    if let Some(trace) = trace.filter(|_| own_clock) {
        (freed, reserved) = trace.cuda.memory_of(timeline.pid);
        if let Some(process) = process {
            let start_ns = after(trace.started_ns(), process.since_start_ns);
            let end_ns = after(start_ns, process.observed_ns);
            span_ns = (span_ns.0.min(start_ns), span_ns.1.max(end_ns));
        }
    }
    ProgramModel {
        timeline,
        span_ns,
        free_threaded: interpreter.is_some_and(|interpreter| interpreter.free_threaded),
        thresholds: settings
            .map_or(SettingsReport::DEFAULT_THRESHOLDS, |setting| setting.thresholds),
        device_freed_bytes: freed,
        device_reserved_bytes: reserved,
        bytes_per_object: process.and_then(bytes_per_object),
    }
}

/// The peak memory of pymalloc arenas, per object of the largest heap. Not for processes that were
/// already running: the arenas they had mapped before are unknown.
pub(crate) fn bytes_per_object(process: &ProcessReport) -> Option<u64> {
    let arenas = process.pressure.as_ref()?.arenas.as_ref()?;
    let bytes = u64::try_from(arenas.peak_balance_bytes?).ok()?;
    let objects = process.growth.as_ref()?.largest.objects;
    let from_start = process.origin != Some(ProcessOrigin::Attached);
    let each = bytes.checked_div(objects).filter(|_| from_start);
    each.filter(|bytes| *bytes > 0)
}
