//! Kernel tier (it creates an ordinary user): in-process recordings, without any capability, on
//! every interpreter, against what the interpreter itself reports; and together with the probes, in
//! one run.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use test_kit::interpreters::Python;
use test_kit::limit::WithTimeout as _;
use test_kit::recording::user::OrdinaryUser;
use test_kit::recording::{Pause, Trace};
use test_kit::{interpreters, recording};

mod without_capabilities {
    test_kit::on_each_interpreter!(super::as_ordinary_user);
}

mod beside_the_probes {
    test_kit::on_each_interpreter!(super::together_with_probes);
}

/// What an interpreter needs from the file system: its prefix, and the folder of all test
/// interpreters.
fn trees(python: &Python) -> Vec<&Path> {
    let prefix = python.path.ancestors().nth(2).unwrap();
    let made = python.path.ancestors().find(|folder| {
        folder.ends_with(".interpreters") || folder.ends_with(".cross-interpreters")
    });
    vec![made.unwrap_or(prefix)]
}

fn python(test: &str, name: &str) -> Option<Python> {
    interpreters::python(test, name).and_then(|python| interpreters::direct(test, python))
}

fn as_ordinary_user(test: &str, name: &str) {
    let (Some(python), Some(user)) = (python(test, name), OrdinaryUser::for_test(test)) else {
        return;
    };
    let (script, truth_path) = (recording::scripts().join("truth.py"), user.file("truth.json"));
    let command = [&python.path, &script, &truth_path].map(|path| path.to_str().unwrap());
    let options = ["--mode", "inject", "-o", "trace.json", "--"];
    user.gctrace(&trees(&python), &[&options[..], &command].concat());
    let trace = Trace::read(&user.file("trace.json"));
    let truth = recording::json(&truth_path);
    trace.assert_nothing_lost();
    assert_eq!(trace.named("gctrace_header")[0].1["mode"], "inject");
    let pauses = trace.pauses_of(truth["pid"].as_u64().unwrap());
    for pause in &pauses {
        assert_eq!(pause.args["source"], "injected", "{pause:?}");
        // After the script wrote its truth, only the interpreter's shutdown collects.
        let at_exit = pause.start_ns > truth["finished_ns"].as_u64().unwrap();
        assert_eq!(pause.reason == "shutdown", at_exit, "{pause:?}");
    }
    interpreter_is_named(&trace, &truth, &python);
    counts_are_equal(&pauses, &truth, &python);
    every_callback_has_its_pause(&pauses, &truth, &trace.frames());
}

fn interpreter_is_named(trace: &Trace, truth: &Value, python: &Python) {
    let processes = trace.named("gctrace_process");
    let (_, process) = processes.last().unwrap();
    let interpreter = &process["interpreter"];
    assert_eq!(interpreter["version"], truth["version"], "{interpreter}");
    assert_eq!(interpreter["free_threaded"], truth["free_threaded"], "{interpreter}");
    let collector = interpreter["collector"].as_str().unwrap();
    assert!(python.is(collector), "{interpreter} {python:?}");
}

/// Until 3.9 subinterpreters share the list of callbacks; in 3.8 they share the whole collector.
fn interpreters(truth: &Value) -> impl Iterator<Item = &Value> {
    let others = truth["interpreters"].as_array().unwrap();
    std::iter::once(truth).chain(others)
}

/// Compares from the start of the script's listening, which is after our hook was installed, to the
/// end of the script.
fn counts_are_equal(pauses: &[Pause], truth: &Value, python: &Python) {
    let time = |name: &str| truth[name].as_u64().unwrap();
    let listened = time("made_ns")..time("finished_ns");
    let pauses = pauses
        .iter()
        .filter(|pause| listened.contains(&pause.start_ns) && of_interpreter(pause, 0));
    let callbacks = truth["collections"].as_array().unwrap();
    // Increments that only mark are not in gc.get_stats(); in 3.8, which has one collector for all
    // interpreters, a collection at the end of a subinterpreter is, and no callback is called for
    // it.
    if python.is("incremental") || python.version < (3, 9, 0) {
        assert_eq!(recording::by_generation(pauses), by_generation(callbacks));
        return;
    }
    assert_eq!(recording::by_generation(pauses.clone()), recording::collections_since_base(truth));
    let collected: u64 = pauses.filter_map(|pause| pause.number("collected")).sum();
    let sum = |which: &str| -> u64 {
        let of = |entry: &Value| entry["collected"].as_u64().unwrap();
        truth[which].as_array().unwrap().iter().map(of).sum()
    };
    assert_eq!(collected, sum("stats") - sum("base"));
}

