//! Kernel tier (it creates an ordinary user): GPU work recorded in-process, without any capability,
//! against the simulated GPU's own log, for each version of CUPTI's records and each of its faults.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use gctrace_event::Record;
use gctrace_event::read::{DecodedItem, TraceReader};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;
use test_kit::limit::WithTimeout as _;
use test_kit::recording::Trace;
use test_kit::recording::user::OrdinaryUser;
use test_kit::{interpreters, recording};

/// An operation: kind, device, stream, start, end.
type Operation = (String, u64, u64, u64, u64);

/// Trains on two streams, with these settings of the simulator, as a user without privileges.
fn train(
    test: &str,
    settings: &[(&str, &str)],
    options: &[&str],
) -> Option<(OrdinaryUser, Output)> {
    train_for(60, test, settings, options)
}

/// The same for so many steps.
fn train_for(
    steps: u32,
    test: &str,
    settings: &[(&str, &str)],
    options: &[&str],
) -> Option<(OrdinaryUser, Output)> {
    let (libraries, user) = (recording::simulated_gpu(test)?, OrdinaryUser::for_test(test)?);
    let script = recording::scripts().join("../../examples/train_simgpu.py");
    let examples = script.parent().unwrap().canonicalize().unwrap();
    let mut command = user.command(&[&libraries, &examples], &user.file("bin/gctrace"));
    command
        .args(["--mode", "inject", "-o", "trace.json"])
        .args(options)
        .arg("--")
        .arg(interpreters::any_python())
        .arg(examples.join("train_simgpu.py"))
        .arg("--library")
        .arg(&libraries)
        .args([
            "--steps",
            &steps.to_string(),
            "--streams",
            "2",
            "--kernel-us",
            "60",
            "--sync-every",
            "4",
        ])
        .env("LD_LIBRARY_PATH", &libraries)
        .env("SIMGPU_LOG", user.file("log"))
        .env("SIMGPU_SHARED", user.file("shared"))
        .envs(settings.iter().copied());
    let output = command.output_in_time().unwrap();
    Some((user, output))
}

/// `op,kind,name,pid,device,stream handle,stream id,launched,start,end,..` of all logs of a folder.
fn logged(folder: &Path) -> Vec<Operation> {
    let mut operations = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "csv") {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        for line in text.lines().filter(|line| line.starts_with("op,")) {
            let fields: Vec<&str> = line.split(',').collect();
            let number = |at: usize| fields[at].parse::<u64>().unwrap();
            let kind = match fields[1] {
                "kernel" => "kernel",
                "memcpy" => "gpu_memcpy",
                "memset" => "gpu_memset",
                "host" => "gpu_host_function",
                _ => continue,
            };
            operations.push((kind.to_owned(), number(4), number(6), number(8), number(9)));
        }
    }
    operations.sort_unstable();
    operations
}

fn recorded(trace: &Trace) -> Vec<Operation> {
    let mut operations: Vec<Operation> = trace.events.iter().filter_map(operation).collect();
    operations.sort_unstable();
    operations
}

fn operation(event: &Value) -> Option<Operation> {
    let category = event["cat"].as_str()?;
    let start_ns = || recording::nanoseconds(&event["ts"]);
    let kinds = ["kernel", "gpu_memcpy", "gpu_memset", "gpu_host_function"];
    kinds.contains(&category).then(|| {
        (
            category.to_owned(),
            event["args"]["device"].as_u64().unwrap(),
            event["args"]["stream"].as_u64().unwrap(),
            start_ns(),
            start_ns() + recording::nanoseconds(&event["dur"]),
        )
    })
}

/// Each operation was enqueued by a call of the trace that started before it.
fn every_operation_has_its_call(trace: &Trace) {
    let mut calls = BTreeMap::new();
    for event in &trace.events {
        if matches!(event["cat"].as_str(), Some("cuda_runtime" | "cuda_driver"))
            && let Some(correlation) = event["args"]["correlation"].as_u64()
        {
            let twice = calls.insert(correlation, event);
            assert!(twice.is_none(), "one call of each id: {event} {twice:?}");
        }
    }
    for event in trace.events.iter().filter(|event| operation(event).is_some()) {
        let correlation = event["args"]["correlation"].as_u64().unwrap();
        let call = calls[&correlation];
        assert!(recording::nanoseconds(&call["ts"]) <= recording::nanoseconds(&event["ts"]));
    }
}

