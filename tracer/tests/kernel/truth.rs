//! Kernel tier: every pause of every interpreter against what the interpreter itself reports.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, outside of #[test]"
)]

use serde_json::Value;
use std::collections::BTreeMap;
use test_kit::interpreters::Python;
use test_kit::recording::{Pause, Trace};
use test_kit::{interpreters, recording};

test_kit::on_each_interpreter!(check);

fn check(test: &str, name: &str) {
    if !recording::privileged(test) {
        return;
    }
    let Some(python) = interpreters::python(test, name) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let truth_path = place.path().join("truth.json");
    let script = recording::scripts().join("truth.py");
    let output = recording::gctrace(
        &[
            "-o",
            "trace.json",
            "--",
            python.path.to_str().unwrap(),
            script.to_str().unwrap(),
            truth_path.to_str().unwrap(),
        ],
        place.path(),
    );
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&place.path().join("trace.json"));
    let truth = recording::json(&truth_path);
    interpreter_is_named(&trace, &truth, &python);
    let pid = trace.host_pid(&truth);
    let pauses = trace.pauses_of(pid);
    counts_are_equal(&pauses, &truth, &python);
    trace.assert_nothing_lost();
    every_callback_has_its_pause(&pauses, &truth, &python, &trace.frames());
    the_rest_is_shutdown(&pauses, &truth);
}

fn interpreter_is_named(trace: &Trace, truth: &Value, python: &Python) {
    let pid = trace.host_pid(truth);
    let processes = trace.named("gctrace_process");
    let (_, process) =
        processes.iter().rfind(|(of, _)| *of == pid).expect("the process is in the trace");
    let interpreter = &process["interpreter"];
    assert_eq!(interpreter["version"], truth["version"], "{interpreter}");
    assert_eq!(interpreter["free_threaded"], truth["free_threaded"], "{interpreter}");
    assert!(python.is(interpreter["collector"].as_str().unwrap()), "{interpreter} {python:?}");
}

/// Whether a pause belongs to an interpreter; 3.8 has one collector for all of them.
fn of_interpreter(pause: &Pause, id: u64) -> bool {
    pause.number("interpreter").is_none_or(|number| number == id)
}

fn counts_are_equal(pauses: &[Pause], truth: &Value, python: &Python) {
    let interpreters = truth["interpreters"].as_array().unwrap();
    for one in std::iter::once(truth).chain(interpreters) {
        let id = one["interpreter"].as_u64().unwrap();
        let pauses =
            pauses.iter().filter(|pause| of_interpreter(pause, id) && pause.reason != "shutdown");
        // Increments that only mark are not in gc.get_stats(): there, the callbacks are the truth.
        if python.is("incremental") {
            let made = one["made_ns"].as_u64().unwrap();
            let heard = pauses.filter(|pause| pause.start_ns > made);
            assert_eq!(
                recording::by_generation(heard),
                callbacks_by_generation(one),
                "collections of interpreter {id}"
            );
        } else {
            let expected = recording::stats(one, "collections");
            assert_eq!(
                recording::by_generation(pauses.clone()),
                expected,
                "collections of interpreter {id}"
            );
            assert_eq!(
                total(pauses, "collected"),
                sum(&recording::stats(one, "collected")),
                "objects collected, interpreter {id}"
            );
        }
    }
}

fn callbacks_by_generation(truth: &Value) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::from([(0, 0), (1, 0), (2, 0)]);
    for collection in truth["collections"].as_array().unwrap() {
        *counts.entry(collection["generation"].as_u64().unwrap()).or_default() += 1;
    }
    counts
}

fn total<'a>(pauses: impl Iterator<Item = &'a Pause>, field: &str) -> u64 {
    pauses.filter_map(|pause| pause.number(field)).sum()
}

fn sum(values: &BTreeMap<u64, u64>) -> u64 {
    values.values().sum()
}

/// Every collection that a callback saw is one pause: same thread, generation, reason, numbers and
/// stack, and one contains the other.
fn every_callback_has_its_pause(
    pauses: &[Pause],
    truth: &Value,
    python: &Python,
    frames: &BTreeMap<u64, &Value>,
) {
    let interpreters = truth["interpreters"].as_array().unwrap();
    for one in std::iter::once(truth).chain(interpreters) {
        let id = one["interpreter"].as_u64().unwrap();
        for callback in one["collections"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["inherited"].is_null())
        {
            let found = pauses
                .iter()
                .find(|pause| of_interpreter(pause, id) && is_of(pause, callback, python));
            let pause = found.unwrap_or_else(|| panic!("no pause for {callback}"));
            agrees(pause, callback, python);
            has_stack(pause, callback, frames);
            // Other threads allocate between the probe and the callback.
            if !python.is("free-threaded") && callback["section"] != "threads" {
                has_young_count(pause, callback);
            }
        }
    }
}