fn of_interpreter(pause: &Pause, id: u64) -> bool {
    pause.number("interpreter").is_none_or(|number| number == id)
}

fn by_generation(callbacks: &[Value]) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::from([(0, 0), (1, 0), (2, 0)]);
    for callback in callbacks {
        let generation = callback["generation"].as_u64().unwrap();
        *counts.entry(generation).or_default() += 1;
    }
    counts
}

/// Every collection that a callback of the script saw is exactly one pause.
fn every_callback_has_its_pause(pauses: &[Pause], truth: &Value, frames: &BTreeMap<u64, &Value>) {
    for one in interpreters(truth) {
        let id = one["interpreter"].as_u64().unwrap();
        for callback in one["collections"].as_array().unwrap() {
            let mut found =
                pauses.iter().filter(|pause| of_interpreter(pause, id) && is_of(pause, callback));
            let pause = found.next().unwrap_or_else(|| panic!("no pause for {callback}"));
            assert!(found.next().is_none(), "two pauses for {callback}");
            for field in ["generation", "collected", "uncollectable", "reason"] {
                assert_eq!(pause.args[field], callback[field], "{pause:?} {callback}");
            }
            has_line(pause, callback, frames);
        }
    }
}

/// Our entry is the first in the list of callbacks: called before the script's at the start and at
/// the stop.
fn is_of(pause: &Pause, callback: &Value) -> bool {
    let time = |name: &str| callback[name].as_u64().unwrap();
    pause.tid == time("tid")
        && pause.start_ns <= time("start_ns")
        && time("start_ns") <= pause.end_ns
        && pause.end_ns <= time("stop_ns")
}

/// The innermost frame is `sys._getframe()`'s in the callback.
fn has_line(pause: &Pause, callback: &Value, frames: &BTreeMap<u64, &Value>) {
    let expected = callback["stack"].as_array().unwrap().first();
    let recorded = pause.stack.map(|id| {
        let frame = frames[&id];
        serde_json::json!([frame["file"], frame["function"], frame["line"]])
    });
    assert_eq!(recorded.as_ref(), expected, "{pause:?} {callback}");
}

/// In mode both, every collection that the script's callbacks saw was seen by both sources, once,
/// and one contains the other: until 3.12 callbacks run around the function, from 3.13 on inside
/// it.
fn together_with_probes(test: &str, name: &str) {
    if !recording::privileged(test) {
        return;
    }
    let Some(python) = python(test, name) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let truth_path = place.path().join("truth.json");
    let script = recording::scripts().join("truth.py");
    let command = [&python.path, &script, &truth_path].map(|path| path.to_str().unwrap());
    let options = ["--mode", "both", "-o", "trace.json", "--"];
    let output = recording::gctrace(&[&options[..], &command].concat(), place.path());
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&place.path().join("trace.json"));
    let truth = recording::json(&truth_path);
    trace.assert_nothing_lost();
    let pauses = trace.pauses_of(truth["pid"].as_u64().unwrap());
    let mut apart = Vec::new();
    for callback in truth["collections"].as_array().unwrap() {
        let heard = callback["start_ns"].as_u64().unwrap();
        let mut of_callback = pauses.iter().filter(|pause| {
            let (start_ns, end_ns) = injected(pause).unwrap_or((pause.start_ns, pause.end_ns));
            pause.tid == callback["tid"].as_u64().unwrap()
                && start_ns.min(pause.start_ns) <= heard
                && heard <= end_ns.max(pause.end_ns)
        });
        let pause = of_callback.next().unwrap_or_else(|| panic!("no pause for {callback}"));
        assert!(of_callback.next().is_none(), "two pauses for {callback}");
        let (start_ns, end_ns) =
            injected(pause).unwrap_or_else(|| panic!("seen by one source: {pause:?}"));
        let nested = if python.version < (3, 13, 0) {
            start_ns <= pause.start_ns && pause.end_ns <= end_ns
        } else {
            pause.start_ns <= start_ns && end_ns <= pause.end_ns
        };
        assert!(nested, "{pause:?}");
        assert_eq!(Some(pause.reason.as_ref()), callback["reason"].as_str());
        apart.push([start_ns.abs_diff(pause.start_ns), end_ns.abs_diff(pause.end_ns)]);
    }
    for (at, what) in ["begin", "end"].into_iter().enumerate() {
        let mut differences: Vec<u64> = apart.iter().map(|pair| pair[at]).collect();
        differences.sort_unstable();
        let quantile = |percent: usize| differences[(differences.len() - 1) * percent / 100];
        println!(
            "\n| {name} | {what} | {} | {} ns | {} ns |",
            differences.len(),
            quantile(50),
            quantile(95)
        );
    }
}

