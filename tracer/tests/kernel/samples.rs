//! Kernel tier: samples of what threads execute, against the CPU time that they measure themselves.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use test_kit::limit::WithTimeout as _;
use test_kit::recording::Trace;
use test_kit::{interpreters, recording};

/// Samples a second.
const HERTZ: u64 = 499;

/// By how much a share by samples may differ from that of CPU time: of 1,000 samples and more, five standard
/// deviations and what starts and ends the measured calls.
const CLOSE: f64 = 0.08;

test_kit::on_interpreters! {
    check;
    system_python => "system-3.11",
    cpython_3_8 => "pyenv-3.8",
    cpython_3_12 => "pyenv-3.12",
    debian_3_13 => "debian-3.13-shared",
    debian_3_14 => "debian-3.14",
    free_threaded_3_14 => "manylinux-3.14t",
}

fn check(test: &str, name: &str) {
    if !recording::privileged(test) {
        return;
    }
    let Some(python) = interpreters::python(test, name) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let truth = place.path().join("truth.json");
    let script = recording::scripts().join("sampled.py");
    let output = recording::gctrace(
        &[
            "--mode",
            "ebpf",
            "--sample",
            &HERTZ.to_string(),
            "--",
            python.path.to_str().unwrap(),
            script.to_str().unwrap(),
            truth.to_str().unwrap(),
        ],
        place.path(),
    );
    assert!(output.status.success(), "{output:?}");
    Trace::read(&place.path().join("trace.json")).assert_nothing_lost();
    let truth = recording::json(&truth);
    let report = analyzed(place.path());
    let cpu = cpu_of(&report, &truth["pid"]);
    let total = cpu["samples"].as_u64().unwrap();
    let known = truth["process"].as_u64().unwrap() as f64 / 1e9;
    let sampled = total as f64 / HERTZ as f64;
    // The program starts and ends outside of what it measures.
    assert!((sampled / known - 1.0).abs() < 0.15, "{sampled} s by samples of {known} s");
    assert_eq!(cpu["threads"], 2);
    let share = |samples: u64| samples as f64 / total as f64;
    for function in ["first", "second", "collected", "native"] {
        let truth = truth["times"][function].as_u64().unwrap() as f64 / 1e9 / known;
        let sampled = share(samples_of(cpu, function));
        assert!((sampled - truth).abs() < CLOSE, "{function}: {sampled} of {truth}");
    }
    let in_pauses = share(cpu["in_pauses"].as_u64().unwrap());
    let collected = share(samples_of(cpu, "collected"));
    assert!((in_pauses - collected).abs() < CLOSE, "{in_pauses} of {collected}");
    let files = cpu["files"].as_array().unwrap().iter();
    let named: Vec<&str> = files.filter_map(|file| file["file"].as_str()).collect();
    assert!(named.iter().any(|file| file.contains("python")), "{named:?}");
    pstats_agrees(&python.path, place.path(), &report, total);
    let child = cpu_of(&report, &truth["child"]);
    let all = child["samples"].as_u64().unwrap();
    assert!(samples_of(child, "forked") * 10 > all * 8, "{child}");
}

/// Prints the samples of two functions of a profile, the CPU time of all, and who calls one of them.
const PSTATS: &str = "\
import json, pstats
stats = pstats.Stats('cpu.pstats').stats
own = {function: sum(row[1] for key, row in stats.items() if key[2] == function) for function in ('first', 'native')}
callers = [caller[2] for key, row in stats.items() if key[2] == 'first' for caller in row[4]]
print(json.dumps({'own': own, 'seconds': sum(row[2] for row in stats.values()), 'callers': callers}))
";

/// Python reads the exported profile, and it has the samples of the report.
fn pstats_agrees(python: &Path, place: &Path, report: &Value, total: u64) {
    let arguments = ["export", "trace.json", "--by", "cpu", "-o", "cpu.pstats"];
    let output = recording::gctrace(&arguments, place);
    assert!(output.status.success(), "{output:?}");
    let mut command = Command::new(python);
    let output = command.args(["-c", PSTATS]).current_dir(place).output_in_time().unwrap();
    assert!(output.status.success(), "{output:?}");
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The child's samples too.
    let seconds = total as f64 / HERTZ as f64;
    assert!((read["seconds"].as_f64().unwrap() / seconds) > 0.8, "{read} of {seconds} s");
    for function in ["first", "native"] {
        let processes = report["cpu"].as_array().unwrap().iter();
        let all: u64 = processes.map(|cpu| samples_of(cpu, function)).sum();
        assert_eq!(read["own"][function], all, "{read}");
    }
    assert_eq!(read["callers"], serde_json::json!(["timed"]), "{read}");
}

/// The report on the trace in a folder.
fn analyzed(place: &Path) -> Value {
    let output = recording::gctrace(&["analyze", "--format", "json", "trace.json"], place);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn cpu_of<'a>(report: &'a Value, pid: &Value) -> &'a Value {
    let mut sampled = report["cpu"].as_array().unwrap().iter();
    sampled.find(|cpu| cpu["pid"] == *pid).unwrap()
}

/// The samples of all lines of a function.
fn samples_of(cpu: &Value, function: &str) -> u64 {
    let lines = cpu["lines"].as_array().unwrap().iter();
    let of = lines.filter(|line| line["line"]["function"] == function);
    of.map(|line| line["samples"].as_u64().unwrap()).sum()
}

/// Attached: no probe has fired that stores where the interpreter is.
#[test]
fn a_running_process_that_does_not_collect() {
    const TEST: &str = "a_running_process_that_does_not_collect";
    const PROGRAM: &str = "\
def spin():
    total = 0
    while True:
        total += 1
print('ready', flush=True)
spin()
";
    if !recording::privileged(TEST) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(interpreters::any_python());
    command.args(["-c", PROGRAM]).stdout(Stdio::piped());
    let mut program = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = program.id().to_string();
    let arguments = ["--mode", "ebpf", "--sample", "199", "--duration", "2", "-p", &pid];
    let output = recording::gctrace(&arguments, place.path());
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = analyzed(place.path());
    let cpu = cpu_of(&report, &serde_json::json!(program.id()));
    let all = cpu["samples"].as_u64().unwrap();
    assert!(all > 20 && samples_of(cpu, "spin") * 10 > all * 9, "{cpu}");
}

/// Without privileges for probes there are no samples, and a message says so.
#[test]
fn in_process_there_are_none() {
    let place = tempfile::tempdir().unwrap();
    let python = interpreters::any_python();
    let output = recording::gctrace(
        &["--mode", "inject", "--sample", "99", "--", python.to_str().unwrap(), "-c", "pass"],
        place.path(),
    );
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("--sample needs kernel probes"), "{text}");
}
