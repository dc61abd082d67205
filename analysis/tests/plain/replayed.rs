//! What remedies save by replay, against programs that are run again with them, in simulation.

use crate::training;

use gctrace_analysis::report::{AdviceEffect, AdviceId};
use test_kit::reports::MS;
use training::{Collector, DEFAULT, Outcome, PROGRAM, Program, US, analyzed, of, run};

/// Programs with the host far ahead of the GPU, slightly ahead, and behind it.
fn programs() -> [Program; 4] {
    [
        PROGRAM,
        Program { kernel_ns: 50 * US, ..PROGRAM },
        Program { kernel_ns: 10 * US, ..PROGRAM },
        Program { kernel_ns: 46 * US, sync_every: 7, ..PROGRAM },
    ]
}

/// The truth lies between the bounds, up to the error of the replay: a millisecond per run.
fn holds(effect: Option<&AdviceEffect>, truth: &Outcome, measured: &Outcome) -> Option<()> {
    let effect = effect?;
    let (run, step) = (effect.run?, effect.step?);
    assert_eq!(run.measured_ns, measured.length_ns, "{effect:?}");
    let slack_ns = MS;
    assert!(
        run.at_least_ns <= truth.length_ns + slack_ns
            && truth.length_ns <= run.at_most_ns + slack_ns,
        "{} of {} is not in {effect:#?}",
        truth.length_ns,
        measured.length_ns
    );
    assert!(
        step.at_least_ns <= truth.step_ns + slack_ns / 45
            && truth.step_ns <= step.at_most_ns + slack_ns / 45,
        "a step of {} is not in {effect:#?}",
        truth.step_ns
    );
    let saved = |ns: u64| run.measured_ns as i64 - ns as i64;
    assert_eq!(effect.saves_at_least_ns, Some(saved(run.at_most_ns)));
    assert_eq!(effect.saves_at_most_ns, Some(saved(run.at_least_ns).max(0) as u64));
    let likely = effect.saves_likely_ns?;
    assert!(saved(run.at_most_ns) <= likely && likely <= saved(run.at_least_ns), "{effect:?}");
    Some(())
}

#[test]
fn planned_collections() {
    for program in programs() {
        // Long enough for a plan, and a heap that stays as it is.
        let program = Program { steps: 150, kept: 1, heap: 100_000, ..program };
        let measured = run(program, DEFAULT);
        let report = analyzed(&measured);
        let planned = of(&report, AdviceId::Planned).unwrap();
        let every = planned.settings.as_ref().unwrap().collect_every_steps.unwrap();
        let collector = Collector { disable_at: Some(1), collect_every: Some(every), ..DEFAULT };
        holds(Some(planned), &run(program, collector), &measured).unwrap();
    }
}

#[test]
fn thresholds_ten_times_as_high() {
    for program in programs() {
        let measured = run(program, DEFAULT);
        let [young, middle, old] = DEFAULT.thresholds;
        let raised = Collector { thresholds: [young * 10, middle, old], ..DEFAULT };
        let report = analyzed(&measured);
        holds(of(&report, AdviceId::RaiseThreshold), &run(program, raised), &measured).unwrap();
    }
}

/// Full collections that the program asks for, so that freezing does not change how many there are.
#[test]
fn freezing_and_leaving_out_explicit_calls() {
    for program in programs() {
        let settings = Collector { enabled: false, collect_every: Some(5), ..DEFAULT };
        let measured = run(program, settings);
        let frozen = Collector { freeze_after: Some(0), ..settings };
        let report = analyzed(&measured);
        let freeze = of(&report, AdviceId::Freeze);
        holds(freeze, &run(program, frozen), &measured).unwrap();
        let without = Collector { collect_every: None, ..settings };
        holds(of(&report, AdviceId::ExplicitCalls), &run(program, without), &measured).unwrap();
        // There are no automatic collections, so there is nothing else to change.
        assert_eq!(report.advice.len() + report.not_advised.len(), 2, "{:?}", report.advice);
    }
}

#[test]
fn nothing_saves_more_than_all_pauses_cost() {
    for program in programs() {
        let report = analyzed(&run(program, DEFAULT));
        let cost = report.gpu_cost.unwrap();
        for priced in report.advice.iter().chain(&report.not_advised) {
            let Some(most_ns) = priced.effect.saves_at_most_ns else {
                assert!(matches!(priced.id, AdviceId::Leave | AdviceId::FindCycles), "{priced:?}");
                continue;
            };
            assert!(most_ns <= cost.cost_ns + cost.error_ns.unwrap_or(0), "{priced:?}");
            if priced.id == AdviceId::OffWhileLoading {
                assert!(priced.effect.run.is_none(), "{priced:?}");
                continue;
            }
            let run = priced.effect.run.unwrap();
            assert!(run.at_least_ns <= run.at_most_ns, "{priced:?}");
        }
    }
}