/// Until 3.12 the callbacks run around the function, from 3.13 inside it.
fn is_of(pause: &Pause, callback: &Value, python: &Python) -> bool {
    let time = |name: &str| callback[name].as_u64().unwrap();
    let (start, stop) = (time("start_ns"), time("stop_ns"));
    // Inside a container the thread has another id.
    let same_thread = python.is("container") || pause.tid == time("tid");
    let one_in_the_other = if python.version < (3, 13, 0) {
        start <= pause.start_ns && pause.end_ns <= stop
    } else {
        pause.start_ns <= start && stop <= pause.end_ns
    };
    same_thread && one_in_the_other
}

fn agrees(pause: &Pause, callback: &Value, python: &Python) {
    assert_eq!(Some(pause.generation), callback["generation"].as_u64(), "{pause:?} {callback}");
    assert_eq!(Some(pause.reason.as_ref()), callback["reason"].as_str(), "{pause:?} {callback}");
    if !python.is("incremental") {
        assert_eq!(
            pause.number("collected"),
            callback["collected"].as_u64(),
            "{pause:?} {callback}"
        );
        assert_eq!(
            pause.number("uncollectable"),
            callback["uncollectable"].as_u64(),
            "{pause:?} {callback}"
        );
    }
    if let Some(oldest) = callback["oldest_objects"].as_u64() {
        assert_eq!(pause.number("oldest_objects"), Some(oldest), "{pause:?} {callback}");
    }
    // Unknown if the kernel did not show a switch; kernel/counters.rs checks the value.
    let cpu = pause.number("cpu_ns").unwrap_or(0);
    assert!(cpu <= pause.end_ns - pause.start_ns, "{pause:?}");
}

/// The count of the youngest generation is `gc.get_count()`'s in the callback, which creates a few
/// containers itself: until 3.12 it runs before the probe, from 3.13 after it. (Free-threaded
/// builds count per thread and sum up from time to time.)
fn has_young_count(pause: &Pause, callback: &Value) {
    let recorded = pause.number("young_count").expect("a count");
    // The containers of the call of the callback: its arguments.
    let of_call = 4;
    let first = callback["count"].as_u64().unwrap().saturating_sub(of_call);
    let last = callback["count_after"].as_u64().unwrap() + of_call;
    assert!((first..=last).contains(&recorded), "{pause:?} {callback}");
}

/// `--stack-depth` by default.
const STACK_DEPTH: usize = 24;

/// The frames of the pause are `sys._getframe()`'s in the callback: file, function and line.
fn has_stack(pause: &Pause, callback: &Value, frames: &BTreeMap<u64, &Value>) {
    let mut recorded = Vec::new();
    let mut next = pause.stack;
    while let Some(id) = next {
        let frame = frames.get(&id).unwrap_or_else(|| panic!("no frame {id}"));
        recorded.push(serde_json::json!([frame["file"], frame["function"], frame["line"]]));
        next = frame["parent"].as_u64();
    }
    let mut expected = callback["stack"].as_array().unwrap().clone();
    if expected.len() > STACK_DEPTH {
        expected.truncate(STACK_DEPTH);
        expected.push(serde_json::json!([null, gctrace_event::Frame::OUTER, null]));
    }
    assert_eq!(recorded, expected, "{pause:?} {callback}");
}

/// After the script wrote its truth, only the interpreter's shutdown collects.
fn the_rest_is_shutdown(pauses: &[Pause], truth: &Value) {
    let finished = truth["finished_ns"].as_u64().unwrap();
    let after = pauses.iter().filter(|pause| of_interpreter(pause, 0) && pause.start_ns > finished);
    let reasons: Vec<&str> = after.map(|pause| pause.reason.as_ref()).collect();
    assert!(!reasons.is_empty(), "the collections at exit were seen");
    assert!(reasons.iter().all(|reason| *reason == "shutdown"), "{reasons:?}");
}

/// Collections that CPython counted and no probe saw are counted as lost, exactly: once, not in the
/// forked child as well, and not if the library saw them.
#[test]
fn collections_of_another_collector_are_counted() {
    for name in ["pyenv-3.11", "pyenv-3.12", "pyenv-3.13"] {
        let test = "collections_of_another_collector_are_counted";
        let Some(python) = interpreters::python(test, name) else {
            continue;
        };
        let script = recording::scripts().join("unprobed.py");
        for mode in ["ebpf", "inject", "both"] {
            let place = tempfile::tempdir().unwrap();
            let output = recording::gctrace(
                &[
                    "--mode",
                    mode,
                    "-o",
                    "trace.json",
                    "--",
                    python.path.to_str().unwrap(),
                    script.to_str().unwrap(),
                ],
                place.path(),
            );
            assert!(output.status.success(), "{output:?}");
            let trace = Trace::read(&place.path().join("trace.json"));
            let lost = trace.end()["lost"].as_object().unwrap().clone();
            let counts: Vec<_> = lost.values().filter_map(Value::as_u64).collect();
            assert_eq!(counts, [7], "{name} {mode}: {lost:?}");
        }
    }
}
