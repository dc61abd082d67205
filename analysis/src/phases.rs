//! A run cut into start-up, training and exit.
//!
//! Owns where training begins and ends in a process, and which process of a report the verdict is
//! about. What a collection costs matters in training; at start-up and exit it is reported, but no
//! remedy is credited with it.

use crate::accumulate::tally::ratio;
use crate::analysis::TraceState;
use crate::gpu::pause_span::PauseSpan;
use crate::gpu::steps::busiest_thread;
use crate::gpu::timeline::StepSource;
use crate::gpu::timeline::StepSpan;
use crate::gpu::timeline::Timeline;
use crate::gpu::what_if::report::activity;
use crate::report::Basis;
use crate::report::PauseTotal;
use crate::report::PhaseReport;
use crate::report::PhasesReport;
use crate::report::ProcessReport;
use crate::report::TrainingMark;
use crate::time::intervals::Intervals;
use crate::time::stats;
use gctrace_event::GcReason;
use std::borrow::Cow;

/// Fewer steps than this do not show where training begins.
const FEWEST_STEPS: usize = 5;
/// The first steps are warm-up, thus part of start-up, as long as each is this many times longer
/// than the median step: compiling and autotuning take seconds, a slow step seldom the triple.
const WARM_UP_FACTOR: u64 = 3;
/// Parts of a phase in [`PhaseReport::over_time_ns`].
const PARTS: u64 = 24;

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    StartUp,
    Training,
    Exit,
}

/// The phases of one process; timestamps in ns on the clock of its timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunPhases {
    /// Start and end of what is recorded of it.
    pub(crate) span_ns: (u64, u64),
    /// Start and end of training; within the span.
    pub(crate) training_ns: (u64, u64),
    pub(crate) mark: TrainingMark,
    /// Training steps in `training_ns`; `None` if unknown.
    pub(crate) steps: Option<u64>,
}

impl RunPhases {
    /// The phases of a process. `span_ns`: start and end of what is recorded of it.
    pub(crate) fn of(timeline: &Timeline, span_ns: (u64, u64)) -> Self {
        let (start_ns, end_ns) = span_ns;
        match training_steps(timeline).as_slice() {
            steps @ [first, .., last] => Self {
                span_ns: (start_ns.min(first.start_ns), end_ns.max(last.end_ns)),
                training_ns: (first.start_ns, last.end_ns),
                mark: match first.source {
                    StepSource::ProfilerStep => TrainingMark::ProfilerSteps,
                    StepSource::BackwardPass => TrainingMark::BackwardPasses,
                },
                steps: Some(steps.len() as u64),
            },
            _ => {
                let exit_ns = exit_ns(timeline).clamp(start_ns, end_ns);
                Self {
                    span_ns,
                    training_ns: (start_ns + (exit_ns - start_ns) / 2, exit_ns),
                    mark: TrainingMark::SecondHalf,
                    steps: None,
                }
            }
        }
    }

    /// Start and end of a phase.
    fn span_of(&self, phase: Phase) -> (u64, u64) {
        match phase {
            Phase::StartUp => (self.span_ns.0, self.training_ns.0),
            Phase::Training => self.training_ns,
            Phase::Exit => (self.training_ns.1, self.span_ns.1),
        }
    }

    /// The phase that a pause is counted in. Collections of a finalizing interpreter are at exit,
    /// whatever the time.
    pub(crate) fn phase_of(&self, pause: &PauseSpan) -> Phase {
        match pause.start_ns {
            _ if pause.reason == GcReason::Shutdown => Phase::Exit,
            start_ns if start_ns < self.training_ns.0 => Phase::StartUp,
            start_ns if start_ns < self.training_ns.1 => Phase::Training,
            _ => Phase::Exit,
        }
    }

    fn row(&self, phase: Phase, pauses: &[PauseSpan], origin_ns: u64) -> PhaseReport {
        let (start_ns, end_ns) = self.span_of(phase);
        let own = pauses.iter().filter(|pause| self.phase_of(pause) == phase);
        let mut sum = PauseTotal::default();
        let mut longest_ns = None;
        for pause in own.clone() {
            sum.add(pause.duration_ns());
            longest_ns = longest_ns.max(Some(pause.duration_ns()));
        }
        let paused = Intervals::from_iter(own.map(PauseSpan::span));
        let duration_ns = end_ns - start_ns;
        let paused_ns = paused.length_within(start_ns, end_ns);
        PhaseReport {
            after_start_ns: start_ns.saturating_sub(origin_ns),
            duration_ns,
            pauses: sum,
            paused_ns,
            paused_ratio: ratio(paused_ns, duration_ns),
            longest_ns,
            over_time_ns: over_time(&paused, (start_ns, end_ns)),
        }
    }
}

