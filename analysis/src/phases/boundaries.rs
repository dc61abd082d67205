//! Where start-up and training end in a process: by its steps, by the stacks of its pauses, by the
//! growth of its heap, and by where pauses become rare.

use crate::gpu::steps::{busiest_thread, warm_up};
use crate::gpu::timeline::{ProcessTimeline, StepSpan};
use crate::report::{ByCause, PauseTotal, PhaseReport, TrainingMark};
use crate::spans::PauseSpan;
use crate::time;
use crate::time::add_to;
use crate::time::intervals::Intervals;
use crate::time::stats::ratio;
use gctrace_event::GcReason;

/// Fewer steps than this do not show where training begins.
pub(super) const FEWEST_STEPS: usize = 5;
/// Parts of a phase in [`PhaseReport::over_time_ns`].
const PARTS: u64 = 24;
/// A heap of fewer objects is no more than imports.
const SMALLEST_LOADED: u64 = 40_000;
/// Containers between two automatic collections, at least, by default: threshold 0 of CPython up to
/// 3.12 is 700, later 2,000.
const FEWEST_BETWEEN: u64 = 700;
/// A run loads first if the share of its pause time that has passed is ahead of the share of its
/// time by this much somewhere. (The statistic of Kolmogorov and Smirnov; pauses that come evenly
/// keep it near 0.)
const LOADING_AHEAD: f64 = 0.15;
/// ... after this number of collections or more: some are imports, or chance.
const FEWEST_LOADING: u64 = 10;
/// ... and from there on the share of the time that is paused is less than one in this many.
const LOADING_DENSER: f64 = 4.0;
/// ... and of what was allocated until then less than this part was garbage, as loaded data stay.
const LOADING_GARBAGE: f64 = 0.25;
/// ... and what follows is looked at again if this share of the pause time or more is left.
const LOADING_REST: f64 = 0.1;

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
    /// The phases of a process. `span_ns`: start and end of its recorded part; `attached`: whether it
    /// already ran before, and had started up; `stack`: what the stack of a pause shows, `None`
    /// without one.
    pub(crate) fn of(
        timeline: &ProcessTimeline,
        span_ns: (u64, u64),
        attached: bool,
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
                let started = (!attached).then_some(timeline.pauses.as_slice());
                let imported_ns =
                    started.and_then(|pauses| imported_ns(pauses, (start_ns, exit_ns), stack));
                let after_imports_ns = (imported_ns.unwrap_or(start_ns), exit_ns);
                let loaded_ns = started.and_then(|pauses| loaded_ns(pauses, after_imports_ns));
                let (training_ns, mark) = match (loaded_ns, imported_ns) {
                    (Some(loaded_ns), _) => (loaded_ns, TrainingMark::AfterLoading),
                    (None, Some(imported_ns)) => (imported_ns, TrainingMark::AfterImports),
                    (None, None) => (start_ns, TrainingMark::WholeRun),
                };
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

    /// `causes`: of each pause.
    pub(super) fn row(
        &self,
        phase: Phase,
        pauses: &[PauseSpan],
        causes: &[GcReason],
        origin_ns: u64,
    ) -> PhaseReport {
        let (start_ns, end_ns) = self.span_of(phase);
        let mut work = CollectionWork::default();
        for (pause, cause) in pauses.iter().zip(causes) {
            if self.phase_of(pause) == phase {
                work.add(pause, *cause);
            }
        }
        let pauses = pauses.iter().filter(|pause| self.phase_of(pause) == phase);
        let mut sum = PauseTotal::default();
        let mut longest_ns = None;
        // Of pauses without CPU time the length counts.
        let (mut cpu_ns, mut known_ns, mut longest_cpu_ns) = (0, 0, None);
        for pause in pauses.clone() {
            let length_ns = pause.duration_ns();
            sum.add(length_ns);
            longest_ns = longest_ns.max(Some(length_ns));
            if pause.cpu_ns.is_some() {
                add_to(&mut known_ns, length_ns);
            }
            add_to(&mut cpu_ns, pause.work_ns());
            longest_cpu_ns = longest_cpu_ns.max(Some(pause.work_ns()));
        }
        let is_known = known_ns >= sum.time_ns / 2;
        let paused = Intervals::from_iter(pauses.map(PauseSpan::span));
        let duration_ns = end_ns - start_ns;
        let paused_ns = paused.length_within(start_ns, end_ns);
        PhaseReport {
            after_start_ns: time::duration(origin_ns, start_ns),
            duration_ns,
            pauses: sum,
            causes: work.causes,
            young: work.young,
            freed_objects: work.freed_objects,
            freed_nothing: work.freed_nothing,
            paused_ns,
            paused_cpu_ns: is_known.then_some(cpu_ns),
            cpu_wait_ns: None,
            paused_ratio: ratio(paused_ns, duration_ns),
            longest_ns,
            longest_cpu_ns: longest_cpu_ns.filter(|_| is_known),
            over_time_ns: over_time(&paused, (start_ns, end_ns)),
        }
    }
}

