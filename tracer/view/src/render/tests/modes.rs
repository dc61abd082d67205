//! Reports on traces of different modes.

use super::*;

const WITHIN: &str = r#""source":"injected","collected":3"#;

fn in_process() -> String {
    let mut trace = Trace::new().mode("inject").python(10);
    for n in 0..20 {
        let at = f64::from(n) * 50.0;
        trace = trace.pause(10, at, 10.0, 2, WITHIN);
    }
    trace.end(1000, "").json()
}

fn by_both() -> String {
    // The clock of these traces starts at 5 s.
    let both = |ts: &str| {
        format!(
            r#""reason":"automatic","source":"both","injected_ts":{ts},"injected_dur":9996.500,"collected":3"#
        )
    };
    let trace = Trace::new().mode("both").python(10);
    trace
        .pause(10, 100.0, 10.0, 2, &both("5100001.500"))
        .pause(10, 300.0, 10.0, 2, WITHIN)
        .pause(10, 400.0, 10.0, 0, r#""reason":"automatic""#)
        .end(1000, "")
        .json()
}

#[test]
fn recorded_from_within() {
    insta::assert_snapshot!(plain(&[("trace.json", in_process())]));
}

#[test]
fn several_modes() {
    let usual = || Trace::new().mode("ebpf").python(10).end(1000, "").json();
    let report = report(&[("a.json", in_process()), ("b.json", by_both()), ("c.json", usual())]);
    let text = checked(&report);
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "1 of 3 traces recorded in-process (--mode inject): collections in the first",
        "1 of 3 traces recorded by kernel probes and in-process (--mode both): 1 pause seen by both (p50 2.00 µs apart, p99 2.00 µs), \
         1 by probes only, 1 in-process only.",
        "unknown",
    ] {
        assert!(joined.contains(expected), "{expected}: {text}");
    }
    let recorded = report.traces.iter().map(|trace| trace.recorded.as_ref());
    let modes: Vec<_> = recorded.map(|recorded| recorded.unwrap().mode.as_ref()).collect();
    assert_eq!(modes, ["inject", "both", "ebpf"]);
    assert_eq!(report.explicit_calls.of_unknown_reason.count, 21);
}

#[test]
fn none_seen_is_not_none_ran() {
    let quiet = Trace::new().mode("inject").python(10).end(1000, "").json();
    let text = plain(&[("trace.json", quiet)]);
    assert!(text.contains("No garbage collection was seen in"), "{text}");
    let traces = [("a.json", Trace::new().python(10).end(1000, "").json())];
    let old = plain(&traces);
    assert!(old.contains("No garbage collection ran in"), "{old}");
    assert!(!old.contains("--mode"), "{old}");
}
