//! Torch tier: marks of training steps, against the program's own counts of its calls.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording::Trace;
use test_kit::{interpreters, recording};

const SCENARIOS: [&str; 6] = ["sgd", "adam", "adversarial", "unusual", "compiled", "loading"];

/// Names of the annotations that mark steps.
fn is_mark(name: &str) -> bool {
    name == "backward"
        || name.starts_with("Optimizer.step#")
        || name.starts_with("enumerate(DataLoader)#")
}

/// The number of marks by name, and of the marks of threads other than the first.
fn marks(trace: &Trace) -> (BTreeMap<String, u64>, u64) {
    let mut counts = BTreeMap::new();
    let mut of_threads = 0;
    for event in &trace.events {
        let name = event["name"].as_str().unwrap();
        if event["cat"] == "user_annotation" && is_mark(name) {
            *counts.entry(name.to_owned()).or_default() += 1;
            of_threads += u64::from(event["tid"] != event["pid"]);
        }
    }
    (counts, of_threads)
}

fn script() -> PathBuf {
    recording::scripts().join("torch_marks.py")
}

/// What the program prints when nothing watches it.
fn alone(python: &Path, scenario: &str) -> Value {
    let output = Command::new(python)
        .arg(script())
        .arg(scenario)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output_in_time()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The marks that the program reports; `DataLoader`'s need CPython 3.12.
fn expected(python: &Path, truth: &Value) -> BTreeMap<String, u64> {
    let ask = "import sys; print(sys.version_info >= (3, 12))";
    let output = Command::new(python).args(["-c", ask]).output_in_time().unwrap();
    let has_monitoring = output.stdout.starts_with(b"True");
    let counts = truth["marks"].as_object().unwrap().iter();
    counts
        .map(|(name, count)| (name.clone(), count.as_u64().unwrap()))
        .filter(|(_, count)| *count > 0)
        .filter(|(name, _)| has_monitoring || !name.contains("DataLoader"))
        .collect()
}

#[test]
fn marks_are_the_programs_own_calls() {
    let test = "marks_are_the_programs_own_calls";
    let Some(python) = interpreters::torch(test) else {
        return;
    };
    for scenario in SCENARIOS {
        let place = tempfile::tempdir().unwrap();
        let (program, script) = (python.to_str().unwrap(), script());
        let line = ["--mode", "inject", "--", program, script.to_str().unwrap(), scenario];
        let output = recording::gctrace(&line, place.path());
        assert!(output.status.success(), "{output:?}");
        let truth: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(truth, alone(&python, scenario), "the program is unchanged");
        let trace = Trace::read(&place.path().join("trace.json"));
        trace.assert_nothing_lost();
        let (counts, of_threads) = marks(&trace);
        assert_eq!(counts, expected(&python, &truth), "{scenario}");
        assert_eq!(of_threads, truth["threads"].as_u64().unwrap(), "{scenario}");
        println!("{test}, {scenario}: {counts:?}");
    }
}

/// Probes see backward passes with their lengths: those are not recorded twice.
#[test]
fn probes_and_library_mark_once() {
    let test = "probes_and_library_mark_once";
    let Some(python) = interpreters::torch(test).filter(|_| recording::privileged(test)) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let (program, script) = (python.to_str().unwrap(), script());
    let line = ["--mode", "both", "--", program, script.to_str().unwrap(), "adam"];
    let output = recording::gctrace(&line, place.path());
    assert!(output.status.success(), "{output:?}");
    let truth: Value = serde_json::from_slice(&output.stdout).unwrap();
    let trace = Trace::read(&place.path().join("trace.json"));
    assert_eq!(marks(&trace).0, expected(&python, &truth));
    let named = |event: &&Value| event["name"] == "backward";
    let passes = trace.events.iter().filter(named);
    assert!(passes.into_iter().all(|pass| pass["dur"] != 0.0));
}
