//! Kernel tier: children, storms, threads, sudden exits. Every loss is counted.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests, outside of #[test]"
)]

use serde_json::Value;
use std::path::Path;
use test_kit::recording::{Pause, Trace};
use test_kit::{interpreters, recording};

fn record(
    python: &Path,
    script: &str,
    arguments: &[&str],
    place: &Path,
) -> (Trace, std::process::Output) {
    let script = recording::scripts().join(script);
    let mut line =
        vec!["-o", "trace.json", "--", python.to_str().unwrap(), script.to_str().unwrap()];
    line.extend(arguments);
    let output = recording::gctrace(&line, place);
    (Trace::read(&place.join("trace.json")), output)
}

/// Pauses of a process between two times, without those at shutdown.
fn between(trace: &Trace, truth: &Value, from: u64, to: u64) -> Vec<Pause> {
    let mut pauses = trace.pauses_of(truth["pid"].as_u64().unwrap());
    pauses.retain(|pause| {
        pause.start_ns >= from && pause.start_ns <= to && pause.reason != "shutdown"
    });
    pauses
}

#[test]
fn a_storm_of_forks_is_complete() {
    let Some((python, place)) = recording::place_for("a_storm_of_forks_is_complete") else {
        return;
    };
    let (trace, output) =
        record(&python, "storm.py", &["truths", "--processes", "200"], place.path());
    assert!(output.status.success(), "{output:?}");
    trace.assert_nothing_lost();
    let truths = recording::truths(&place.path().join("truths"));
    assert!(truths.len() >= 200, "{} processes", truths.len());
    for truth in &truths {
        let pauses = trace.pauses_of(truth["pid"].as_u64().unwrap());
        let pauses = pauses.iter().filter(|pause| pause.reason != "shutdown");
        assert_eq!(
            recording::by_generation(pauses),
            recording::collections_since_base(truth),
            "{truth}"
        );
    }
    let exits = trace.named("gctrace_process_exit");
    assert!(exits.len() >= 200, "every process's end is in the trace: {}", exits.len());
}

#[test]
fn a_thousand_threads_are_distinguished() {
    let Some((python, place)) = recording::place_for("a_thousand_threads_are_distinguished") else {
        return;
    };
    let (trace, output) = record(&python, "threads.py", &["truth.json"], place.path());
    assert!(output.status.success(), "{output:?}");
    trace.assert_nothing_lost();
    let truth = recording::json(&place.path().join("truth.json"));
    let explicit = truth["explicit"].as_object().unwrap();
    assert!(explicit.len() >= 1000, "{} threads", explicit.len());
    let pauses = trace.pauses();
    for (thread, count) in explicit {
        let pauses = pauses
            .iter()
            .filter(|pause| pause.tid.to_string() == *thread && pause.reason == "manual");
        assert_eq!(pauses.count() as u64, count.as_u64().unwrap(), "thread {thread}");
    }
    let pauses = pauses.iter().filter(|pause| pause.reason != "shutdown");
    assert_eq!(recording::by_generation(pauses), recording::stats(&truth, "collections"));
}

/// With the system's interpreter, and with one whose callbacks run inside the collector.
#[test]
fn forks_inside_a_collection_callback_are_complete() {
    let test = "forks_inside_a_collection_callback_are_complete";
    let Some((python, _)) = recording::place_for(test) else {
        return;
    };
    let newer = interpreters::python(test, "debian-3.14").map(|python| python.path);
    for python in std::iter::once(python).chain(newer) {
        let place = tempfile::tempdir().unwrap();
        let (trace, output) = record(&python, "fork_in_callback.py", &["truths"], place.path());
        assert!(output.status.success(), "{output:?}");
        trace.assert_nothing_lost();
        let truths = recording::truths(&place.path().join("truths"));
        assert_eq!(truths.len(), 5, "four children and their parent");
        for truth in &truths {
            let pauses = trace.pauses_of(truth["pid"].as_u64().unwrap());
            let finished = pauses
                .iter()
                .filter(|pause| pause.reason != "shutdown" && pause.args["unfinished"].is_null());
            assert_eq!(recording::by_generation(finished), expected_of_forked(truth), "{truth}");
        }
    }
}

/// The rest of a pause belongs to a child forked inside it; from 3.13 on the callback of the stop
/// runs inside the pause too, but after the statistics were counted, so `base` already contains it.
fn expected_of_forked(truth: &Value) -> std::collections::BTreeMap<u64, u64> {
    if truth["exit"] == "normal" {
        return recording::stats(truth, "collections");
    }
    let mut expected = recording::collections_since_base(truth);
    let minor: u32 = truth["version"].as_str().unwrap().split('.').nth(1).unwrap().parse().unwrap();
    if minor >= 13 && truth["phase"] == "stop" && truth["exit"] == "_exit after three more" {
        *expected.entry(2).or_default() += 1;
    }
    expected
}

#[test]
fn a_killed_process_keeps_its_pauses() {
    let Some((python, place)) = recording::place_for("a_killed_process_keeps_its_pauses") else {
        return;
    };
    let (trace, output) = record(&python, "sigkill.py", &["truth.json"], place.path());
    assert_eq!(output.status.code(), Some(128 + 9), "{output:?}");
    trace.assert_nothing_lost();
    let truth = recording::json(&place.path().join("truth.json"));
    assert_eq!(recording::by_generation(&trace.pauses()), recording::stats(&truth, "collections"));
}

