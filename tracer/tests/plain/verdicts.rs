//! What is concluded from programs whose remedies were measured: the core of `tests/verdict/matrix.py`,
//! by kind of remedy. Advised is, first, what saves most there or names the only thing that helps.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::path::Path;
use test_kit::interpreters::Python;
use test_kit::{interpreters, recording};

fn report(python: &Python, program: &str, place: &Path) -> Value {
    let script = interpreters::root().join(format!("tests/verdict/programs/{program}.py"));
    let (python, script) = (python.path.to_str().unwrap(), script.to_str().unwrap());
    let output = recording::gctrace(&["record", "--mode", "inject", "--", python, script], place);
    assert!(output.status.success(), "{output:?}");
    let json = recording::gctrace(&["analyze", "--json", "trace.json"], place);
    assert!(json.status.success(), "{json:?}");
    serde_json::from_slice(&json.stdout).unwrap()
}

fn advised(report: &Value) -> Vec<&str> {
    let advice = report["advice"].as_array().unwrap().iter();
    advice.map(|advice| advice["id"].as_str().unwrap()).collect()
}

#[test]
fn what_was_measured_to_help_is_advised() {
    let test = "what_was_measured_to_help_is_advised";
    let Some(python) = interpreters::python(test, "system-3.11") else {
        return;
    };
    for (program, problem, phase, remedies) in [
        ("etl", true, "start-up", &["off-while-loading", "disable"][..]),
        ("records", true, "training", &["disable", "raise-threshold"][..]),
        ("explicit", true, "training", &["explicit-calls"][..]),
        // It makes garbage, and its heap is frozen already.
        ("frozen", true, "training", &["find-cycles"][..]),
        ("numbers_only", false, "training", &["leave"][..]),
    ] {
        let place = tempfile::tempdir().unwrap();
        let report = report(&python, program, place.path());
        let level = report["verdict"]["level"].as_str().unwrap();
        let sentence = &report["verdict"]["sentence"];
        assert_eq!(matches!(level, "heavy" | "noticeable"), problem, "{program}: {sentence}");
        assert_eq!(report["phases"]["judged"], phase, "{program}: {sentence}");
        let first = advised(&report).into_iter().next().unwrap_or("nothing");
        assert!(remedies.contains(&first), "{program}: {:?}: {sentence}", advised(&report));
    }
}