/// In-process start and end of a pause that both sources saw.
fn injected(pause: &Pause) -> Option<(u64, u64)> {
    (pause.args["source"] == "both").then(|| {
        let start_ns = recording::nanoseconds(&pause.args["injected_ts"]);
        (start_ns, start_ns + recording::nanoseconds(&pause.args["injected_dur"]))
    })
}

/// Records a script of `tests/python` as an ordinary user; it writes its truths into the folder
/// that it is given.
fn record_truths(test: &str, script: &str) -> Option<(Trace, Vec<Value>)> {
    let user = OrdinaryUser::for_test(test)?;
    let (python, script) = (interpreters::any_python(), recording::scripts().join(script));
    let folder = user.file("truths");
    let made = user.command(&[], Path::new("mkdir")).arg(&folder).status_in_time();
    assert!(made.unwrap().success());
    let command = [&python, &script, &folder].map(|path| path.to_str().unwrap());
    let options = ["--mode", "inject", "-o", "trace.json", "--"];
    user.gctrace(&[], &[&options[..], &command].concat());
    let trace = Trace::read(&user.file("trace.json"));
    trace.assert_nothing_lost();
    Some((trace, recording::truths(&folder)))
}

/// Children that were forked, spawned or executed and return, exit, raise, or are killed, and a
/// pool that is terminated while it works: everything that a process had counted when it last wrote
/// is in the trace.
#[test]
fn however_a_process_ends_nothing_is_lost() {
    let test = "however_a_process_ends_nothing_is_lost";
    let Some((trace, truths)) = record_truths(test, "endings.py") else {
        return;
    };
    let mut ends = BTreeMap::new();
    for truth in truths {
        let pauses = trace.pauses_of(truth["pid"].as_u64().unwrap());
        let time = |name: &str| truth[name].as_u64().unwrap();
        let life = time("since_ns")..time("until_ns");
        let pauses = pauses.iter().filter(|pause| life.contains(&pause.start_ns));
        let counted = recording::collections_since_base(&truth);
        assert_eq!(recording::by_generation(pauses), counted, "{truth}");
        let end = truth["end"].as_str().unwrap().to_owned();
        *ends.entry(end).or_insert(0) += 1;
    }
    assert_eq!(ends.values().sum::<u32>(), 5 * 3 + 3, "{ends:?}");
}

/// A storm of short processes, each of which hands over a ring of its own.
#[test]
fn a_storm_of_processes() {
    let Some((trace, truths)) = record_truths("a_storm_of_processes", "storm.py") else {
        return;
    };
    assert_eq!(truths.len(), 221);
    for truth in truths.iter().filter(|truth| truth["number"] != -1) {
        let pauses = trace.pauses_of(truth["pid"].as_u64().unwrap());
        let expected = truth["explicit"].as_array().unwrap();
        let seen = recording::by_generation(&pauses);
        for (generation, count) in expected.iter().enumerate() {
            let at_least = count.as_u64().unwrap();
            let seen = seen[&(generation as u64)];
            // A normal exit collects beyond that.
            let exact = truth["exit"] == "_exit";
            assert!(seen == at_least || (!exact && seen > at_least), "{truth} {seen}");
        }
    }
}