fn notes(trace: &Trace) -> Vec<String> {
    let notes = trace.named("gctrace_note").into_iter();
    notes.map(|(_, note)| note["message"].as_str().unwrap().to_owned()).collect()
}

/// A recorder that may write few bytes a day: what is not within a time of which it only counted is there with
/// its true times, and with the counts it is all.
#[test]
fn a_recorder_counts_what_it_does_not_write() {
    let test = "a_recorder_counts_what_it_does_not_write";
    // Written: a thousand records, and the last three seconds.
    let options = ["--keep", "10m", "--per-day", "1MB"];
    let Some((user, output)) = train_for(800, test, &[], &options) else { return };
    assert!(output.status.success(), "{output:?}");
    let (mut seen, mut omitted) = (Vec::new(), Vec::new());
    let mut reader = TraceReader::open(&user.file("trace.json/000001.json.zst")).unwrap();
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            DecodedItem::Record(Record::GpuOp(op)) => {
                let (device, stream) = (u64::from(op.device), op.stream);
                let kind = op.kind.category().to_owned();
                seen.push((kind, device, stream, op.start_ns, op.end_ns));
            }
            DecodedItem::Record(Record::OmittedGpuWork(work)) => omitted.push(work),
            _ => {}
        }
    }
    seen.sort_unstable();
    let truth = logged(user.folder.path());
    let counted: u64 = omitted.iter().map(|work| work.operations.count.0).sum();
    assert_eq!(seen.len() as u64 + counted, truth.len() as u64);
    assert!(counted > 1000, "{counted} of {}", truth.len());
    assert!(seen.iter().all(|op| truth.binary_search(op).is_ok()));
    let is_omitted =
        |op: &Operation| omitted.iter().any(|work| work.since_ns <= op.3 && op.4 <= work.until_ns);
    let whole = truth.iter().filter(|op| !is_omitted(op));
    let missing = whole.clone().find(|op| seen.binary_search(op).is_err());
    assert_eq!(missing, None, "{} of {}", seen.len(), truth.len());
    assert!(whole.count() > 1000, "{} of {}", seen.len(), truth.len());
}

fn whole(test: &str, version: &str) {
    let Some((user, output)) = train(test, &[("SIMGPU_CUPTI", version)], &[]) else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&user.file("trace.json"));
    trace.assert_nothing_lost();
    let (seen, truth) = (recorded(&trace), logged(user.folder.path()));
    assert!(truth.len() > 1000, "{}", truth.len());
    let difference = seen.iter().zip(&truth).find(|(seen, truth)| seen != truth);
    assert_eq!(difference, None, "first difference");
    assert_eq!(seen.len(), truth.len());
    every_operation_has_its_call(&trace);
    assert!(!trace.pauses().is_empty());
    println!("{test}: {} operations, each with its true times", seen.len());
}

/// The program behaves as without gctrace, its collections are recorded, and one sentence states
/// what is missing.
fn fault(test: &str, fault: &str, word: &str) {
    let Some((user, output)) = train(test, &[("SIMGPU_FAULT", fault)], &[]) else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&user.file("trace.json"));
    assert!(!trace.pauses().is_empty());
    let reported = notes(&trace);
    let about = reported.iter().filter(|note| note.contains(word)).count();
    assert_eq!(about, 1, "{reported:?}");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(printed.matches(word).count(), 1, "{printed}");
}

#[test]
fn records_of_cupti_11_8() {
    whole("records_of_cupti_11_8", "11.8");
}

#[test]
fn records_of_cupti_12_4() {
    whole("records_of_cupti_12_4", "12.4");
}

#[test]
fn records_of_cupti_13_0() {
    whole("records_of_cupti_13_0", "13.0");
}

