//! Where start-up and training end in a process: by its steps, by its first fork, and by the stacks of its
//! pauses.
//!
//! Nothing else marks an end: where pauses become rare, or the heap stops to grow, a program may work as before.

use crate::gpu::steps::{busiest_thread, warm_up};
use crate::gpu::timeline::{ProcessTimeline, StepSpan};
use crate::report::{Location, PhaseReport, TrainingMark};
use crate::spans::PauseSpan;
use crate::time::intervals::CoveredSpans;
use crate::time::{self, add_to, duration_ns};
use gctrace_event::GcReason;
use gctrace_stats::ratio;
use std::collections::BTreeMap;

/// Fewer steps than this do not show where training begins.
pub(super) const FEWEST_STEPS: usize = 5;
/// Parts of a phase in [`PhaseReport::over_time_ns`].
const PARTS: u64 = 24;
/// A process that forks goes on for longer than this part of the time before: it does not fork to end.
const OUTLIVES: u64 = 10;

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    StartUp,
    Training,
    Exit,
}

impl Phase {
    pub(super) const ALL: [Self; 3] = [Self::StartUp, Self::Training, Self::Exit];
}

/// Where a process may end its start-up, besides its imports; in ns on the clock of its timeline.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begins {
    /// It first forked a worker.
    pub(crate) forks_ns: Option<u64>,
    /// Its loop waited for the first request.
    pub(crate) serves_ns: Option<u64>,
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
    /// The phases of a process. `span_ns`: start and end of its recorded part; `attached`: whether it
    /// already ran before, and had started up; `stack`: what the stack of a pause shows, `None` without one.
    pub(crate) fn of<'a>(
        timeline: &ProcessTimeline,
        span_ns: (u64, u64),
        attached: bool,
        begins: Begins,
        stack: impl Fn(&PauseSpan) -> Option<At<'a>>,
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
                let pauses = || timeline.all_pauses();
                let goes_on = |begin_ns: &u64| {
                    (start_ns..exit_ns).contains(begin_ns)
                        && duration_ns(*begin_ns, exit_ns) > (begin_ns - start_ns) / OUTLIVES
                };
                let borders = Borders::of(pauses(), &stack);
                let forks_ns = begins.forks_ns.filter(goes_on).filter(|ns| borders.is_one(*ns));
                let imported_ns = imported_ns(pauses(), (start_ns, exit_ns), &borders, &stack);
                let marks = [
                    (forks_ns, TrainingMark::AfterFork),
                    (imported_ns, TrainingMark::AfterImports),
                    (begins.serves_ns.filter(goes_on), TrainingMark::Loop),
                ];
                let marks = marks.into_iter().filter_map(|(ns, mark)| Some((ns?, mark)));
                let last = if attached { None } else { marks.max_by_key(|(ns, _)| *ns) };
                let (training_ns, mark) = last.unwrap_or((start_ns, TrainingMark::WholeRun));
                Self { span_ns, training_ns: (training_ns, exit_ns), mark, steps: None }
            }
        }
    }

    /// Start and end of a phase.
    pub(super) fn span_of(&self, phase: Phase) -> (u64, u64) {
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

    /// The rows of [`Phase::ALL`]. `work`: the pauses by start, why each ran and its CPU time; and whether that is known.
    pub(super) fn rows(
        &self,
        work: impl Iterator<Item = (PauseSpan, GcReason, u64)>,
        is_known: bool,
        origin_ns: u64,
    ) -> [PhaseReport; 3] {
        let mut sums = Phase::ALL.map(|phase| PhaseSums::of(self.span_of(phase)));
        for (pause, cause, work_ns) in work {
            let [start_up, training, exit] = &mut sums;
            let of_phase = match self.phase_of(&pause) {
                Phase::StartUp => start_up,
                Phase::Training => training,
                Phase::Exit => exit,
            };
            of_phase.add(&pause, cause, work_ns);
        }
        sums.map(|sums| sums.report(is_known, origin_ns))
    }
}

/// One phase's row in the making.
struct PhaseSums {
    span_ns: (u64, u64),
    row: PhaseReport,
    cpu_ns: u64,
    longest_cpu_ns: Option<u64>,
    /// By equal parts of the phase, and the rest at its end.
    paused: CoveredSpans,
}

impl PhaseSums {
    fn of((start_ns, end_ns): (u64, u64)) -> Self {
        let part_ns = duration_ns(start_ns, end_ns) / PARTS;
        let border = |part| if part <= PARTS { start_ns + part * part_ns } else { end_ns };
        let parts = (0..=PARTS).map(|part| (border(part), border(part + 1)));
        Self {
            span_ns: (start_ns, end_ns),
            row: PhaseReport::default(),
            cpu_ns: 0,
            longest_cpu_ns: None,
            paused: CoveredSpans::new(parts.collect()),
        }
    }

    fn add(&mut self, pause: &PauseSpan, cause: GcReason, work_ns: u64) {
        self.row.add(pause, cause, work_ns);
        add_to(&mut self.cpu_ns, work_ns);
        self.longest_cpu_ns = self.longest_cpu_ns.max(Some(work_ns));
        self.paused.add(pause.span());
    }

