//! Kernel tier: what main threads wait for, against the times that the program measures around each wait.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use super::samples::{SampledRun, on_sampled_interpreters};
use serde_json::Value;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::{interpreters, recording};

/// The program measures what it is off the CPU for in each call, which contains waits of less than a
/// millisecond.
const LEAST: f64 = 0.95;
/// Samples a second: with 700 of them, chance makes a share of 97 % a hundredth wrong.
const HERTZ: u64 = 999;
/// The program's clocks are read one after the other.
const MOST: f64 = 1.01;

/// How often each call is made in `waits.py`: `TURNS` there.
const TURNS: u64 = 30;

on_sampled_interpreters!(check);

fn check(test: &str, name: &str) {
    let Some(run) = SampledRun::of(test, name, "waits.py", &[]) else {
        return;
    };
    let truth = &run.truth;
    let main = &run.process(&truth["pid"])["main_thread"];
    let off_cpu = main["off_cpu"].as_array().unwrap();
    let of = |what: &str, reason: &[&str], function: Option<&str>| {
        let of = off_cpu.iter().filter(|of| {
            reason.contains(&of["reason"].as_str().unwrap())
                && of["line"]["function"].as_str() == function
        });
        of.map(|of| of[what].as_u64().unwrap()).sum::<u64>()
    };
    let waited = |reason: &[&str], function: &str| of("time_ns", reason, Some(function)) as f64;
    // Of a thread that is preempted the line is unknown, and that of some waits: those have a budget.
    let unplaced = |reason: &[&str]| of("time_ns", &[reason, &["cpu"]].concat(), None) as f64;
    let measured = |function: &str| truth["times"][function].as_u64().unwrap() as f64;
    for (reason, function) in [
        (&["sleep"][..], "sleeps"),
        (&["lock"], "locks"),
        (&["poll"], "polls"),
        // A child that has started, by its pipe, and that ends.
        (&["process", "pipe"], "ends"),
        // A queue's lock, or its pipe.
        (&["pipe", "lock", "poll"], "takes"),
    ] {
        // None is missing. A queue may have an item already.
        let times = of("times", reason, Some(function)) + of("times", reason, None);
        assert!(times >= TURNS || function == "takes", "{function}: {times}, {main}");
        let (waited, measured) = (waited(reason, function), measured(function));
        let close = waited <= MOST * measured && waited + unplaced(reason) >= LEAST * measured;
        assert!(close, "{function}: {waited} of {measured} ns, {main}");
    }
    let for_data = off_cpu.iter().filter(|of| of["for_data"].as_bool().unwrap());
    let functions: Vec<&str> =
        for_data.map(|of| of["line"]["function"].as_str().unwrap()).collect();
    assert!(functions.iter().any(|function| function.ends_with("takes")), "{functions:?}");
    let for_gil = waited(&["gil"], "burn");
    if name == "manylinux-3.14t" {
        assert!(for_gil == 0.0 && main["gil"].is_null(), "{main}");
    } else {
        // Two threads share it: all that one is off the CPU for is the other.
        let contended = measured("contends");
        // Beside other programs, each turn also waits for a CPU, mostly for less than a millisecond.
        const LEAST_CONTENDED: f64 = 0.8;
        let close = for_gil <= MOST * contended
            && for_gil + unplaced(&["gil"]) >= LEAST_CONTENDED * contended;
        assert!(close, "{for_gil} of {contended} ns, {main}");
        assert_eq!(main["gil"]["others"], 1, "{main}");
        assert_eq!(main["gil"]["lines"][0]["line"]["function"], "burn", "{main}");
    }
    let workers = &main["workers"];
    assert_eq!(workers["others"], 1, "{main}");
    let running = workers["lines"][0]["line"]["function"].as_str().unwrap();
    let sleeping = &workers["off_cpu"].as_array().unwrap().iter();
    let sleeping = sleeping.clone().find(|of| of["reason"] == "sleep").unwrap();
    assert_eq!((running, sleeping["line"]["function"].as_str().unwrap()), ("burn", "fetch"));
    // It waits for its worker alone: while that decodes and while it sleeps.
    let fetched = truth["fetch"].as_u64().unwrap() as f64;
    let slept = sleeping["time_ns"].as_u64().unwrap() as f64;
    assert!(slept <= MOST * fetched && slept >= LEAST * fetched, "{slept} of {fetched}");
    // The worker is a process of its own in the report.
    assert!(run.process(&truth["worker"])["samples"].as_u64().unwrap() > 0);
}

