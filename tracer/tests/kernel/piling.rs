//! Kernel tier: the screen names memory that piles up, is kept or held, and the advice gives it back.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording::Trace;
use test_kit::{interpreters, recording};

/// The advice for garbage that no collection frees.
const COLLECT: &str = "collect-sometimes";

fn peak_bytes(place: &Path) -> f64 {
    std::fs::read_to_string(place.join("peak")).unwrap().parse().unwrap()
}

/// Records a kind of program: its command, the first screen and the report.
fn recorded(
    test: &str,
    (kind, mode): (&str, &str),
    place: &Path,
) -> Option<(Vec<String>, String, Value)> {
    if !recording::privileged(test) {
        return None;
    }
    let python = interpreters::python(test, "system-3.11")?;
    let script = recording::scripts().join("piling.py");
    let program = [python.path.to_str().unwrap(), script.to_str().unwrap(), kind, "peak"];
    let line: Vec<&str> = ["--mode", mode, "--"].into_iter().chain(program).collect();
    let output = recording::gctrace(&line, place);
    assert_eq!(output.status.success(), kind != "hangs", "{output:?}");
    let screen = recording::gctrace(&["analyze", "trace.json"], place);
    let screen = String::from_utf8_lossy(&screen.stdout).into_owned();
    let output = recording::gctrace(&["analyze", "--format", "json", "trace.json"], place);
    let report = serde_json::from_slice(&output.stdout).unwrap();
    Some((program.map(str::to_owned).to_vec(), screen, report))
}

/// Records a kind of program, follows the advice about its memory, and compares the peaks.
fn is_given_back(test: &str, (kind, id): (&str, &str), mode: &str) {
    let place = tempfile::tempdir().unwrap();
    let Some((program, screen, report)) = recorded(test, (kind, mode), place.path()) else {
        return;
    };
    let before = peak_bytes(place.path());
    assert!(!screen.contains("Nothing to change"), "{screen}");
    let advice = report["advice"].as_array().unwrap();
    let ids: Vec<&str> = advice.iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert!(!ids.contains(&"disable"), "{ids:?}");
    let advised = advice.iter().find(|one| one["id"] == id);
    assert!(advised.is_some(), "{screen}");
    let advised = advised.unwrap();
    if kind == "off" {
        let named = advised["action"].as_str().unwrap().contains(" in switch_off");
        assert_eq!(named, mode == "inject", "{advised}");
        let by = Trace::read(&place.path().join("trace.json"));
        assert!(by.named("gctrace_settings").iter().any(|(_, args)| args["enabled"] == false));
    }
    let mut fixed = Command::new(&program[0]);
    fixed.args(&program[1..]).arg("fix").current_dir(place.path());
    assert!(fixed.output_in_time().unwrap().status.success());
    let saved = before - peak_bytes(place.path());
    let most = advised["gives_back_at_most_bytes"].as_f64().unwrap();
    assert!((0.5..=2.0).contains(&(most / saved)), "{most} of {saved}: {screen}");
}

#[test]
fn the_collector_off_by_probes() {
    is_given_back("the_collector_off_by_probes", ("off", COLLECT), "ebpf");
}

#[test]
fn the_collector_off_in_process() {
    is_given_back("the_collector_off_in_process", ("off", COLLECT), "inject");
}

#[test]
fn promoted_by_young_collections_by_probes() {
    is_given_back("promoted_by_young_collections_by_probes", ("promoted", COLLECT), "ebpf");
}

#[test]
fn promoted_by_young_collections_in_process() {
    is_given_back("promoted_by_young_collections_in_process", ("promoted", COLLECT), "inject");
}

#[test]
fn few_objects_by_probes() {
    is_given_back("few_objects_by_probes", ("rare", COLLECT), "ebpf");
}

#[test]
fn few_objects_in_process() {
    is_given_back("few_objects_in_process", ("rare", COLLECT), "inject");
}

#[test]
fn what_glibc_keeps_by_probes() {
    is_given_back("what_glibc_keeps_by_probes", ("kept", "trim-heap"), "ebpf");
}

#[test]
fn what_glibc_keeps_in_process() {
    is_given_back("what_glibc_keeps_in_process", ("kept", "trim-heap"), "inject");
}

#[test]
fn large_flat_memory_leads_to_the_heap() {
    for mode in ["ebpf", "inject"] {
        let place = tempfile::tempdir().unwrap();
        let test = "large_flat_memory_leads_to_the_heap";
        let Some((_, screen, report)) = recorded(test, ("held", mode), place.path()) else {
            return;
        };
        let advice = report["advice"].as_array().unwrap();
        assert!(advice.iter().all(|one| one["gives_back_at_most_bytes"].is_null()), "{advice:?}");
        assert!(screen.contains("are resident. If that is more"), "{screen}");
    }
}

/// Without the collector 200 KB of each unit of work would stay.
#[test]
fn few_objects_that_own_much_are_not_nothing() {
    for mode in ["ebpf", "inject"] {
        let place = tempfile::tempdir().unwrap();
        let test = "few_objects_that_own_much_are_not_nothing";
        let Some((_, screen, report)) = recorded(test, ("often", mode), place.path()) else {
            return;
        };
        let advice = report["advice"].as_array().unwrap();
        let ids: Vec<&str> = advice.iter().map(|one| one["id"].as_str().unwrap()).collect();
        assert!(ids.contains(&"break-cycles") && !ids.contains(&"disable"), "{mode}: {screen}");
        assert!(screen.contains("__main__.Unit"), "{screen}");
    }
}

#[test]
fn a_collection_that_hangs_leads_to_a_dump() {
    for mode in ["ebpf", "inject"] {
        let place = tempfile::tempdir().unwrap();
        let test = "a_collection_that_hangs_leads_to_a_dump";
        let Some((_, screen, report)) = recorded(test, ("hangs", mode), place.path()) else {
            return;
        };
        assert!(screen.starts_with("A garbage collection had not ended after"), "{screen}");
        let advice = report["advice"].as_array().unwrap();
        let ids: Vec<&str> = advice.iter().map(|one| one["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["dump-hang"]);
    }
}
