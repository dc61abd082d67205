//! A run cut into start-up, training and exit.
//!
//! Owns where training begins and ends in a process, and which process of a report the verdict is
//! about. What a collection costs matters in training; at start-up and exit it is reported, but no
//! remedy is credited with it.

use crate::accumulate::process::ProcessState;
use crate::accumulate::stacks::{
    NodeId, RankingLimits, StackRanking, StackSums, StackTree, TraceStacks,
};
use crate::analysis::Analysis;
use crate::gpu::kept::KeptTimeline;
use crate::gpu::pause_span::PauseSpan;
use crate::gpu::steps::{busiest_thread, warm_up};
use crate::gpu::timeline::{ProcessTimeline, StepSpan};
use crate::report::{
    Basis, LinesReport, PauseTotal, PhaseReport, PhasesReport, ProcessReport, TrainingMark,
};
use crate::time;
use crate::time::add_to;
use crate::time::intervals::Intervals;
use crate::time::stats::ratio;
use gctrace_event::GcReason;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Fewer steps than this do not show where training begins.
const FEWEST_STEPS: usize = 5;
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
    /// Start and end of its recorded part.
    pub(crate) span_ns: (u64, u64),
    /// Start and end of training; within the span.
    pub(crate) training_ns: (u64, u64),
    pub(crate) mark: TrainingMark,
    /// Training steps in `training_ns`; `None` if unknown.
    pub(crate) steps: Option<u64>,
}