#[test]
fn records_of_cupti_13_2() {
    whole("records_of_cupti_13_2", "13.2");
}

#[test]
fn records_of_a_future_cupti() {
    whole("records_of_a_future_cupti", "future");
}

#[test]
fn another_profiler_subscribed() {
    fault("another_profiler_subscribed", "subscribe-busy", "CUPTI");
}

#[test]
fn cupti_without_driver() {
    fault("cupti_without_driver", "cupti-15", "CUPTI");
}

#[test]
fn cupti_with_unknown_error() {
    fault("cupti_with_unknown_error", "cupti-999", "CUPTI");
}

#[test]
fn left_to_the_programs_own_profiler() {
    let test = "left_to_the_programs_own_profiler";
    let Some((user, output)) = train(test, &[], &["--gpu-yield"]) else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&user.file("trace.json"));
    assert!(recorded(&trace).is_empty());
    assert!(!trace.pauses().is_empty());
}

/// CUPTI's own clock is an hour off: timestamps are calibrated, so they are near the truth, and a
/// note states that.
#[test]
fn another_clock() {
    let test = "another_clock";
    let Some((user, output)) = train(test, &[("SIMGPU_FAULT", "wrong-clock")], &[]) else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&user.file("trace.json"));
    let (seen, truth) = (recorded(&trace), logged(user.folder.path()));
    assert_eq!(seen.len(), truth.len());
    let off = seen.iter().zip(&truth).map(|(seen, truth)| seen.3.abs_diff(truth.3));
    let worst = off.max().unwrap();
    println!("{test}: at most {worst} ns off");
    // Far more than calibration is off, far less than the clock.
    assert!(worst < 10_000_000, "{worst} ns");
    assert!(notes(&trace).iter().any(|note| note.contains("calibrated")));
}

#[test]
fn dropped_records_are_counted() {
    let test = "dropped_records_are_counted";
    let Some((user, output)) = train(test, &[("SIMGPU_FAULT", "dropped-records")], &[]) else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&user.file("trace.json"));
    let (seen, truth) = (recorded(&trace).len(), logged(user.folder.path()).len());
    assert!(seen < truth, "the simulator has dropped some");
    let lost = trace.end()["lost"].as_object().unwrap();
    let dropped: u64 = lost.values().filter_map(Value::as_u64).sum();
    // Calls are dropped as well.
    assert!(dropped >= (truth - seen) as u64, "{lost:?}, {seen} of {truth}");
}

#[test]
fn a_crash_at_exit_is_the_programs_own() {
    let test = "a_crash_at_exit_is_the_programs_own";
    let Some((user, output)) = train(test, &[("SIMGPU_FAULT", "crash-at-exit")], &[]) else {
        return;
    };
    assert!(!output.status.success(), "{output:?}");
    let trace = Trace::read(&user.file("trace.json"));
    assert!(!trace.pauses().is_empty());
    assert!(!recorded(&trace).is_empty());
}

/// The idle ledger of a program whose stream waits for functions of the host, and for how long it did by the
/// simulator's own log, in ns.
fn of_host_functions(test: &str, version: &str) -> Option<(Value, u64)> {
    let libraries = recording::simulated_gpu(test)?;
    let place = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(recording::binary())
        .args(["--mode", "inject", "--"])
        .arg(interpreters::any_python())
        .arg(recording::scripts().join("host_functions.py"))
        .arg(&libraries)
        .current_dir(place.path())
        .env("LD_LIBRARY_PATH", &libraries)
        .env("SIMGPU_CUPTI", version)
        .env("SIMGPU_LOG", place.path().join("log"))
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&place.path().join("trace.json"));
    trace.assert_nothing_lost();
    every_operation_has_its_call(&trace);
    let truth = logged(place.path());
    let is_function = |operation: &&Operation| operation.0 == "gpu_host_function";
    assert_eq!(truth.iter().filter(is_function).count(), 60);
    let seen = recorded(&trace);
    let is_known = |operation: &&Operation| version == "13.2" || !is_function(operation);
    assert!(seen.iter().eq(truth.iter().filter(is_known)), "{seen:?}");
    let output = recording::gctrace(&["analyze", "--format", "json", "trace.json"], place.path());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let functions = truth.iter().filter(is_function);
    let waited_ns = functions.map(|(.., start_ns, end_ns)| end_ns - start_ns).sum();
    Some((report["gpu"]["idle"][0].clone(), waited_ns))
}