/// What collections were started by, took and freed.
#[derive(Debug, Default)]
struct CollectionWork {
    causes: ByCause,
    young: u64,
    freed_objects: Option<u64>,
    freed_nothing: PauseTotal,
}

impl CollectionWork {
    fn add(&mut self, pause: &PauseSpan, cause: GcReason) {
        self.causes.of(cause, pause.generation == 2).add(pause.work_ns());
        if cause != GcReason::Automatic {
            return;
        }
        self.young += u64::from(pause.generation == 0);
        if let Some(freed) = pause.collected.map(|freed| u64::from(freed.get())) {
            add_to(self.freed_objects.get_or_insert(0), freed);
            if freed == 0 {
                self.freed_nothing.add(pause.work_ns());
            }
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

/// The end of the imports, within these timestamps: where least of the time of the pauses that have
/// a stack is on the wrong side, importing after it or anything else before it. `None` if it is the
/// start.
fn imported_ns(
    pauses: &[PauseSpan],
    (from_ns, to_ns): (u64, u64),
    stack: impl Fn(&PauseSpan) -> Option<At>,
) -> Option<u64> {
    // Time that is on the wrong side, beyond what is if the imports end at the start.
    let (mut wrong_ns, mut least_ns, mut imported_ns) = (0, 0, None);
    let within = |pause: &&PauseSpan| (from_ns..to_ns).contains(&pause.start_ns);
    for pause in pauses.iter().filter(within) {
        match stack(pause) {
            None => {}
            Some(At::Elsewhere) => wrong_ns += i128::from(pause.duration_ns()),
            Some(At::Import) => wrong_ns -= i128::from(pause.duration_ns()),
        }
        if wrong_ns < least_ns {
            (least_ns, imported_ns) = (wrong_ns, Some(pause.end_ns.min(to_ns)));
        }
    }
    imported_ns
}

/// The end of a first part of the time between these timestamps in which the program loads; `None`
/// without one.
fn loaded_ns(pauses: &[PauseSpan], span_ns: (u64, u64)) -> Option<u64> {
    grown_ns(pauses, span_ns).max(quiet_ns(pauses, span_ns))
}

/// When the heap had all but grown: the first full collection that left as many objects as all but a
/// tenth of the most that any did, early enough and with another one after it.
fn grown_ns(pauses: &[PauseSpan], (from_ns, to_ns): (u64, u64)) -> Option<u64> {
    let within = |pause: &&PauseSpan| {
        (from_ns..to_ns).contains(&pause.start_ns) && pause.reason != GcReason::Shutdown
    };
    // Garbage until then, and containers allocated at least.
    let (mut freed, mut allocated) = (0, 0);
    let mut left = |pause: &PauseSpan| {
        freed += pause.collected.map_or(0, |freed| u64::from(freed.get()));
        allocated += FEWEST_BETWEEN;
        let objects = pause.objects.filter(|_| pause.generation == 2)?;
        let stays = ratio(freed, allocated).is_none_or(|garbage| garbage < LOADING_GARBAGE);
        Some((u64::from(objects.get()), pause.end_ns.min(to_ns), stays))
    };
    let pauses = pauses.iter().filter(within);
    let left: Vec<(u64, u64, bool)> = pauses.filter_map(&mut left).collect();
    let most = left.iter().map(|(objects, ..)| *objects).max()?;
    let is_grown = |(objects, ..): &&(u64, u64, bool)| *objects >= most - most / 10;
    let (_, end_ns, stays) = *left.split_last()?.1.iter().find(is_grown)?;
    let is_early = end_ns - from_ns <= (to_ns - from_ns) / 2;
    (most >= SMALLEST_LOADED && is_early && stays).then_some(end_ns)
}

/// The end of a first part in which the program is paused for far more of the time than after it,
/// while what it allocates stays. It may load several times in turn: what follows a first part is
/// looked at in the same way, as long as it has a share of the pauses worth it.
fn quiet_ns(pauses: &[PauseSpan], (from_ns, to_ns): (u64, u64)) -> Option<u64> {
    let within = |pause: &&PauseSpan| {
        (from_ns..to_ns).contains(&pause.start_ns) && pause.reason != GcReason::Shutdown
    };
    let pauses: Vec<&PauseSpan> = pauses.iter().filter(within).collect();
    let sum = |pauses: &[&PauseSpan]| -> u64 {
        pauses.iter().map(|pause| pause.duration_ns()).fold(0, u64::saturating_add)
    };
    let all_ns = sum(&pauses);
    let (mut rest, mut found_ns) = (pauses.as_slice(), None);
    while ratio(sum(rest), all_ns).is_some_and(|share| share >= LOADING_REST)
        && let Some(loads) = part_that_loads(rest, (found_ns.unwrap_or(from_ns), to_ns))
        && let Some(last) = loads.last()
    {
        rest = rest.get(loads.len()..).unwrap_or_default();
        found_ns = Some(last.end_ns.min(to_ns));
    }
    found_ns
}

/// The pauses of the first part of this time in which the program loads.
fn part_that_loads<'a, 'b>(
    pauses: &'a [&'b PauseSpan],
    (from_ns, to_ns): (u64, u64),
) -> Option<&'a [&'b PauseSpan]> {
    let all_ns = pauses.iter().map(|pause| pause.duration_ns()).fold(0, u64::saturating_add);
    let (mut paused_ns, mut collections, mut freed) = (0, 0, 0);
    let mut ahead_most: Option<(f64, usize)> = None;
    for (place, pause) in pauses.iter().enumerate() {
        add_to(&mut paused_ns, pause.duration_ns());
        collections += 1;
        freed += pause.collected.map_or(0, |freed| u64::from(freed.get()));
        let end_ns = pause.end_ns.min(to_ns);
        let paused = ratio(paused_ns, all_ns)?;
        let passed = ratio(end_ns.saturating_sub(from_ns), to_ns.saturating_sub(from_ns))?;
        let denser = paused / passed > LOADING_DENSER * (1.0 - paused) / (1.0 - passed);
        let allocated = collections * FEWEST_BETWEEN;
        let stays = ratio(freed, allocated).is_none_or(|garbage| garbage < LOADING_GARBAGE);
        let ahead = paused - passed;
        if collections >= FEWEST_LOADING
            && denser
            && stays
            && ahead >= LOADING_AHEAD
            && ahead_most.is_none_or(|(most, _)| ahead > most)
        {
            ahead_most = Some((ahead, place));
        }
    }
    pauses.get(..=ahead_most?.1)
}

/// When the interpreter began to finalize, by its collections; `u64::MAX` if unknown.
fn exit_ns(timeline: &ProcessTimeline) -> u64 {
    let pauses = timeline.pauses.iter();
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
        let phases = RunPhases::of(&timeline, (0, 10_000), false, |_| None);
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
        let phases = RunPhases::of(&timeline, (0, 1_000), true, |_| None);
        assert_eq!(phases.training_ns, (0, 800));
        assert_eq!((phases.mark, phases.steps), (TrainingMark::WholeRun, None));
        let causes: Vec<GcReason> = timeline.pauses.iter().map(|pause| pause.reason).collect();
        let of = |phase| phases.row(phase, &timeline.pauses, &causes, 0);
        let counts = [Phase::StartUp, Phase::Training, Phase::Exit].map(|one| of(one).pauses.count);
        assert_eq!(counts, [0, 2, 1]);
        let training = of(Phase::Training);
        assert_eq!(training.paused_ns, 150);
        assert_eq!(training.paused_ratio, Some(0.1875));
    }

