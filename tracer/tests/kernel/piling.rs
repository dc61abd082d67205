//! Kernel tier: memory that piles up is said, and what is advised gives it back.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording::Trace;
use test_kit::{interpreters, recording};

fn peak_bytes(place: &Path) -> f64 {
    std::fs::read_to_string(place.join("peak")).unwrap().parse().unwrap()
}

/// Records a kind of program, follows the advice about collections, and compares the peaks.
fn is_given_back(test: &str, kind: &str, mode: &str) {
    if !recording::privileged(test) {
        return;
    }
    let Some(python) = interpreters::python(test, "system-3.11") else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let script = recording::scripts().join("piling.py");
    let program = [python.path.to_str().unwrap(), script.to_str().unwrap(), kind, "peak"];
    let line: Vec<&str> = ["--mode", mode, "--"].into_iter().chain(program).collect();
    let output = recording::gctrace(&line, place.path());
    assert!(output.status.success(), "{output:?}");
    let before = peak_bytes(place.path());
    let screen = recording::gctrace(&["analyze", "trace.json"], place.path());
    let screen = String::from_utf8_lossy(&screen.stdout).into_owned();
    assert!(!screen.contains("Nothing to change"), "{screen}");
    let output = recording::gctrace(&["analyze", "--format", "json", "trace.json"], place.path());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let advice = report["advice"].as_array().unwrap();
    let ids: Vec<&str> = advice.iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert!(!ids.contains(&"disable"), "{ids:?}");
    let advised = advice.iter().find(|one| one["id"] == "collect-sometimes");
    assert!(advised.is_some(), "{screen}");
    let advised = advised.unwrap();
    if kind == "off" {
        let named = advised["action"].as_str().unwrap().contains("piling.py:27 in switch_off");
        assert_eq!(named, mode == "inject", "{advised}");
        let by = Trace::read(&place.path().join("trace.json"));
        assert!(by.named("gctrace_settings").iter().any(|(_, args)| args["enabled"] == false));
    }
    let mut fixed = Command::new(program[0]);
    fixed.args(&program[1..]).arg("fix").current_dir(place.path());
    assert!(fixed.output_in_time().unwrap().status.success());
    let saved = before - peak_bytes(place.path());
    let most = advised["gives_back_at_most_bytes"].as_f64().unwrap();
    assert!((0.5..=2.0).contains(&(most / saved)), "{most} of {saved}: {screen}");
}

#[test]
fn the_collector_off_by_probes() {
    is_given_back("the_collector_off_by_probes", "off", "ebpf");
}

#[test]
fn the_collector_off_in_process() {
    is_given_back("the_collector_off_in_process", "off", "inject");
}

#[test]
fn promoted_by_young_collections_by_probes() {
    is_given_back("promoted_by_young_collections_by_probes", "promoted", "ebpf");
}

#[test]
fn promoted_by_young_collections_in_process() {
    is_given_back("promoted_by_young_collections_in_process", "promoted", "inject");
}

#[test]
fn few_objects_by_probes() {
    is_given_back("few_objects_by_probes", "rare", "ebpf");
}

#[test]
fn few_objects_in_process() {
    is_given_back("few_objects_in_process", "rare", "inject");
}
