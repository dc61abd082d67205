//! Kernel tier: remedies for what training or a service waits for, followed, against the time that the program measures.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::{interpreters, recording};

/// The workers sleep: more of them take no CPU from each other.
#[test]
fn as_many_workers_as_advised_save_what_was_printed() {
    const TEST: &str = "as_many_workers_as_advised_save_what_was_printed";
    if !recording::privileged(TEST) {
        return;
    }
    // Calls of a function mark steps from 3.12 on.
    let Some(python) = interpreters::python(TEST, "pyenv-3.12") else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let script = recording::scripts().join("slow_loader.py");
    let program = [python.path.to_str().unwrap(), script.to_str().unwrap()];
    let slow = ["--mode", "both", "--step-function", "step", "--"];
    let slow: Vec<&str> =
        slow.into_iter().chain(program).chain(["2", "40", "truth.json"]).collect();
    let output = recording::gctrace(&slow, place.path());
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("More workers"), "{printed}");
    let before = training(place.path());
    let output = recording::gctrace(&["analyze", "--format", "json", "trace.json"], place.path());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let advice = &report["advice"][0];
    assert_eq!(advice["id"], "faster-data", "{advice}");
    let code = advice["code"].as_str().unwrap();
    let workers = code.split("num_workers=").nth(1).unwrap().split(',').next().unwrap();
    let mut command = Command::new(program[0]);
    command.args([program[1], workers, "40", "truth.json"]).current_dir(place.path());
    assert!(command.output_in_time().unwrap().status.success());
    let saved = before - training(place.path());
    let at_most = advice["saves_at_most_ns"].as_f64().unwrap();
    // All but what a busy machine takes from both runs.
    assert!(
        (0.7..=1.1).contains(&(saved / at_most)),
        "{saved} of {at_most} ns, {workers}: {advice}"
    );
}

/// The lock is held while its thread sleeps: not to sleep there saves what the steps wait.
#[test]
fn the_line_that_has_a_lock_is_named_and_what_it_saves() {
    const TEST: &str = "the_line_that_has_a_lock_is_named_and_what_it_saves";
    if !recording::privileged(TEST) {
        return;
    }
    for python in interpreters::interpreters(TEST) {
        // A lock there gives its CPU away again and again before it sleeps: on a busy machine it waits for that.
        if python.is("free-threaded") {
            interpreters::skip(TEST, "a free-threaded lock waits for a CPU too");
            continue;
        }
        let place = tempfile::tempdir().unwrap();
        let script = recording::scripts().join("lock_holder.py");
        let program = [python.path.to_str().unwrap(), script.to_str().unwrap()];
        let options = ["--mode", "ebpf", "--", program[0], program[1], "20", "truth.json"];
        let output = recording::gctrace(&options, place.path());
        assert!(output.status.success(), "{output:?}");
        let before = truth(place.path(), "waited");
        let report = ["analyze", "--format", "json", "trace.json"];
        let output = recording::gctrace(&report, place.path());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let advice = &report["advice"][0];
        assert_eq!(advice["id"], "free-lock", "{}: {advice}", python.name);
        let action = advice["action"].as_str().unwrap();
        let (holds, waits) = action.split_once(": another thread is sleeping there").unwrap();
        assert!(holds.ends_with(" in write") && waits.ends_with(" in step."), "{action}");
        let mut command = Command::new(program[0]);
        command.args([program[1], "0", "truth.json"]).current_dir(place.path());
        assert!(command.output_in_time().unwrap().status.success());
        let after = truth(place.path(), "waited");
        assert!(after < 0.2 * before, "{before} to {after} ns");
        let at_most = advice["saves_at_most_ns"].as_f64().unwrap();
        // Waits of less than a millisecond are not recorded, and on a busy machine the GIL is waited for as well.
        assert!((0.7..=1.01).contains(&(at_most / before)), "{at_most} of {before} ns: {advice}");
    }
}