    /// Pauses of 10 ns at these times, and the phases of a run of 1,000 ns.
    fn phases_of(pauses: &[PauseSpan], attached: bool, imports_until_ns: u64) -> RunPhases {
        let timeline = ProcessTimeline { pauses: pauses.to_vec(), ..ProcessTimeline::default() };
        RunPhases::of(&timeline, (0, 1_000), attached, |pause| {
            Some(if pause.start_ns < imports_until_ns { At::Import } else { At::Elsewhere })
        })
    }

    fn at(start_ns: u64) -> PauseSpan {
        pause(start_ns, start_ns + 10, GcReason::Automatic)
    }

    #[test]
    fn imports_end_where_least_time_is_on_the_wrong_side() {
        let pauses: Vec<PauseSpan> = (0..50).map(|index| at(index * 20)).collect();
        let phases = phases_of(&pauses, false, 200);
        assert_eq!((phases.mark, phases.training_ns), (TrainingMark::AfterImports, (190, 1_000)));
        // A module that is loaded late moves nothing, and a process that already ran has no start-up.
        let late = |pause: &PauseSpan| {
            let importing = pause.start_ns < 200 || pause.start_ns == 800;
            Some(if importing { At::Import } else { At::Elsewhere })
        };
        let timeline = ProcessTimeline { pauses: pauses.clone(), ..ProcessTimeline::default() };
        assert_eq!(RunPhases::of(&timeline, (0, 1_000), false, late).training_ns, (190, 1_000));
        assert_eq!(phases_of(&pauses, true, 200).training_ns, (0, 1_000));
    }

