//! Remedies for runs whose collector and heap are known.

use super::*;
use crate::spans::index::{Index, SmallNumber};
use gctrace_event::{GcReason, Pause};
use proptest::prelude::*;

/// Time between two collections, in ns.
const BETWEEN_NS: u64 = 1_000_000;

fn pause(start_ns: u64, length_ns: u64, generation: u8, collected: u64) -> PauseSpan {
    PauseSpan {
        start_ns,
        end_ns: start_ns + length_ns,
        thread: Index::new(0),
        cpu_ns: None,
        collected: SmallNumber::new(collected),
        objects: None,
        freed_kib: None,
        generation,
        reason: GcReason::Unknown,
        stack: None,
    }
}

/// Collections of a program that only allocates, by CPython's rules: 50 ns for each object.
fn growing(windows: u64) -> Vec<PauseSpan> {
    let (mut young, mut middle, mut pending, mut total, mut fresh) = (0, 0, 0, 0, 0);
    let mut pauses = Vec::new();
    for window in 1..=windows {
        fresh += 701;
        let generation = match () {
            () if middle > 10 && pending >= total / 4 => 2,
            () if young > 10 => 1,
            () => 0,
        };
        let traversed = match generation {
            2 => {
                total += pending + fresh;
                (young, middle, pending, fresh) = (0, 0, 0, 0);
                total
            }
            1 => {
                pending += fresh;
                let traversed = fresh;
                (young, middle, fresh) = (0, middle + 1, 0);
                traversed
            }
            _ => {
                young += 1;
                701
            }
        };
        pauses.push(pause(window * BETWEEN_NS, traversed * 50, generation, 0));
    }
    pauses
}

fn run(pauses: &[PauseSpan], thresholds: [i32; 3], enabled: bool) -> Vec<PricedRemedy> {
    let end_ns = pauses.last().map_or(0, |last| last.end_ns + 1);
    let run = RecordedRun {
        few_cycles: false,
        device: None,
        resident_bytes: None,
        start_ns: None,
        forked: false,
        ended: false,
        pauses,
        training_ns: (end_ns / 2, end_ns),
        steps: Some(1_000),
        thresholds,
        start_thresholds: thresholds,
        enabled: Some(enabled),
    };
    price(&run).unwrap()
}

fn of(remedies: &[PricedRemedy], id: AdviceId) -> Option<&PricedRemedy> {
    remedies.iter().find(|remedy| remedy.id == id)
}

#[test]
fn a_growing_heap_needs_fewer_full_collections() {
    let pauses = growing(3_000);
    let remedies = run(&pauses, [700, 10, 10], true);
    let in_training = pauses.iter().filter(|pause| pause.start_ns >= pauses[1_498].end_ns);
    let recorded: u64 = in_training.map(PauseSpan::duration_ns).sum();
    let threshold = of(&remedies, AdviceId::RaiseThreshold).unwrap();
    assert_eq!(threshold.settings.thresholds, Some([7_000, 10, 10]));
    assert!(threshold.likely_ns() > 0, "{threshold:?}");
    // Two runs differ: as much as all that was recorded, and somewhat more.
    assert!(threshold.saves_ns[2].unsigned_abs() <= recorded + recorded / 20, "{threshold:?}");
    let planned = of(&remedies, AdviceId::Planned).unwrap();
    assert_eq!(planned.waiting_objects, 0, "it makes no garbage");
    assert_eq!(planned.settings.collect_every_steps, Some(100), "a tenth of them");
}

/// A collection in a forked child copies the pages that it shares with its parent: its heap is frozen
/// there, before the fork.
#[test]
fn the_heap_of_a_parent_is_frozen_before_the_fork() {
    let pauses = growing(3_000);
    let freezes = |forked| {
        let run = RecordedRun {
            few_cycles: false,
            device: None,
            resident_bytes: None,
            start_ns: Some(0),
            forked,
            ended: true,
            pauses: &pauses,
            training_ns: (pauses[1_500].start_ns, u64::MAX),
            steps: None,
            thresholds: [700, 10, 10],
            start_thresholds: [700, 10, 10],
            enabled: Some(true),
        };
        let ids: Vec<AdviceId> = price(&run).unwrap().iter().map(|remedy| remedy.id).collect();
        [AdviceId::Freeze, AdviceId::FreezeBeforeFork].map(|id| ids.contains(&id))
    };
    assert_eq!((freezes(false), freezes(true)), ([true, false], [false, true]));
}

/// A run that is training from its start to its end, with the default thresholds.
fn training(pauses: &[PauseSpan]) -> RecordedRun<'_> {
    RecordedRun {
        few_cycles: false,
        device: None,
        resident_bytes: None,
        start_ns: None,
        forked: false,
        ended: true,
        pauses,
        training_ns: (0, u64::MAX),
        steps: None,
        thresholds: [700, 10, 10],
        start_thresholds: [700, 10, 10],
        enabled: Some(true),
    }
}

