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
                let last = marks.filter(|_| !attached).max_by_key(|(ns, _)| *ns);
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
        for pause in pauses.filter(|pause| pause.reason != GcReason::Shutdown) {
            if let Some(At::Elsewhere(line)) = stack(&pause)
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
mod tests {
    use super::*;
    use crate::report::StepSource;
    use crate::spans::index::{Index, SmallNumber};
    use proptest::prelude::*;

    fn pause(start_ns: u64, end_ns: u64, reason: GcReason) -> PauseSpan {
        PauseSpan {
            start_ns,
            end_ns,
            thread: Index::new(0),
            cpu_ns: None,
            collected: None,
            objects: None,
            freed_kib: None,
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
                cpu_ns: None,
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
        let phases = RunPhases::of(&timeline, (0, 10_000), false, Begins::default(), |_| None);
        assert_eq!(phases.training_ns, (2_400, 3_400));
        assert_eq!(phases.steps, Some(7));
        assert_eq!(phases.mark, TrainingMark::BackwardPasses);
    }

    #[test]
    fn without_steps_and_start_up_it_is_the_run_until_the_interpreter_finalizes() {
        let timeline = ProcessTimeline {
            steps: steps(&[100; FEWEST_STEPS - 1], 0),
            pauses: vec![
                pause(100, 200, GcReason::Automatic),
                pause(600, 650, GcReason::Manual),
                pause(800, 900, GcReason::Shutdown),
            ],
            ..ProcessTimeline::default()
        };
        let phases = RunPhases::of(&timeline, (0, 1_000), true, Begins::default(), |_| None);
        assert_eq!(phases.training_ns, (0, 800));
        assert_eq!((phases.mark, phases.steps), (TrainingMark::WholeRun, None));
        let work = timeline.all_pauses().map(|pause| (pause, pause.reason, pause.work_ns()));
        let rows = phases.rows(work, false, 0);
        assert_eq!(rows.each_ref().map(|row| row.pauses.count), [0, 2, 1]);
        let [_, training, _] = rows;
        assert_eq!(training.paused_ns, 150);
        assert_eq!(training.paused_ratio, Some(0.1875));
    }

    fn at(start_ns: u64) -> PauseSpan {
        pause(start_ns, start_ns + 10, GcReason::Automatic)
    }

    fn line(line: u64) -> Location {
        Location {
            file: "train.py".to_owned(),
            function: "work".to_owned(),
            line: u32::try_from(line).ok(),
            library: false,
        }
    }

    fn forks(forks_ns: Option<u64>) -> Begins {
        Begins { forks_ns, serves_ns: None }
    }

    #[test]
    fn a_service_starts_up_until_its_loop_runs() {
        let pauses = (0..50).map(|index| at(index * 20)).collect();
        let timeline = ProcessTimeline { pauses, ..ProcessTimeline::default() };
        let mark = |serves_ns| {
            let begins = Begins { forks_ns: Some(100), serves_ns: Some(serves_ns) };
            let phases = RunPhases::of(&timeline, (0, 1_000), false, begins, |_| None);
            (phases.mark, phases.training_ns.0)
        };
        assert_eq!(mark(300), (TrainingMark::Loop, 300));
        // It forks a worker later, or its loop is its end.
        assert_eq!(mark(50), (TrainingMark::AfterFork, 100));
        assert_eq!(mark(980), (TrainingMark::AfterFork, 100));
    }

    /// Pauses of 10 ns each 20 ns of a run of 1,000 ns, in imports until some time, then each at a line of
    /// its own.
    fn phases_of(attached: bool, fork_ns: Option<u64>, imports_until_ns: u64) -> RunPhases {
        let pauses = (0..50).map(|index| at(index * 20)).collect();
        let timeline = ProcessTimeline { pauses, ..ProcessTimeline::default() };
        let lines: Vec<Location> = (0..50).map(line).collect();
        RunPhases::of(&timeline, (0, 1_000), attached, forks(fork_ns), |pause| {
            Some(match pause.start_ns {
                at_ns if at_ns < imports_until_ns => At::Import,
                at_ns => At::Elsewhere(&lines[(at_ns / 20) as usize]),
            })
        })
    }

    #[test]
    fn imports_end_where_least_time_is_on_the_wrong_side() {
        let phases = phases_of(false, None, 200);
        assert_eq!((phases.mark, phases.training_ns), (TrainingMark::AfterImports, (190, 1_000)));
        // A module that is loaded late moves nothing, and a process that already ran has no start-up.
        let work = line(7);
        let late = |pause: &PauseSpan| {
            let importing = pause.start_ns < 200 || pause.start_ns == 800;
            Some(if importing { At::Import } else { At::Elsewhere(&work) })
        };
        let pauses = (0..50).map(|index| at(index * 20)).collect();
        let timeline = ProcessTimeline { pauses, ..ProcessTimeline::default() };
        let phases = RunPhases::of(&timeline, (0, 1_000), false, Begins::default(), late);
        assert_eq!(phases.training_ns, (190, 1_000));
        assert_eq!(phases_of(true, None, 200).training_ns, (0, 1_000));
    }

    #[test]
    fn without_a_mark_the_run_begins_at_its_start() {
        // Dense pauses that free nothing, and then one of a large heap: nothing says that work changed.
        let mut pauses: Vec<PauseSpan> = (0..20).map(|index| at(100 + index * 15)).collect();
        let grown = PauseSpan { objects: SmallNumber::new(200_000), generation: 2, ..at(400) };
        pauses.extend([grown, PauseSpan { start_ns: 800, end_ns: 810, ..grown }]);
        let timeline = ProcessTimeline { pauses, ..ProcessTimeline::default() };
        let phases = RunPhases::of(&timeline, (0, 1_000), false, Begins::default(), |_| None);
        assert_eq!((phases.mark, phases.training_ns), (TrainingMark::WholeRun, (0, 1_000)));
    }

    #[test]
    fn start_up_ends_at_the_first_fork_of_a_process_that_goes_on() {
        let phases = phases_of(false, Some(400), 200);
        assert_eq!((phases.mark, phases.training_ns), (TrainingMark::AfterFork, (400, 1_000)));
        // Forked while it still imports.
        assert_eq!(phases_of(false, Some(100), 200).mark, TrainingMark::AfterImports);
        for no_border in [None, Some(950), Some(2_000)] {
            assert_eq!(phases_of(false, no_border, 0).mark, TrainingMark::WholeRun);
        }
        assert_eq!(phases_of(true, Some(400), 0).mark, TrainingMark::WholeRun);
    }

    #[test]
    fn a_line_that_collects_on_both_sides_of_a_border_proves_that_it_is_none() {
        let pauses = (0..50).map(|index| at(index * 20)).collect();
        let timeline = ProcessTimeline { pauses, ..ProcessTimeline::default() };
        let mark = |library| {
            let same = Location { library, ..line(7) };
            let work = |_: &PauseSpan| Some(At::Elsewhere(&same));
            RunPhases::of(&timeline, (0, 1_000), false, forks(Some(400)), work).mark
        };
        assert_eq!(mark(false), TrainingMark::WholeRun);
        assert_eq!(mark(true), TrainingMark::AfterFork, "a library's line serves many callers");
    }

    #[test]
    fn imports_end_before_a_line_that_imports_once_more() {
        let pauses: Vec<PauseSpan> = (0..50).map(|index| at(index * 20)).collect();
        let timeline = ProcessTimeline { pauses, ..ProcessTimeline::default() };
        // The program works from 300 ns on, at one line; a module that it loads later imports much.
        let same = line(7);
        let work = |pause: &PauseSpan| {
            let imports = pause.start_ns < 300 || (500..800).contains(&pause.start_ns);
            Some(if imports { At::Import } else { At::Elsewhere(&same) })
        };
        let phases = RunPhases::of(&timeline, (0, 1_000), false, Begins::default(), work);
        assert_eq!((phases.mark, phases.training_ns), (TrainingMark::AfterImports, (290, 1_000)));
    }

    proptest! {
        #[test]
        fn every_pause_is_in_one_phase_and_none_is_longer_than_its_phase(
            lengths in prop::collection::vec(0u64..1_000, 0..20),
            pauses in prop::collection::vec((0u64..30_000, 0u64..3_000, 0usize..4), 0..20),
            span_ns in (0u64..10_000, 10_001u64..40_000),
            attached in any::<bool>(),
            fork_ns in prop::option::of(0u64..50_000),
        ) {
            let reasons = [GcReason::Automatic, GcReason::Manual, GcReason::Shutdown, GcReason::Unknown];
            let pauses = pauses.into_iter().map(|(start_ns, length_ns, reason)| {
                pause(start_ns, start_ns + length_ns, reasons[reason])
            });
            let mut pauses: Vec<PauseSpan> = pauses.collect();
            pauses.sort_by_key(|pause| pause.start_ns);
            let timeline =
                ProcessTimeline { steps: steps(&lengths, 5_000), pauses, ..ProcessTimeline::default() };
            let phases = RunPhases::of(&timeline, span_ns, attached, forks(fork_ns), |_| None);
            let (start_ns, end_ns) = phases.span_ns;
            prop_assert!(start_ns <= phases.training_ns.0);
            prop_assert!(phases.training_ns.0 <= phases.training_ns.1);
            prop_assert!(phases.training_ns.1 <= end_ns);
            let mut count = 0;
            let work = timeline.all_pauses().map(|pause| (pause, GcReason::Automatic, 1));
            for row in phases.rows(work, true, 0) {
                count += row.pauses.count;
                prop_assert!(row.paused_ns <= row.duration_ns);
                prop_assert!(row.over_time_ns.iter().sum::<u64>() <= row.paused_ns);
            }
            prop_assert_eq!(count, timeline.pauses.len() as u64);
        }
    }
}