#[test]
fn a_pause_cut_short_by_a_kill_is_unfinished() {
    let test = "a_pause_cut_short_by_a_kill_is_unfinished";
    let Some((python, _)) = recording::place_for(test) else {
        return;
    };
    let newer = interpreters::python(test, "debian-3.14").map(|python| python.path);
    for python in std::iter::once(python).chain(newer) {
        let place = tempfile::tempdir().unwrap();
        let (trace, _) = record(&python, "sigkill.py", &["truth.json", "--inside"], place.path());
        trace.assert_nothing_lost();
        let truth = recording::json(&place.path().join("truth.json"));
        let pauses = trace.pauses();
        let (unfinished, finished): (Vec<Pause>, Vec<Pause>) =
            pauses.into_iter().partition(|pause| pause.args["unfinished"] == true);
        assert_eq!(recording::by_generation(&finished), recording::stats(&truth, "collections"));
        assert_eq!(unfinished.len(), 1, "{unfinished:?}");
        assert_eq!((unfinished[0].generation, unfinished[0].reason.as_ref()), (2, "manual"));
    }
}

/// fork, exec, spawn, shell, env, multiprocessing, grandchildren; several versions at once.
#[test]
fn launchers_of_several_interpreters_are_complete() {
    let test = "launchers_of_several_interpreters_are_complete";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    let names = ["pyenv-3.8", "pyenv-3.12", "debian-3.14", "debian-3.15-shared", "manylinux-3.14t"];
    // Those that are installed.
    let mut pythons: Vec<_> = interpreters::manifest()
        .into_iter()
        .flatten()
        .filter(|python| names.contains(&python.name.as_str()))
        .map(|python| python.path)
        .collect();
    pythons.push(python.clone());
    let mut arguments = vec!["truths"];
    arguments.extend(pythons.iter().map(|path| path.to_str().unwrap()));
    let (trace, output) = record(&python, "launcher.py", &arguments, place.path());
    assert!(output.status.success(), "{output:?}");
    trace.assert_nothing_lost();
    let truths = recording::truths(&place.path().join("truths"));
    assert_eq!(truths.len(), 3 * pythons.len() + 6, "every process wrote its truth");
    for truth in &truths {
        complete(&trace, truth);
    }
    ranks_are_known(&trace, &truths);
}

fn complete(trace: &Trace, truth: &Value) {
    let finished = truth["finished_ns"].as_u64().unwrap();
    let (from, expected) = if truth["role"] == "forked" {
        (truth["made_ns"].as_u64().unwrap(), recording::collections_since_base(truth))
    } else {
        (0, recording::stats(truth, "collections"))
    };
    let pauses = between(trace, truth, from, finished);
    assert_eq!(
        recording::by_generation(&pauses),
        expected,
        "{} {}",
        truth["role"],
        truth["executable"]
    );
    let pid = truth["pid"].as_u64().unwrap();
    let processes = trace.named("gctrace_process");
    let (_, process) =
        processes.iter().rfind(|(of, _)| *of == pid).expect("the process is in the trace");
    assert_eq!(process["interpreter"]["version"], truth["version"], "{process}");
}

fn ranks_are_known(trace: &Trace, truths: &[Value]) {
    for truth in truths.iter().filter(|truth| truth["role"] == "spawn") {
        let pid = truth["pid"].as_u64().unwrap();
        let processes = trace.named("gctrace_process");
        let (_, process) = processes.iter().rfind(|(of, _)| *of == pid).unwrap();
        assert_eq!(process["rank"].to_string(), truth["rank"].as_str().unwrap(), "{process}");
    }
}

#[test]
fn no_follow_leaves_children_out() {
    let Some((python, place)) = recording::place_for("no_follow_leaves_children_out") else {
        return;
    };
    let script = recording::scripts().join("storm.py");
    let line = [
        "--no-follow",
        "--",
        python.to_str().unwrap(),
        script.to_str().unwrap(),
        "truths",
        "--processes",
        "5",
    ];
    let output = recording::gctrace(&line, place.path());
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&place.path().join("trace.json"));
    let truths = recording::truths(&place.path().join("truths"));
    assert!(truths.len() >= 5);
    // The command itself, which is recorded, has the number -1.
    for truth in truths.iter().filter(|truth| truth["number"] != -1) {
        assert!(trace.pauses_of(truth["pid"].as_u64().unwrap()).is_empty(), "{truth}");
    }
    assert!(!trace.pauses().is_empty(), "the command itself is recorded");
}

#[test]
fn short_pauses_are_counted_but_not_written() {
    let Some((python, place)) = recording::place_for("short_pauses_are_counted_but_not_written")
    else {
        return;
    };
    let code = "import gc\nfor _ in range(50): gc.collect()";
    let line = ["--min-pause", "1h", "--", python.to_str().unwrap(), "-c", code];
    assert!(recording::gctrace(&line, place.path()).status.success());
    let trace = Trace::read(&place.path().join("trace.json"));
    assert!(trace.pauses().is_empty());
    assert!(trace.end()["omitted"]["count"].as_u64().unwrap() >= 50, "{}", trace.end());
}