/// A cache of fresh objects: reference counts free them, and a program's few cycles start nothing.
#[test]
fn only_garbage_starts_fewer_collections_without_cycles() {
    let mut pauses = growing(3_000);
    let saves_ns = |pauses: &[PauseSpan]| {
        let run = RecordedRun { few_cycles: true, ..training(pauses) };
        of(&price(&run).unwrap(), AdviceId::BreakCycles).map(|remedy| remedy.saves_ns)
    };
    let free = |pauses: &mut [PauseSpan], objects| {
        for pause in pauses {
            pause.collected = SmallNumber::new(objects);
        }
    };
    free(&mut pauses[..10], 20);
    assert_eq!(saves_ns(&pauses), None);
    let all: i64 = pauses.iter().map(|pause| pause.duration_ns().cast_signed()).sum();
    free(&mut pauses, 100);
    let [least, _, most] = saves_ns(&pauses).unwrap();
    assert!(0 < least && most < all / 2, "{least} {most} {all}");
    free(&mut pauses, 700);
    let [least, _, _] = saves_ns(&pauses).unwrap();
    assert!(least > all / 2, "{least} {all}");
}

#[test]
fn pauses_that_wait_are_not_known_to_be_saved() {
    let mut pauses = growing(3_000);
    // `lock.wait()` in a `__del__`, which takes as long in whatever collection.
    let waiting = |pause: &mut PauseSpan, waited_ns| {
        pause.cpu_ns = SmallNumber::new(pause.duration_ns());
        pause.end_ns += waited_ns;
    };
    pauses.iter_mut().for_each(|pause| waiting(pause, 0));
    let least_ns = |pauses: &[PauseSpan]| -> Vec<i64> {
        let whole = RecordedRun { start_ns: Some(0), ..training(pauses) };
        price(&whole).unwrap().iter().map(|remedy| remedy.saves_ns[0]).collect()
    };
    assert!(least_ns(&pauses).iter().any(|ns| *ns > 0));
    pauses.iter_mut().step_by(10).for_each(|pause| waiting(pause, 50_000_000));
    assert!(least_ns(&pauses).iter().all(|ns| *ns <= 0), "{:?}", least_ns(&pauses));
}

#[test]
fn what_is_in_force_is_not_given_again() {
    let pauses = growing(20_000);
    let raised = run(&pauses, [7_000, 10, 10], true);
    assert_eq!(of(&raised, AdviceId::RaiseThreshold), None);
    let disabled = run(&pauses, [700, 10, 10], false);
    assert_eq!(of(&disabled, AdviceId::RaiseThreshold), None);
    assert_eq!(of(&disabled, AdviceId::Planned), None);
}

#[test]
fn a_frozen_heap_is_not_frozen_again() {
    let mut pauses = growing(20_000);
    let (first, rest) = pauses.split_at_mut(15_000);
    assert!(first.iter().any(|pause| pause.generation == 2));
    for rest in rest.iter_mut().filter(|rest| rest.generation == 2) {
        rest.end_ns = rest.start_ns + 1_000;
    }
    assert_eq!(of(&run(&pauses, [700, 10, 10], true), AdviceId::Freeze), None);
}

#[test]
fn full_collections_that_no_threshold_starts_are_the_program_s() {
    let at = |window: u64| pause(window * BETWEEN_NS, 5_000_000, 2, 0);
    let pauses: Vec<PauseSpan> = (1..100).map(|index| at(index * 10)).collect();
    let remedies = run(&pauses, [700, 10, 10], true);
    let explicit = of(&remedies, AdviceId::ExplicitCalls).unwrap();
    assert!(explicit.likely_ns() > 200_000_000, "{explicit:?}");
    assert_eq!(of(&remedies, AdviceId::RaiseThreshold), None);
}

#[test]
fn nothing_is_known_of_unknown_generations() {
    let pauses = [pause(5, 5, Pause::UNKNOWN_GENERATION, 0)];
    let run = RecordedRun {
        few_cycles: false,
        device: None,
        resident_bytes: None,
        start_ns: None,
        forked: false,
        ended: false,
        pauses: &pauses,
        training_ns: (0, 100),
        steps: None,
        thresholds: [700, 10, 10],
        start_thresholds: [700, 10, 10],
        enabled: None,
    };
    assert_eq!(price(&run), None);
}

proptest! {
    #[test]
    fn ranges_are_in_order(
        pauses in prop::collection::vec((0..u64::MAX / 2, 0..u64::MAX / 4, 0u8..4, any::<u32>()), 0..60),
        training in (any::<u64>(), any::<u64>()),
        steps in any::<Option<u64>>(),
        thresholds in any::<[i32; 3]>(),
        known in any::<bool>(),
    ) {
        let mut pauses: Vec<PauseSpan> = pauses
            .into_iter()
            .map(|(start, length, generation, collected)| PauseSpan {
                objects: SmallNumber::new(u64::from(collected)).filter(|_| known),
                ..pause(start, length, generation, u64::from(collected))
            })
            .collect();
        pauses.sort_by_key(|pause| pause.start_ns);
        let run = RecordedRun { few_cycles: true, device: None, resident_bytes: None, start_ns: Some(0), forked: false, ended: true, start_thresholds: thresholds, pauses: &pauses, training_ns: training, steps, thresholds, enabled: None };
        for remedy in price(&run).unwrap_or_default() {
            let [least, likely, most] = remedy.saves_ns;
            prop_assert!(least <= likely && likely <= most, "{remedy:?}");
        }
    }
}
