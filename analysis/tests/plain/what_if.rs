//! Predictions against programs that are run again with the change, in simulation.

use crate::training;

use gctrace_analysis::report::{PredictionMethod, ScenarioId, WhatIf};
use test_kit::reports::MS;
use training::{CollectorKind, DEFAULT, Outcome, PROGRAM, Program, US, analyzed, of, run};

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
fn holds(what: Option<&WhatIf>, truth: &Outcome, measured: &Outcome) -> Option<()> {
    let what = what?;
    assert_eq!(what.method, PredictionMethod::Replay);
    let (run, step) = (what.run?, what.step?);
    assert_eq!(run.measured_ns, measured.length_ns, "{what:?}");
    let slack_ns = MS;
    assert!(
        run.at_least_ns <= truth.length_ns + slack_ns
            && truth.length_ns <= run.at_most_ns + slack_ns,
        "{} of {} is not in {what:#?}",
        truth.length_ns,
        measured.length_ns
    );
    assert!(
        step.at_least_ns <= truth.step_ns + slack_ns / 45
            && truth.step_ns <= step.at_most_ns + slack_ns / 45,
        "a step of {} is not in {what:#?}",
        truth.step_ns
    );
    assert_eq!(what.saved_ns.at_most_ns, run.measured_ns as i64 - run.at_least_ns as i64);
    Some(())
}

#[test]
fn without_automatic_collections() {
    for program in programs() {
        let measured = run(program, DEFAULT);
        let off = CollectorKind { enabled: false, ..DEFAULT };
        let report = analyzed(&measured);
        holds(of(&report, ScenarioId::Disable), &run(program, off), &measured).unwrap();
    }
}

#[test]
fn planned_collections() {
    for program in programs() {
        let measured = run(program, DEFAULT);
        let report = analyzed(&measured);
        let planned = of(&report, ScenarioId::Planned).unwrap();
        let every = planned.every_steps.unwrap();
        let collector = CollectorKind { enabled: false, collect_every: Some(every), ..DEFAULT };
        if every * 2 > program.steps {
            // Too rare for this recording: its share is added.
            let off = CollectorKind { enabled: false, ..DEFAULT };
            let without = run(program, off);
            assert!(planned.run.unwrap().at_most_ns > without.length_ns);
            continue;
        }
        holds(Some(planned), &run(program, collector), &measured).unwrap();
    }
}

#[test]
fn thresholds_ten_times_as_high() {
    for program in programs() {
        let measured = run(program, DEFAULT);
        let [young, middle, old] = DEFAULT.thresholds;
        let raised = CollectorKind { thresholds: [young * 10, middle, old], ..DEFAULT };
        let report = analyzed(&measured);
        holds(of(&report, ScenarioId::Thresholds), &run(program, raised), &measured).unwrap();
    }
}

/// Full collections that the program asks for, so that freezing does not change how many there are.
#[test]
fn freezing_and_leaving_out_explicit_calls() {
    for program in programs() {
        let settings = CollectorKind { enabled: false, collect_every: Some(5), ..DEFAULT };
        let measured = run(program, settings);
        let frozen = CollectorKind { freeze_after: Some(0), ..settings };
        let report = analyzed(&measured);
        let freeze = of(&report, ScenarioId::Freeze);
        holds(freeze, &run(program, frozen), &measured).unwrap();
        let without = CollectorKind { collect_every: None, ..settings };
        holds(of(&report, ScenarioId::Explicit), &run(program, without), &measured).unwrap();
        // There are no automatic collections, so there is nothing else to change.
        assert_eq!(report.what_if.len(), 2);
    }
}

#[test]
fn planning_is_between_disabling_and_nothing() {
    for program in programs() {
        let report = analyzed(&run(program, DEFAULT));
        let less = |id| of(&report, id).unwrap().pause_time_saved_ns;
        for what in &report.what_if {
            let saved_ns = what.pause_time_saved_ns;
            assert!(saved_ns.at_least_ns <= saved_ns.at_most_ns, "{what:?}");
            assert!(saved_ns.at_most_ns <= less(ScenarioId::Disable).at_most_ns, "{what:?}");
            let run = what.run.unwrap();
            assert!(run.at_least_ns <= run.at_most_ns, "{what:?}");
        }
        assert!(less(ScenarioId::Planned).at_most_ns < less(ScenarioId::Disable).at_most_ns);
    }
}