/// The row of a cause, which the time of is within 1 ms or 5 % of the truth; its first place is the launch of the
/// function.
fn row_of_functions<'a>(ledger: &'a Value, cause: &str, truth_ns: u64) -> &'a Value {
    let rows = ledger["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["cause"] == cause).unwrap();
    let time_ns = row["time_ns"].as_u64().unwrap();
    let most_ns = (truth_ns / 20).max(1_000_000);
    assert!(time_ns.abs_diff(truth_ns) <= most_ns, "{time_ns} for {truth_ns}: {ledger}");
    assert_eq!(row["places"][0]["function"], "cudaLaunchHostFunc", "{ledger}");
    row
}

#[test]
fn functions_of_the_host_are_a_cause() {
    let Some((ledger, waited_ns)) = of_host_functions("functions_of_the_host_are_a_cause", "13.2")
    else {
        return;
    };
    let row = row_of_functions(&ledger, "host_function", waited_ns);
    // One stream: without them it would be as much shorter.
    let saves_ns = row["saves_ns"].as_u64().unwrap();
    assert!(saves_ns.abs_diff(waited_ns) <= waited_ns / 20, "{saves_ns}: {ledger}");
    assert!(row["remedy"].is_string(), "{ledger}");
}

/// Without their times it is unknown what the stream waited for: nothing is promised.
#[test]
fn functions_of_the_host_without_times_are_no_cause() {
    const TEST: &str = "functions_of_the_host_without_times_are_no_cause";
    let Some((ledger, waited_ns)) = of_host_functions(TEST, "12.4") else {
        return;
    };
    let row = row_of_functions(&ledger, "blocked", waited_ns);
    assert!(row["saves_ns"].is_null() && row["places"][0]["saves_ns"].is_null(), "{ledger}");
    assert!(row["remedy"].is_null(), "{ledger}");
}

/// In-process the requests for batches have lengths: what the GPU idles for meanwhile is the data.
#[test]
fn a_slow_loader_is_the_cause() {
    const TEST: &str = "a_slow_loader_is_the_cause";
    // `sys.monitoring`: from 3.12 on.
    let (Some(libraries), Some(python)) =
        (recording::simulated_gpu(TEST), interpreters::python(TEST, "pyenv-3.12"))
    else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let truth = place.path().join("truth.json");
    let output = std::process::Command::new(recording::binary())
        .args(["--mode", "inject", "--"])
        .arg(&python.path)
        .arg(recording::scripts().join("idle_loader.py"))
        .args([&libraries, &truth])
        .current_dir(place.path())
        .env("LD_LIBRARY_PATH", &libraries)
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let truth = recording::json(&truth);
    let trace = Trace::read(&place.path().join("trace.json"));
    trace.assert_nothing_lost();
    let marks = trace.events.iter().filter(|event| {
        event["name"] == "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    });
    // Those that raise too.
    assert_eq!(marks.count() as u64, truth["asked"].as_u64().unwrap());
    let output = recording::gctrace(&["analyze", "--format", "json", "trace.json"], place.path());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ledger = &report["gpu"]["idle"][0];
    let time = |cause: &str| {
        let rows = ledger["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["cause"] == cause);
        row.map_or(0.0, |row| row["time_ns"].as_f64().unwrap())
    };
    let waited = truth["waited"].as_f64().unwrap();
    // The device's time starts with the first kernel, after the first batch.
    let share = time("data") / waited;
    assert!((0.9..=1.02).contains(&share), "{share} of {waited} ns, {ledger}");
    assert!(time("host") < waited / 2.0, "{ledger}");
}
