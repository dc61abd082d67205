//! The sentences that both forms of the report have.

use super::{PROBES, Trace, report, training};
use crate::render::words::put_into_words;
use gctrace_analysis::report::{
    Advice, AdviceId, Basis, Change, Garbage, GpuCost, PauseTotal, PlannedInterval,
    PredictedLength, PredictedRange, PredictionMethod, Report, Saving, ScenarioId, WhatIf,
};

fn of(report: &Report, id: AdviceId) -> &Advice {
    let mut advice = report.advice.iter().chain(&report.not_advised);
    advice.find(|advice| advice.id == id).unwrap()
}

/// A report as if its pauses had been replayed.
fn replayed() -> Report {
    let mut report = report(&[("trace.json", training())]);
    report.gpu_cost = Some(GpuCost {
        run_ns: 7_000_000_000,
        cost_ns: 900_000_000,
        error_ns: None,
        pauses: PauseTotal { count: 19, time_ns: 1_500_000_000 },
        longest_ns: 350_000_000,
    });
    report.what_if.push(WhatIf {
        id: ScenarioId::Planned,
        made: Change::Planned(PlannedInterval {
            steps: 200,
            length_ns: 350_000_000,
            step_ns: 12_000_000,
            by_cost: 200,
        }),
        change: String::new(),
        basis: Basis::Predicted,
        method: PredictionMethod::Replay,
        pause_time_saved_ns: PredictedRange {
            at_least_ns: 1_000_000_000,
            at_most_ns: 1_200_000_000,
        },
        saved_ns: Saving { at_least_ns: Some(700_000_000), at_most_ns: 800_000_000 },
        run: Some(PredictedLength {
            measured_ns: 7_000_000_000,
            at_least_ns: 6_200_000_000,
            at_most_ns: 6_300_000_000,
        }),
        step: Some(PredictedLength {
            measured_ns: 12_000_000,
            at_least_ns: 10_000_000,
            at_most_ns: 11_000_000,
        }),
        replay_error_ns: None,
        every_steps: Some(200),
        why_every: None,
        garbage: Some(Garbage {
            basis: Basis::Inferred,
            over_ns: 2_400_000_000,
            objects: 5_000,
            host_bytes: None,
            device_bytes: Some(3 << 30),
        }),
        assumes: String::new(),
        risk: String::new(),
    });
    put_into_words(&mut report);
    report
}

#[test]
fn planned_collections_as_often_as_the_replay_chose() {
    let report = replayed();
    let Some(what) = report.prediction(AdviceId::Planned) else {
        panic!("a prediction: {:?}", report.what_if);
    };
    let planned = of(&report, AdviceId::Planned);
    let code = planned.code.as_ref().unwrap();
    assert!(code.contains("step % 200 == 0"), "{code}");
    let risk = planned.risk.as_ref().unwrap();
    assert_eq!(*risk, format!("Every 200 steps: {}", what.risk));
    let garbage = "5,000 objects in 2.40 s (3.00 GiB of device memory)";
    assert!(risk.contains(garbage), "{risk}");
    let replayed = " A full collection takes up to 350 ms; every 200 steps of 12.0 ms each, that \
                    is 14.6 % of the time. By replay, a step would take 10.0 ms to 11.0 ms \
                    instead of 12.0 ms. Assumed: A planned collection takes as long as";
    assert!(planned.why.contains(replayed), "{}", planned.why);
}

#[test]
fn the_end_of_the_interpreter_is_not_in_the_cost() {
    let sentence = replayed().verdict.sentence;
    let end = " The 20.0 ms of collections at interpreter shutdown are not included.";
    assert!(sentence.ends_with(end), "{sentence}");
    assert!(sentence.contains("by replay"), "{sentence}");
}

#[test]
fn the_advice_names_the_lines_and_the_settings() {
    let frame = |id, line| {
        format!(
            r#"{{"ph":"M","name":"gctrace_frame","pid":0,"tid":0,"args":{{"id":{id},"function":"build","file":"/home/me/train.py","line":{line}}}}}"#
        )
    };
    let pause = |at_ms, generation, reason, stack| {
        format!(
            r#"{{"ph":"X","cat":"gc","name":"gc","pid":1,"tid":1,"ts":{at_ms}000.000,"dur":50000.000,"sf":{stack},"args":{{"generation":{generation},"reason":"{reason}","collected":0}}}}"#
        )
    };
    let trace = Trace::new()
        .python(1)
        .line(&frame(1, 30))
        .line(&frame(2, 20))
        .line(&pause(5600, 2, "manual", 1))
        .line(&pause(5700, 2, "automatic", 2))
        .line(&pause(5800, 0, "automatic", 2))
        .end(1000, PROBES);
    let report = report(&[("trace.json", trace.json())]);
    let why = |id| of(&report, id).why.as_str();
    for (id, part) in [
        (AdviceId::ExplicitCalls, "come from /home/me/train.py:30 in build (1 call, 50.0 ms)"),
        (
            AdviceId::Freeze,
            "100 % of the time of these collections in training was triggered by \
             /home/me/train.py:20",
        ),
        (AdviceId::RaiseThreshold, "train.py:20 in build"),
    ] {
        assert!(why(id).contains(part), "{}", why(id));
    }
    let code = of(&report, AdviceId::RaiseThreshold).code.as_deref();
    assert_eq!(
        code,
        Some("import gc\n# first, before other imports:\ngc.set_threshold(7000, 10, 10)")
    );
}

#[test]
fn a_trace_without_collections_does_not_say_that_none_ran() {
    let kernel = r#"{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"dur":5,"args":{"stream":7}}"#;
    let trace = format!(r#"{{"trace_id":"F1","traceEvents":[{kernel}]}}"#);
    let report = report(&[("a.json", trace.clone()), ("c.json", trace)]);
    assert!(report.verdict.sentence.contains("is unknown"));
    let code = of(&report, AdviceId::RecordCollections).code.as_deref();
    assert!(code.unwrap().contains("record_python_gc_info=True"));
    assert!(report.traces[1].notes[0].contains("the same trace as a.json"));
    let mut gaps = report.not_covered.iter();
    assert!(gaps.any(|gap| gap.contains("contain GPU work but no collections")));
}