/// What holds up a loop is moved where it is advised: timers are late no more.
#[test]
fn what_holds_up_a_loop_is_moved() {
    const TEST: &str = "what_holds_up_a_loop_is_moved";
    if !recording::privileged(TEST) {
        return;
    }
    let Some(python) = interpreters::python(TEST, "system-3.11") else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let script = recording::scripts().join("late_service.py");
    let program = [python.path.to_str().unwrap(), script.to_str().unwrap(), "truth.json"];
    for (kind, change, function) in [
        ("computes", "move ", " in computes out of the loop, into a process"),
        ("sleeps", "do not wait in the loop at ", " in sleeps"),
        ("gil", "run ", " in sorts in another process"),
    ] {
        let options = [&["--mode", "ebpf", "--"][..], &program, &[kind]].concat();
        let output = recording::gctrace(&options, place.path());
        assert!(output.status.success(), "{output:?}");
        let before = truth(place.path(), "late");
        let report = ["analyze", "--format", "json", "trace.json"];
        let output = recording::gctrace(&report, place.path());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let advice = report["advice"].as_array().unwrap().iter();
        let mut actions = advice.map(|advice| advice["action"].as_str().unwrap().to_lowercase());
        let is_it = |action: String| action.starts_with(change) && action.contains(function);
        assert!(actions.any(is_it), "{kind}: {}", report["advice"]);
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).args([kind, "moved"]).current_dir(place.path());
        assert!(command.output_in_time().unwrap().status.success());
        let after = truth(place.path(), "late");
        assert!(after < 0.5 * before, "{kind}: late by {before} ns, then by {after} ns");
    }
}

fn training(place: &Path) -> f64 {
    truth(place, "training")
}

fn truth(place: &Path, what: &str) -> f64 {
    recording::json(&place.join("truth.json"))[what].as_f64().unwrap()
}

/// CPython counts no generator that a collection closes: samples show the code that it runs. Both modes name it.
#[test]
fn code_that_collections_run_is_seen_by_samples() {
    const TEST: &str = "code_that_collections_run_is_seen_by_samples";
    if !recording::privileged(TEST) {
        return;
    }
    let programs = recording::scripts().join("../verdict/programs");
    for (interpreter, program, code) in [
        ("system-3.11", "iterators.py", "Pipeline.run"),
        ("pyenv-3.12", "iterators.py", "Pipeline.run"),
        ("system-3.11", "finalizers.py", "Session.__del__"),
    ] {
        let Some(python) = interpreters::python(TEST, interpreter) else {
            continue;
        };
        let place = tempfile::tempdir().unwrap();
        let script = programs.join(program);
        let [python, script] = [&python.path, &script].map(|path| path.to_str().unwrap());
        let mut actions = Vec::new();
        for mode in ["ebpf", "inject"] {
            // A fast machine runs it in so few samples of the usual rate that none may be of the code.
            let sample: &[&str] = if mode == "ebpf" { &["--sample", "997"] } else { &[] };
            let options = [&["--mode", mode][..], sample, &["--", python, script]].concat();
            let output = recording::gctrace(&options, place.path());
            assert!(output.status.success(), "{output:?}");
            let report = ["analyze", "--format", "json", "trace.json"];
            let output = recording::gctrace(&report, place.path());
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            if mode == "ebpf" {
                let called = &report["cpu"][0]["called"];
                assert_eq!(called["line"]["function"], code, "{interpreter}: {called}");
            }
            // A few milliseconds at exit may count for more on a busy machine.
            let advice = report["advice"].as_array().unwrap();
            let cycles = advice.iter().find(|advice| advice["id"] == "break-cycles");
            let cycles = cycles.unwrap_or_else(|| panic!("{interpreter} {mode}: {advice:?}"));
            actions.push(cycles["action"].as_str().unwrap().to_owned());
        }
        assert_eq!(actions[0], actions[1], "{interpreter} {program}");
    }
}
