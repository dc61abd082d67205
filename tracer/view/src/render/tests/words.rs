//! The sentences that both forms of the report have.

use super::{PROBES, Trace, report};
use gctrace_analysis::report::{Advice, AdviceId, Report};

fn of(report: &Report, id: AdviceId) -> &Advice {
    let mut advice = report.advice.iter();
    advice.find(|advice| advice.id == id).unwrap()
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
    let explicit = why(AdviceId::ExplicitCalls);
    assert!(
        explicit.contains("come from /home/me/train.py:30 in build (1 call, 50.0 ms)"),
        "{explicit}"
    );
    let code = of(&report, AdviceId::RaiseThreshold).code.as_deref();
    let first = "import gc\n# first, before other imports:\ngc.set_threshold(50000, 10, 10)";
    assert_eq!(code, Some(first));
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
    assert!(gaps.any(|gap| gap.to_string().contains("contain GPU work but no collections")));
}
