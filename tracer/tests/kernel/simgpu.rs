//! Kernel tier: a training program on the simulated GPU, two processes with a device each, against
//! the simulator's own log of calls.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use test_kit::limit::WithTimeout as _;
use test_kit::recording::Trace;
use test_kit::{interpreters, recording};

/// A call: name, stream, bytes, first number of the grid.
type Call = (String, u64, u64, u64);
/// Outermost calls by process and thread, in order.
type Calls = BTreeMap<(u64, u64), Vec<Call>>;

/// The outermost calls of a log. `call,function,layer,pid,tid,begin,end,stream,bytes,gx,..`
fn logged(path: &Path, calls: &mut Calls) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("call,"))
        .map(|line| line.split(',').collect())
        .collect();
    let number = |text: &str| text.parse::<u64>().unwrap();
    lines.sort_by_key(|fields| number(fields[5]));
    let mut open_until: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for fields in lines {
        let thread = (number(fields[3]), number(fields[4]));
        let (begin, end) = (number(fields[5]), number(fields[6]));
        let until = open_until.entry(thread).or_default();
        if begin < *until {
            continue;
        }
        *until = end;
        let stream = u64::from_str_radix(fields[7].trim_start_matches("0x"), 16).unwrap();
        let call = (fields[1].to_owned(), stream, number(fields[8]), number(fields[9]));
        calls.entry(thread).or_default().push(call);
    }
}

fn recorded(trace: &Trace) -> Calls {
    let mut calls = Calls::new();
    for event in &trace.events {
        let category = event["cat"].as_str().unwrap_or_default();
        if matches!(category, "cuda_driver" | "cuda_runtime" | "nccl") {
            let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
            let thread = (number(&event["pid"]), number(&event["tid"]));
            let args = &event["args"];
            let call = (
                event["name"].as_str().unwrap().to_owned(),
                number(&args["stream"]),
                number(&args["bytes"]),
                number(&args["grid"][0]),
            );
            calls.entry(thread).or_default().push(call);
        }
    }
    calls
}

/// Trains on the simulated GPU under gctrace, with these settings of the simulator; its folder
/// contains trace and logs.
fn train(
    test: &str,
    options: &[&str],
    training: &[&str],
    settings: &[(&str, &str)],
) -> Option<(Trace, TempDir)> {
    let libraries = recording::simulated_gpu(test).filter(|_| recording::privileged(test))?;
    let place = tempfile::tempdir().unwrap();
    let output = Command::new(recording::binary())
        .args(options)
        .arg("--")
        .arg(interpreters::any_python())
        .arg(recording::scripts().join("../../examples/train_simgpu.py"))
        .arg("--library")
        .arg(&libraries)
        .args(["--steps", "100", "--streams", "2", "--kernel-us", "60", "--sync-every", "4"])
        .args(training)
        .current_dir(place.path())
        .env("SIMGPU_LOG", place.path().join("log"))
        .env("SIMGPU_SHARED", place.path().join("shared"))
        .env("LD_LIBRARY_PATH", &libraries)
        .envs(settings.iter().copied())
        .env_remove("SUDO_UID")
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&place.path().join("trace.json"));
    trace.assert_nothing_lost();
    Some((trace, place))
}

/// The calls of all logs of a folder.
fn truth(folder: &Path) -> Calls {
    let mut truth = Calls::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "csv") {
            logged(&path, &mut truth);
        }
    }
    truth
}

#[test]
fn two_processes_with_two_devices() {
    let test = "two_processes_with_two_devices";
    let options = ["--mode", "ebpf", "--cuda", "all"];
    let training = ["--devices", "2", "--ranks", "2"];
    let Some((trace, place)) = train(test, &options, &training, &[]) else {
        return;
    };
    let seen = recorded(&trace);
    let mut truth = truth(place.path());
    // Calls that gctrace does not probe (cudaSetDevice, ...) are in the log too.
    let probed = |name: &str| {
        let table = gctrace_probes::cuda::TABLE;
        table.iter().any(|function| function.name == name)
    };
    for calls in truth.values_mut() {
        calls.retain(|(name, ..)| probed(name));
    }
    truth.retain(|_, calls| !calls.is_empty());
    assert_eq!(truth.len(), 2, "two processes with a launching thread each");
    assert_eq!(seen.keys().collect::<Vec<_>>(), truth.keys().collect::<Vec<_>>());
    for (thread, calls) in &truth {
        let pairs = seen[thread].iter().zip(calls);
        let difference = pairs.clone().position(|(seen, call)| seen != call);
        let around = difference.map(|at| (&seen[thread][at], &calls[at]));
        assert_eq!(around, None, "thread {thread:?}, call {difference:?}");
        assert_eq!(seen[thread].len(), calls.len(), "thread {thread:?}");
        println!("{test}: {thread:?}: {} calls, each recorded once", calls.len());
    }
}

/// Launches of a trace: those that CUPTI reported, and those that probes saw.
fn launches(trace: &Trace) -> (usize, usize) {
    let called = |event: &&serde_json::Value| {
        event["cat"] == "cuda_runtime" && event["name"] == "cudaLaunchKernel"
    };
    let (reported, probed): (Vec<_>, Vec<_>) =
        trace.events.iter().filter(called).partition(|event| event["args"]["correlation"].is_u64());
    (reported.len(), probed.len())
}

/// Cost of the probes on launches, if there were any.
fn probes_on_launches(trace: &Trace) -> Option<u64> {
    let probes = trace.end()["probes"].as_array().unwrap();
    let launches = probes.iter().find(|probe| probe["probe"] == "launches");
    launches.and_then(|probe| probe["hits"].as_u64())
}

/// As root with CUDA: collections by probes, GPU work and calls by CUPTI, and launches are not
/// probed as well.
#[test]
fn calls_are_left_to_cupti() {
    let test = "calls_are_left_to_cupti";
    let Some((trace, place)) = train(test, &["--cuda", "all"], &[], &[]) else {
        return;
    };
    assert_eq!(trace.named("gctrace_header")[0].1["mode"], "ebpf");
    let truth = truth(place.path());
    let launched = truth.values().flatten().filter(|call| call.0 == "cudaLaunchKernel");
    let launched = launched.count();
    assert!(launched > 0);
    assert_eq!(launches(&trace), (launched, 0));
    assert_eq!(probes_on_launches(&trace), None);
    let kernels = trace.events.iter().filter(|event| event["cat"] == "kernel");
    assert!(kernels.count() >= launched, "graphs have kernels too");
    assert!(trace.pauses().iter().all(|pause| pause.reason != "unknown"));
}

/// If CUPTI is unavailable, the probes record the calls from then on, which is reported once.
#[test]
fn without_cupti_calls_are_probed() {
    let test = "without_cupti_calls_are_probed";
    let settings = [("SIMGPU_FAULT", "subscribe-busy")];
    let Some((trace, _place)) = train(test, &["--cuda", "all"], &["--steps", "400"], &settings)
    else {
        return;
    };
    let (reported, probed) = launches(&trace);
    assert_eq!(reported, 0);
    assert!(probed > 0);
    assert!(probes_on_launches(&trace).is_some_and(|hits| hits >= probed as u64));
    let notes = trace.named("gctrace_note");
    let printed =
        notes.iter().filter(|(_, note)| note["message"].as_str().unwrap().contains("CUPTI"));
    assert_eq!(printed.count(), 1, "{notes:?}");
}