impl RunPhases {
    /// The phases of a process. `span_ns`: start and end of its recorded part; `stack`: what the
    /// stack of a pause shows, `None` without one.
    pub(crate) fn of(
        timeline: &ProcessTimeline,
        span_ns: (u64, u64),
        stack: impl Fn(&PauseSpan) -> Option<At>,
    ) -> Self {
        let (start_ns, end_ns) = span_ns;
        match training_steps(timeline).as_slice() {
            steps @ [first, .., last] => Self {
                span_ns: (start_ns.min(first.start_ns), end_ns.max(last.end_ns)),
                training_ns: (first.start_ns, last.end_ns),
                mark: first.source.into(),
                steps: Some(steps.len() as u64),
            },
            _ => {
                let exit_ns = exit_ns(timeline).clamp(start_ns, end_ns);
                let half_ns = start_ns + (exit_ns - start_ns) / 2;
                let imported_ns = imported_ns(&timeline.pauses, (half_ns, exit_ns), stack);
                Self {
                    span_ns,
                    training_ns: (imported_ns.unwrap_or(half_ns), exit_ns),
                    mark: match imported_ns {
                        Some(_) => TrainingMark::AfterImports,
                        None => TrainingMark::SecondHalf,
                    },
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
        let pauses = pauses.iter().filter(|pause| self.phase_of(pause) == phase);
        let mut sum = PauseTotal::default();
        let mut longest_ns = None;
        for pause in pauses.clone() {
            sum.add(pause.duration_ns());
            longest_ns = longest_ns.max(Some(pause.duration_ns()));
        }
        let paused = Intervals::from_iter(pauses.map(PauseSpan::span));
        let duration_ns = end_ns - start_ns;
        let paused_ns = paused.length_within(start_ns, end_ns);
        PhaseReport {
            after_start_ns: time::duration(origin_ns, start_ns),
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

/// The steps of the thread with the most steps, without the warm-up's; empty for fewer than
/// [`FEWEST_STEPS`].
pub(crate) fn training_steps(timeline: &ProcessTimeline) -> Vec<StepSpan> {
    let thread = busiest_thread(timeline);
    let steps = timeline.steps.iter().filter(|step| Some(step.thread) == thread);
    let steps: Vec<StepSpan> = steps.copied().collect();
    let trained = steps.get(warm_up(&steps)..).unwrap_or_default();
    match trained.len() {
        0..FEWEST_STEPS => Vec::new(),
        _ => trained.to_vec(),
    }
}

/// What a stack shows of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The program imports a module.
    Import,
    /// Anything else.
    Elsewhere,
}

/// The end of the imports, if most of the time of the pauses between these timestamps that have a
/// stack was spent importing; within them.
fn imported_ns(
    pauses: &[PauseSpan],
    (from_ns, to_ns): (u64, u64),
    stack: impl Fn(&PauseSpan) -> Option<At>,
) -> Option<u64> {
    let (mut importing_ns, mut elsewhere_ns, mut last_ns) = (0, 0, None);
    let within = |pause: &&PauseSpan| (from_ns..to_ns).contains(&pause.start_ns);
    for pause in pauses.iter().filter(within) {
        match stack(pause) {
            None => {}
            Some(At::Elsewhere) => add_to(&mut elsewhere_ns, pause.duration_ns()),
            Some(At::Import) => {
                add_to(&mut importing_ns, pause.duration_ns());
                last_ns = last_ns.max(Some(pause.end_ns.min(to_ns)));
            }
        }
    }
    last_ns.filter(|_| importing_ns > elsewhere_ns)
}

/// When the interpreter began to finalize, by its collections; `u64::MAX` if unknown.
fn exit_ns(timeline: &ProcessTimeline) -> u64 {
    let pauses = timeline.pauses.iter();
    let shutdown = pauses.filter(|pause| pause.reason == GcReason::Shutdown);
    shutdown.map(|pause| pause.start_ns).min().unwrap_or(u64::MAX)
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
    tree: &'a StackTree,
    /// Of the processes that had its id.
    stacks: Vec<&'a TraceStacks>,
}

impl<'a> JudgedRun<'a> {
    /// Of the processes with training steps the one with the most (of several the one that was
    /// paused for longest), otherwise the one that was paused for longest: of the ranks, if there
    /// are any, as their launcher only waits for them. `None` if no process
    /// collected or its observed time is unknown, and for free-threaded builds, where a collection
    /// stops the program for only a part of its time.
    pub(crate) fn of(
        analysis: &'a Analysis,
        timelines: &[KeptTimeline],
        processes: &'a [ProcessReport],
    ) -> Option<Self> {
        let timeline_of = |process: &ProcessReport| {
            let mut timelines = timelines.iter();
            timelines.find(|timeline| {
                timeline.process_trace == process.trace && timeline.pid == process.pid
            })
        };
        let with_steps = timelines.iter().filter(|timeline| timeline.steps.len() >= FEWEST_STEPS);
        let with_steps = with_steps.filter_map(|with_step| {
            let mut processes = processes.iter();
            let process = processes.find(|process| {
                process.trace == with_step.process_trace && process.pid == with_step.pid
            })?;
            Some((with_step.steps.len(), process.stopped_ns, process))
        });
        let most = with_steps.max_by_key(|(steps, stopped_ns, _)| (*steps, *stopped_ns));
        let rank = || processes.iter().find(|process| process.rank.is_some());
        let process = most.map(|(_, _, process)| process).or_else(rank);
        let process = process.or(processes.first())?;
        let interpreter = process.interpreter.as_ref();
        if interpreter.is_some_and(|interpreter| interpreter.free_threaded) {
            return None;
        }
        let kept = timeline_of(process)?;
        let timeline = kept.unpacked();
        let traces = &analysis.traces;
        let trace = traces.get(process.trace)?;
        // A merged timeline has the clock of the other trace.
        let origin_ns = traces.get(timeline.trace)?.started_ns();
        let span_ns = if timeline.trace == timeline.process_trace {
            let start_ns = time::after(trace.started_ns(), process.since_start_ns);
            (start_ns, time::after(start_ns, process.observed_ns))
        } else {
            // An empty timeline has no phases.
            kept.activity().unwrap_or_default()
        };
        if span_ns.0 >= span_ns.1 {
            return None;
        }
        let of_process =
            |state: &&ProcessState| state.trace == process.trace && state.sums.pid == process.pid;
        let with_id = analysis.processes.iter().filter(of_process);
        let stacks: Vec<&TraceStacks> = with_id.map(|with_id| &with_id.stacks).collect();
        let shown = |pause: &PauseSpan| {
            let node = node(&stacks, pause)?;
            Some(if analysis.stacks.is_import(node) { At::Import } else { At::Elsewhere })
        };
        Some(Self {
            process,
            phases: RunPhases::of(&timeline, span_ns, shown),
            pauses: match timeline {
                Cow::Borrowed(borrowed) => borrowed.pauses.clone(),
                Cow::Owned(owned) => owned.pauses,
            },
            origin_ns,
            tree: &analysis.stacks,
            stacks,
        })
    }

    /// The lines that trigger the collections of training; `None` if no pause has a stack.
    fn lines(&self) -> Option<LinesReport> {
        let in_training = |pause: &&PauseSpan| self.phases.phase_of(pause) == Phase::Training;
        let (mut by_node, mut without, mut all_ns) = (BTreeMap::new(), PauseTotal::default(), 0);
        for pause in self.pauses.iter().filter(in_training) {
            let time_ns = pause.duration_ns();
            add_to(&mut all_ns, time_ns);
            match node(&self.stacks, pause) {
                None => without.add(time_ns),
                Some(node) => {
                    let sums: &mut StackSums = by_node.entry(node).or_default();
                    let full = pause.generation == 2;
                    sums.add(pause.generation, pause.reason, time_ns, full);
                }
            }
        }
        let mut ranking = StackRanking::new(self.tree, all_ns);
        ranking.add_without_stack(&without);
        for (node, sums) in &by_node {
            ranking.add_stack(*node, sums);
        }
        ranking.report(RankingLimits::PROCESS)
    }

    /// What its pauses took in each phase.
    pub(crate) fn report(&self) -> PhasesReport {
        let row = |phase| self.phases.row(phase, &self.pauses, self.origin_ns);
        PhasesReport {
            basis: match self.phases.mark {
                TrainingMark::SecondHalf
                | TrainingMark::AfterImports
                | TrainingMark::PeriodicLaunches => Basis::Inferred,
                _ => Basis::Measured,
            },
            trace: self.process.trace,
            pid: self.process.pid,
            rank: self.process.rank,
            training_by: self.phases.mark,
            steps: self.phases.steps,
            start_up: row(Phase::StartUp),
            training: row(Phase::Training),
            exit: row(Phase::Exit),
            lines: self.lines(),
        }
    }
}

/// The stack of a pause of these processes, of one id; `None` without one.
fn node(stacks: &[&TraceStacks], pause: &PauseSpan) -> Option<NodeId> {
    let frame = pause.stack?;
    stacks.iter().find_map(|stack| stack.node(frame.get()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::index::Index;
    use crate::report::StepSource;
    use proptest::prelude::*;

    fn pause(start_ns: u64, end_ns: u64, reason: GcReason) -> PauseSpan {
        PauseSpan {
            start_ns,
            end_ns,
            thread: Index::new(0),
            cpu_ns: None,
            collected: None,
            objects: None,
            generation: 0,
            reason,
            stack: None,
        }
    }

    fn steps(lengths: &[u64], from_ns: u64) -> Vec<StepSpan> {
        let mut start_ns = from_ns;
        let step = |(number, length_ns): (usize, &u64)| {
            let end_ns = start_ns + length_ns;
            let step = StepSpan {
                start_ns,
                end_ns,
                thread: Index::new(0),
                number: number as u64,
                source: StepSource::BackwardPass,
            };
            start_ns = end_ns;
            step
        };
        lengths.iter().enumerate().map(step).collect()
    }

    #[test]
    fn training_is_from_the_first_step_after_the_warm_up_to_the_last() {
        let timeline = ProcessTimeline {
            steps: steps(&[900, 500, 100, 100, 110, 90, 100, 400, 100], 1_000),
            ..ProcessTimeline::default()
        };
        let phases = RunPhases::of(&timeline, (0, 10_000), |_| None);
        assert_eq!(phases.training_ns, (2_400, 3_400));
        assert_eq!(phases.steps, Some(7));
        assert_eq!(phases.mark, TrainingMark::BackwardPasses);
    }

    #[test]
    fn without_steps_it_is_the_second_half_until_the_interpreter_finalizes() {
        let timeline = ProcessTimeline {
            steps: steps(&[100; FEWEST_STEPS - 1], 0),
            pauses: vec![
                pause(100, 200, GcReason::Automatic),
                pause(600, 650, GcReason::Manual),
                pause(800, 900, GcReason::Shutdown),
            ],
            ..ProcessTimeline::default()
        };
        let phases = RunPhases::of(&timeline, (0, 1_000), |_| None);
        assert_eq!(phases.training_ns, (400, 800));
        assert_eq!((phases.mark, phases.steps), (TrainingMark::SecondHalf, None));
        let of = |phase| phases.row(phase, &timeline.pauses, 0);
        let counts = [Phase::StartUp, Phase::Training, Phase::Exit].map(|one| of(one).pauses.count);
        assert_eq!(counts, [1, 1, 1]);
        let training = of(Phase::Training);
        assert_eq!(training.paused_ns, 50);
        assert_eq!(training.paused_ratio, Some(0.125));
    }

    #[test]
    fn a_run_that_still_imports_in_its_second_half_is_start_up_until_then() {
        let pauses = [(100, 900), (600, 640), (700, 760), (900, 930)];
        let timeline = ProcessTimeline {
            pauses: pauses.map(|(start, end)| pause(start, end, GcReason::Automatic)).to_vec(),
            ..ProcessTimeline::default()
        };
        let importing_until = |last_ns: u64| {
            RunPhases::of(&timeline, (0, 1_000), |pause| match pause.start_ns {
                900 => None,
                start_ns if start_ns <= last_ns => Some(At::Import),
                _ => Some(At::Elsewhere),
            })
        };
        let phases = importing_until(700);
        assert_eq!((phases.mark, phases.training_ns), (TrainingMark::AfterImports, (760, 1_000)));
        // Most of the second half is not spent importing: a module is loaded late.
        let phases = importing_until(600);
        assert_eq!((phases.mark, phases.training_ns), (TrainingMark::SecondHalf, (500, 1_000)));
    }

    proptest! {
        #[test]
        fn every_pause_is_in_one_phase_and_none_is_longer_than_its_phase(
            lengths in prop::collection::vec(0u64..1_000, 0..20),
            pauses in prop::collection::vec((0u64..30_000, 0u64..3_000, 0usize..4), 0..20),
            span_ns in (0u64..10_000, 10_001u64..40_000),
        ) {
            let reasons = [GcReason::Automatic, GcReason::Manual, GcReason::Shutdown, GcReason::Unknown];
            let pauses = pauses.into_iter().map(|(start_ns, length_ns, reason)| {
                pause(start_ns, start_ns + length_ns, reasons[reason])
            });
            let timeline = ProcessTimeline {
                steps: steps(&lengths, 5_000),
                pauses: pauses.collect(),
                ..ProcessTimeline::default()
            };
            let phases = RunPhases::of(&timeline, span_ns, |_| None);
            let (start_ns, end_ns) = phases.span_ns;
            prop_assert!(start_ns <= phases.training_ns.0);
            prop_assert!(phases.training_ns.0 <= phases.training_ns.1);
            prop_assert!(phases.training_ns.1 <= end_ns);
            let mut count = 0;
            for phase in [Phase::StartUp, Phase::Training, Phase::Exit] {
                let row = phases.row(phase, &timeline.pauses, 0);
                count += row.pauses.count;
                prop_assert!(row.paused_ns <= row.duration_ns);
                prop_assert!(row.over_time_ns.iter().sum::<u64>() <= row.paused_ns);
            }
            prop_assert_eq!(count, timeline.pauses.len() as u64);
        }
    }
}