/// The ledger of a simulated GPU has the line that the host waited for data at, and those that it executed.
#[test]
fn the_ledger_of_a_gpu_has_lines() {
    const TEST: &str = "the_ledger_of_a_gpu_has_lines";
    let Some(libraries) = recording::simulated_gpu(TEST) else {
        return;
    };
    if !recording::privileged(TEST) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let truth = place.path().join("truth.json");
    let script = recording::scripts().join("idle_host.py");
    let output = Command::new(recording::binary())
        .args(["--cuda", "all", "--sample", &HERTZ.to_string(), "--"])
        .arg(interpreters::any_python())
        .arg(script)
        .arg(&libraries)
        .arg(&truth)
        .current_dir(place.path())
        .env("LD_LIBRARY_PATH", &libraries)
        .env_remove("SUDO_UID")
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let truth = &recording::json(&truth);
    let output = recording::gctrace(&["analyze", "--format", "json", "trace.json"], place.path());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ledger = &report["gpu"]["idle"][0];
    let row = |cause: &str| {
        let rows = ledger["rows"].as_array().unwrap();
        rows.iter().find(|row| row["cause"] == cause).unwrap_or_else(|| panic!("{ledger}"))
    };
    let measured = |function: &str| truth["times"][function].as_u64().unwrap() as f64;
    let time = |of: &Value| of["time_ns"].as_u64().unwrap() as f64;
    // Stacks of waits have a budget, which a busy machine exceeds: without one it is unknown that it was for data.
    let data = row("data");
    let steps = truth["steps"].as_f64().unwrap();
    let placed = data["places"][0]["gaps"].as_f64().unwrap();
    if placed < steps / 2.0 {
        eprintln!(
            "skipped {TEST}: the machine is too busy: {placed} of {steps} waits have a stack"
        );
        return;
    }
    let share = time(data) / (measured("fetch") * placed / steps);
    assert!((0.95..=1.05).contains(&share), "{share} of fetch, {ledger}");
    assert_eq!(data["places"][0]["python"]["function"], "fetch", "{ledger}");
    // The call that waits for the GPU has the line that makes it.
    let called = &row("synchronization")["places"][0];
    assert_eq!(called["function"], "cudaDeviceSynchronize", "{ledger}");
    assert_eq!(called["python"]["function"], "step", "{ledger}");
    let places = row("host")["places"].as_array().unwrap();
    let at = |function: &str| {
        let of = places.iter().filter(|place| place["python"]["function"] == function);
        of.map(time).sum::<f64>()
    };
    // `burn` is called by `augment` and `log`, and nearly all that the host executes: most of their CPU time, as
    // samples of a busy machine come late or not at all. It is late for what they took, and for waits without a stack.
    let took = |function: &str| truth["took"][function].as_f64().unwrap();
    let least = measured("augment") + measured("log");
    let most = took("augment") + took("log") + took("fetch") * (1.0 - placed / steps);
    let (burned, close) = (at("burn"), 0.6 * least..=1.05 * most);
    assert!(close.contains(&burned), "{burned} not in {close:?}, {ledger}");
}

/// The call that launches a function of the host is too short for samples, and has its line nevertheless.
#[test]
fn functions_of_the_host_have_lines() {
    const TEST: &str = "functions_of_the_host_have_lines";
    let Some(libraries) = recording::simulated_gpu(TEST) else {
        return;
    };
    if !recording::privileged(TEST) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let output = Command::new(recording::binary())
        .args(["--cuda", "all", "--"])
        .arg(interpreters::any_python())
        .arg(recording::scripts().join("host_functions.py"))
        .arg(&libraries)
        .current_dir(place.path())
        .env("LD_LIBRARY_PATH", &libraries)
        .env("SIMGPU_CUPTI", "13.2")
        .env_remove("SUDO_UID")
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let output = recording::gctrace(&["analyze", "--format", "json", "trace.json"], place.path());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["gpu"]["idle"][0]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["cause"] == "host_function").unwrap();
    let [place] = row["places"].as_array().unwrap().as_slice() else { panic!("{row}") };
    assert_eq!(place["function"], "cudaLaunchHostFunc", "{row}");
    assert_eq!(place["python"]["function"], "run_on_host", "{row}");
    // They are no times off the CPU.
    let main = &report["processes"][0]["main_thread"]["off_cpu"];
    let of_driver = main.as_array().into_iter().flatten().filter(|of| of["reason"] == "driver");
    assert_eq!(of_driver.count(), 0, "{main}");
}