    #[test]
    fn loading_ends_where_pauses_become_rare_if_what_was_allocated_stays() {
        let mut pauses: Vec<PauseSpan> = (0..20).map(|index| at(100 + index * 15)).collect();
        pauses.push(at(800));
        let phases = phases_of(&pauses, false, 0);
        assert_eq!((phases.mark, phases.training_ns), (TrainingMark::AfterLoading, (395, 1_000)));
        // Loaded in two parts, with a quiet time between them.
        let more = (0..15).map(|index| at(420 + index * 15));
        let parts: Vec<PauseSpan> = pauses.iter().copied().take(20).chain(more).collect();
        let parts = [parts, vec![at(900)]].concat();
        assert_eq!(phases_of(&parts, false, 0).training_ns, (640, 1_000));
        let twice: Vec<PauseSpan> =
            (0..20).map(|index| at(index * 11)).chain((0..10).map(|i| at(550 + i * 11))).collect();
        assert_eq!(phases_of(&twice, false, 0).training_ns, (659, 1_000));
        // Garbage is work, whenever it is.
        for pause in &mut pauses {
            pause.collected = SmallNumber::new(600);
        }
        assert_eq!(phases_of(&pauses, false, 0).mark, TrainingMark::WholeRun);
        // Pauses that come evenly are no loading.
        let even: Vec<PauseSpan> = (0..50).map(|index| at(index * 20)).collect();
        assert_eq!(phases_of(&even, false, 0).mark, TrainingMark::WholeRun);
    }

    #[test]
    fn loading_ends_where_the_heap_has_grown() {
        let full = |start_ns, objects| PauseSpan {
            objects: SmallNumber::new(objects),
            generation: 2,
            ..at(start_ns)
        };
        let heap = |objects: [u64; 5]| -> Vec<PauseSpan> {
            let starts = [100, 200, 300, 600, 900].into_iter();
            starts.zip(objects).map(|(start_ns, objects)| full(start_ns, objects)).collect()
        };
        let grown = heap([50_000, 100_000, 200_000, 205_000, 203_000]);
        assert_eq!(phases_of(&grown, false, 0).training_ns, (310, 1_000));
        let growing = heap([50_000, 100_000, 200_000, 300_000, 400_000]);
        assert_eq!(phases_of(&growing, false, 0).mark, TrainingMark::WholeRun);
        let small = heap([5_000, 10_000, 20_000, 20_000, 20_000]);
        assert_eq!(phases_of(&small, false, 0).mark, TrainingMark::WholeRun);
    }

    proptest! {
        #[test]
        fn every_pause_is_in_one_phase_and_none_is_longer_than_its_phase(
            lengths in prop::collection::vec(0u64..1_000, 0..20),
            pauses in prop::collection::vec((0u64..30_000, 0u64..3_000, 0usize..4), 0..20),
            span_ns in (0u64..10_000, 10_001u64..40_000),
            attached in any::<bool>(),
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
            let phases = RunPhases::of(&timeline, span_ns, attached, |_| None);
            let (start_ns, end_ns) = phases.span_ns;
            prop_assert!(start_ns <= phases.training_ns.0);
            prop_assert!(phases.training_ns.0 <= phases.training_ns.1);
            prop_assert!(phases.training_ns.1 <= end_ns);
            let mut count = 0;
            for phase in [Phase::StartUp, Phase::Training, Phase::Exit] {
                let causes = vec![GcReason::Automatic; timeline.pauses.len()];
                let row = phases.row(phase, &timeline.pauses, &causes, 0);
                count += row.pauses.count;
                prop_assert!(row.paused_ns <= row.duration_ns);
                prop_assert!(row.over_time_ns.iter().sum::<u64>() <= row.paused_ns);
            }
            prop_assert_eq!(count, timeline.pauses.len() as u64);
        }
    }
}
