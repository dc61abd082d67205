//! Kernel tier: `--alloc` against loops whose allocations are known, and what it leaves behind.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

mod common;

use common::Trace;
use serde_json::Value;
use std::io::Read as _;
use std::io::Seek as _;
use std::io::SeekFrom;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

/// Objects that one round of `allocate.py integers` allocates: a number of the range and its sum with 7, two
/// million times.
const INTEGERS_PER_ROUND: f64 = 4e6;

macro_rules! on_interpreters {
    ($($test:ident => $name:literal,)*) => {$(
        #[test]
        fn $test() {
            the_rate_of_a_loop_is_estimated(stringify!($test), $name);
        }
    )*};
}

on_interpreters! {
    system_python => "system-3.11",
    cpython_3_10 => "pyenv-3.10",
    cpython_3_11 => "pyenv-3.11",
    cpython_3_12 => "pyenv-3.12",
    cpython_3_13 => "pyenv-3.13",
}

/// Records `allocate.py KIND` for so many seconds of CPU time; what it said, and the last summary.
fn record(python: &Path, kind: &str, seconds: &str) -> (Value, Value) {
    let place = tempfile::tempdir().unwrap();
    let script = common::scripts().join("allocate.py");
    let (python, script) = (python.to_str().unwrap(), script.to_str().unwrap());
    let line = ["--alloc", "--", python, script, kind, seconds];
    let output = common::gctrace(&line, place.path());
    assert!(output.status.success(), "{output:?}");
    let said = serde_json::from_slice(&output.stdout).unwrap();
    let trace = Trace::read(&place.path().join("trace.json"));
    let summaries = trace.named("gctrace_allocations");
    let (_, last) = summaries.last().unwrap();
    (said, (*last).clone())
}

fn the_rate_of_a_loop_is_estimated(test: &str, name: &str) {
    if !common::privileged(test) {
        return;
    }
    let Some(python) = common::python(test, name) else {
        return;
    };
    let (said, summary) = record(&python.path, "integers", "8");
    let truth =
        said["rounds"].as_f64().unwrap() * INTEGERS_PER_ROUND / said["cpu_s"].as_f64().unwrap();
    let Some(estimate) = summary["per_cpu_second"].as_f64() else {
        panic!("no estimate: {summary}");
    };
    let error = summary["error_ppm"].as_f64().unwrap() / 1e6;
    let off = estimate / truth - 1.0;
    println!(
        "{test}: {estimate:.0} a second, {truth:.0} in truth: {:+.1} %, stated error {:.1} %",
        off * 100.0,
        error * 100.0
    );
    // The 10 %, or three of the stated standard errors on a machine busy with other things.
    assert!(off.abs() <= (3.0 * error).max(0.1), "{off:+.3}: {summary}");
    let (cost, cpu) = (
        summary["cost_ns"].as_f64().unwrap(),
        summary["cpu_ns"].as_f64().unwrap(),
    );
    assert!(cost > 0.0 && cost <= cpu, "{summary}");
    let hits = summary["hits"].as_u64().unwrap();
    let of_integers: u64 = summary["classes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|class| class[0] == 32)
        .map(|class| class[1].as_u64().unwrap())
        .sum();
    // An integer of one digit is 28 bytes, and so of the class of 32.
    assert!(of_integers * 10 >= hits * 9, "{summary}");
    assert!(
        !summary["stacks"].as_array().unwrap().is_empty(),
        "{summary}"
    );
}

/// Byte at the start of each executable mapping's probed places: all of the interpreter's code.
fn code_of(pid: u32) -> Vec<u8> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut code = Vec::new();
    for line in maps
        .lines()
        .filter(|line| line.contains("r-xp") && line.contains("python"))
    {
        let (start, end) = line
            .split_whitespace()
            .next()
            .unwrap()
            .split_once('-')
            .unwrap();
        let start = u64::from_str_radix(start, 16).unwrap();
        let end = u64::from_str_radix(end, 16).unwrap();
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        memory.seek(SeekFrom::Start(start)).unwrap();
        memory.read_exact(&mut bytes).unwrap();
        code.extend(bytes);
    }
    code
}

#[test]
fn no_probe_stays_when_gctrace_is_killed_in_a_window() {
    let test = "no_probe_stays_when_gctrace_is_killed_in_a_window";
    if !common::privileged(test) {
        return;
    }
    let python = common::any_python();
    let place = tempfile::tempdir().unwrap();
    let mut program = Command::new(&python)
        .arg(common::scripts().join("allocate.py"))
        .args(["integers", "60"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let before = code_of(program.id());
    let mut recorder = Command::new(env!("CARGO_BIN_EXE_gctrace"))
        .args([
            "--alloc",
            "--alloc-budget",
            "50",
            "-p",
            &program.id().to_string(),
        ])
        .current_dir(place.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Half of the CPU time is in windows: more places differ than the collector's few.
    let differing = || {
        let now = code_of(program.id());
        before
            .iter()
            .zip(&now)
            .filter(|(before, now)| before != now)
            .count()
    };
    let mut idle = usize::MAX;
    common::wait_until("a window is open", || {
        let now = differing();
        if now > 0 {
            idle = idle.min(now);
        }
        idle != usize::MAX && now > idle
    });
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    common::wait_until("all code is as before", || differing() == 0);
    program.kill().unwrap();
    program.wait().unwrap();
}