    fn report(self, is_known: bool, origin_ns: u64) -> PhaseReport {
        let (start_ns, end_ns) = self.span_ns;
        let duration_ns = duration_ns(start_ns, end_ns);
        let mut over_time_ns = self.paused.finish();
        let paused_ns = over_time_ns.iter().sum();
        // If the phase is empty or too short, no course is shown.
        let parts = if duration_ns < PARTS || paused_ns == 0 { 0 } else { PARTS as usize };
        over_time_ns.truncate(parts);
        PhaseReport {
            after_start_ns: time::duration_ns(origin_ns, start_ns),
            duration_ns,
            paused_ns,
            paused_cpu_ns: if is_known { Some(self.cpu_ns) } else { None },
            paused_ratio: ratio(paused_ns, duration_ns),
            longest_cpu_ns: if is_known { self.longest_cpu_ns } else { None },
            over_time_ns,
            ..self.row
        }
    }
}

impl PhaseReport {
    /// Adds a pause: its cause, its time and the objects it freed.
    fn add(&mut self, pause: &PauseSpan, cause: GcReason, work_ns: u64) {
        self.pauses.add(pause.duration_ns());
        self.longest_ns = self.longest_ns.max(Some(pause.duration_ns()));
        self.causes.of(cause, pause.generation == 2).add(work_ns);
        if cause != GcReason::Automatic {
            return;
        }
        self.young += u64::from(pause.generation == 0);
        if let Some(freed) = pause.collected.map(|freed| u64::from(freed.get())) {
            add_to(self.freed_objects.get_or_insert(0), freed);
            if freed == 0 {
                self.freed_nothing.add(work_ns);
            }
        }
    }
}

/// The steps of the thread with the most steps, without the warm-up's; empty for fewer than
/// [`FEWEST_STEPS`].
pub(crate) fn training_steps(timeline: &ProcessTimeline) -> Vec<StepSpan> {
    let thread = busiest_thread(timeline);
    let steps = timeline.steps.iter().filter(|step| Some(step.thread) == thread);
    let steps: Vec<StepSpan> = steps.copied().collect();
    let trained = gctrace_units::part(&steps, warm_up(&steps)..);
    match trained.len() {
        0..FEWEST_STEPS => Vec::new(),
        _ => trained.to_vec(),
    }
}

/// The place of the program that a stack shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At<'a> {
    /// The program imports a module.
    Import,
    /// Anything else, at this line of the program or, without one, of a library.
    Elsewhere(&'a Location),
}

/// Where work may change: where no line of the program triggers collections on both sides.
struct Borders {
    /// From the first to the last pause at such lines: later than the first number, and up to the second, is none.
    /// Ordered, apart from each other.
    none: Vec<(u64, u64)>,
}

impl Borders {
    fn of<'a>(
        pauses: impl Iterator<Item = PauseSpan>,
        stack: impl Fn(&PauseSpan) -> Option<At<'a>>,
    ) -> Self {
        let mut lines: BTreeMap<&Location, (u64, u64)> = BTreeMap::new();
        for pause in pauses {
            if pause.reason != GcReason::Shutdown
                && let Some(At::Elsewhere(line)) = stack(&pause)
                && !line.library
            {
                let at_ns = pause.start_ns;
                let (first_ns, last_ns) = lines.entry(line).or_insert((at_ns, at_ns));
                (*first_ns, *last_ns) = (at_ns.min(*first_ns), at_ns.max(*last_ns));
            }
        }
        let mut spans: Vec<(u64, u64)> = lines.into_values().collect();
        spans.sort_unstable();
        let mut none: Vec<(u64, u64)> = Vec::new();
        for (first_ns, last_ns) in spans {
            match none.last_mut() {
                Some(before) if first_ns <= before.1 => before.1 = before.1.max(last_ns),
                _ => none.push((first_ns, last_ns)),
            }
        }
        Self { none }
    }

    fn is_one(&self, at_ns: u64) -> bool {
        let before = self.none.partition_point(|(first_ns, _)| *first_ns < at_ns);
        let span = gctrace_units::part(&self.none, ..before).last();
        span.is_none_or(|(_, last_ns)| *last_ns < at_ns)
    }
}

/// The end of the imports, at a border within these timestamps: where least of the time of the pauses that have
/// a stack is on the wrong side, importing after it or anything else before it. `None` if it is the
/// start.
fn imported_ns<'a>(
    pauses: impl Iterator<Item = PauseSpan>,
    (from_ns, to_ns): (u64, u64),
    borders: &Borders,
    stack: impl Fn(&PauseSpan) -> Option<At<'a>>,
) -> Option<u64> {
    // Time on the wrong side, compared with imports that end at the start.
    let (mut wrong_ns, mut least_ns, mut imported_ns) = (0, 0, None);
    for pause in pauses.filter(|pause| (from_ns..to_ns).contains(&pause.start_ns)) {
        match stack(&pause) {
            None => {}
            Some(At::Elsewhere(_)) => wrong_ns += i128::from(pause.duration_ns()),
            Some(At::Import) => wrong_ns -= i128::from(pause.duration_ns()),
        }
        let end_ns = pause.end_ns.min(to_ns);
        if wrong_ns < least_ns && borders.is_one(end_ns) {
            (least_ns, imported_ns) = (wrong_ns, Some(end_ns));
        }
    }
    imported_ns
}

/// When the interpreter began to finalize, by its collections; `u64::MAX` if unknown.
fn exit_ns(timeline: &ProcessTimeline) -> u64 {
    let pauses = timeline.all_pauses();
    let shutdown = pauses.filter(|pause| pause.reason == GcReason::Shutdown);
    shutdown.map(|pause| pause.start_ns).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