/// Paused time in equal parts of a phase; empty if nothing paused or the phase is too short.
fn over_time(paused: &Intervals, (start_ns, end_ns): (u64, u64)) -> Vec<u64> {
    let part_ns = (end_ns - start_ns) / PARTS;
    if part_ns == 0 || paused.length_within(start_ns, end_ns) == 0 {
        return Vec::new();
    }
    let parts = (0..PARTS).map(|part| {
        let from_ns = start_ns + part * part_ns;
        paused.length_within(from_ns, from_ns + part_ns)
    });
    parts.collect()
}

/// The steps of the thread with the most steps, without those of the warm-up; empty for fewer than
/// [`FEWEST_STEPS`].
fn training_steps(timeline: &Timeline) -> Vec<StepSpan> {
    let thread = busiest_thread(timeline);
    let own = timeline
        .steps
        .iter()
        .filter(|step| Some(step.thread) == thread);
    let steps: Vec<StepSpan> = own.copied().collect();
    let length_ns = |step: &StepSpan| step.end_ns.saturating_sub(step.start_ns);
    let mut lengths: Vec<u64> = steps.iter().map(length_ns).collect();
    let Some(median_ns) = stats::median_low(&mut lengths) else {
        return Vec::new();
    };
    let long_ns = median_ns.saturating_mul(WARM_UP_FACTOR);
    let trained = steps.iter().skip_while(|step| length_ns(step) > long_ns);
    let trained: Vec<StepSpan> = trained.copied().collect();
    match trained.len() {
        0..FEWEST_STEPS => Vec::new(),
        _ => trained,
    }
}

/// When the interpreter began to finalize, by its collections; `u64::MAX` if unknown.
fn exit_ns(timeline: &Timeline) -> u64 {
    let pauses = timeline.pauses.iter();
    let shutdown = pauses.filter(|pause| pause.reason == GcReason::Shutdown);
    shutdown
        .map(|pause| pause.start_ns)
        .min()
        .unwrap_or(u64::MAX)
}

/// The run of the process that the verdict is about.
#[derive(Clone, Debug)]
pub(crate) struct JudgedRun<'a> {
    pub(crate) process: &'a ProcessReport,
    /// Its pauses by start, on the clock of the phases.
    pub(crate) pauses: Vec<PauseSpan>,
    pub(crate) phases: RunPhases,
    /// Start of the trace on that clock.
    origin_ns: u64,
}

impl<'a> JudgedRun<'a> {
    /// Of the processes with training steps the one with the most, otherwise the one that was
    /// paused for longest. `None` if no process collected, and for free-threaded builds, where a
    /// collection stops the program for only a part of its time.
    pub(crate) fn of(
        timelines: &[Timeline],
        processes: &'a [ProcessReport],
        traces: &[TraceState],
    ) -> Option<Self> {
        let timeline_of = |process: &ProcessReport| {
            let mut own = timelines.iter();
            own.find(|own| own.process_trace == process.trace && own.pid == process.pid)
        };
        let with_steps = processes.iter().filter_map(|process| {
            let steps = timeline_of(process)?.steps.len();
            (steps >= FEWEST_STEPS).then_some((steps, process))
        });
        let most = with_steps.reduce(|one, other| if other.0 > one.0 { other } else { one });
        let process = most.map_or(processes.first(), |(_, process)| Some(process))?;
        let interpreter = process.interpreter.as_ref();
        if interpreter.is_some_and(|interpreter| interpreter.free_threaded) {
            return None;
        }
        let timeline = timeline_of(process)?.unpacked();
        let trace = traces.get(process.trace)?;
        // A merged timeline has the clock of the other trace.
        let origin_ns = traces.get(timeline.trace)?.started_ns();
        let span_ns = match timeline.trace == timeline.process_trace {
            true => {
                let start_ns = trace.started_ns().saturating_add(process.since_start_ns);
                (start_ns, start_ns.saturating_add(process.observed_ns))
            }
            false => activity(&timeline),
        };
        Some(Self {
            process,
            phases: RunPhases::of(&timeline, span_ns),
            pauses: match timeline {
                Cow::Borrowed(own) => own.pauses.clone(),
                Cow::Owned(own) => own.pauses,
            },
            origin_ns,
        })
    }

    /// What its pauses took in each phase.
    pub(crate) fn report(&self) -> PhasesReport {
        let row = |phase| self.phases.row(phase, &self.pauses, self.origin_ns);
        PhasesReport {
            basis: match self.phases.mark {
                TrainingMark::SecondHalf => Basis::Inferred,
                TrainingMark::ProfilerSteps | TrainingMark::BackwardPasses => Basis::Measured,
            },
            trace: self.process.trace,
            pid: self.process.pid,
            rank: self.process.rank,
            training_by: self.phases.mark,
            steps: self.phases.steps,
            start_up: row(Phase::StartUp),
            training: row(Phase::Training),
            exit: row(Phase::Exit),
        }
    }
}
