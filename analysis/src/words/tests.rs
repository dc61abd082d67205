//! Sentences of a report as if its pauses had been replayed.

use super::{advice, verdict, what_if};
use crate::Analysis;
use crate::report::{
    AdviceEffect, AdviceId, Basis, Change, Garbage, GpuCost, PauseTotal, PlannedInterval,
    PredictedLength, PredictedRange, PredictionMethod, Report, Saving, ScenarioId, WhatIf,
};
use gctrace_event::read::{EventReader, TraceInput, TraceReader};

const TRACE: &str = r#"[
{"ph":"M","name":"gctrace_header","pid":0,"tid":0,"ts":0,"args":{"format":"gctrace.trace/1","gctrace":"0.1.0","command":["python"],"started_ns":0}},
{"ph":"M","name":"gctrace_process","pid":1,"tid":1,"ts":0,"args":{"origin":"launched","command":["python"]}},
{"ph":"X","cat":"gc","name":"gc","pid":1,"tid":1,"ts":500000,"dur":350000,"args":{"generation":2,"reason":"automatic","collected":0}},
{"ph":"X","cat":"gc","name":"gc","pid":1,"tid":1,"ts":6900000,"dur":20000,"args":{"generation":2,"reason":"shutdown","collected":5}}
]"#;

fn replayed() -> Report {
    let input = TraceInput::new("trace.json", TRACE.as_bytes()).unwrap();
    let mut reader = TraceReader::new(EventReader::new(input));
    let mut analysis = Analysis::default();
    analysis.begin_trace("trace.json");
    while let Some(item) = reader.next_item().unwrap() {
        analysis.add(item);
    }
    analysis.end_trace(reader.finish(), None);
    analysis.settle();
    let mut report = analysis.report();
    report.gpu_cost = Some(GpuCost {
        run_ns: 7_000_000_000,
        cost_ns: 900_000_000,
        error_ns: None,
        pauses: PauseTotal { count: 19, time_ns: 1_500_000_000 },
        longest_ns: 350_000_000,
    });
    let every =
        PlannedInterval { steps: 200, length_ns: 350_000_000, step_ns: 12_000_000, by_cost: 200 };
    let change = Change::Planned(every);
    let garbage = Some(Garbage {
        basis: Basis::Inferred,
        over_ns: 2_400_000_000,
        objects: 5_000,
        host_bytes: None,
        device_bytes: Some(3 << 30),
    });
    report.what_if.push(WhatIf {
        id: ScenarioId::Planned,
        change: what_if::change(&change),
        basis: Basis::Predicted,
        method: PredictionMethod::Replay,
        pause_time_saved_ns: PredictedRange {
            at_least_ns: 1_000_000_000,
            at_most_ns: 1_200_000_000,
        },
        saved_ns: Saving { at_least_ns: Some(700_000_000), at_most_ns: 800_000_000 },
        run: None,
        step: Some(PredictedLength {
            measured_ns: 12_000_000,
            at_least_ns: 10_000_000,
            at_most_ns: 11_000_000,
        }),
        replay_error_ns: None,
        every_steps: Some(200),
        why_every: Some(what_if::why_every(&every)),
        garbage,
        assumes: what_if::assumes(&change, true),
        risk: what_if::risk(&change, garbage),
    });
    report
}

#[test]
fn planned_collections_as_often_as_the_replay_chose() {
    let report = replayed();
    let what = report.prediction(AdviceId::Planned).unwrap();
    let planned = advice::advice(AdviceId::Planned, AdviceEffect::default(), &report);
    let code = planned.code.unwrap();
    assert!(code.contains("step % 200 == 0"), "{code}");
    let risk = planned.risk.unwrap();
    assert_eq!(risk, format!("Every 200 steps: {}", what.risk));
    let garbage = "5,000 objects in 2.40 s (3.00 GiB of device memory)";
    assert!(risk.contains(garbage), "{risk}");
    let replayed = " A full collection takes up to 350 ms; every 200 steps of 12.0 ms each, that \
                    is 14.6 % of the time. By replay, a step would take 10.0 ms to 11.0 ms \
                    instead of 12.0 ms. Assumed: A planned collection takes as long as";
    assert!(planned.why.contains(replayed), "{}", planned.why);
}

#[test]
fn the_end_of_the_interpreter_is_not_in_the_cost() {
    let sentence = verdict::sentence(&replayed());
    let end = " The 20.0 ms of collections at interpreter shutdown are not included.";
    assert!(sentence.ends_with(end), "{sentence}");
    assert!(sentence.contains("by replay"), "{sentence}");
}
