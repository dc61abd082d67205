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
