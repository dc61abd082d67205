//! Kernel tier: a recording with `--nvml-hz`, with a driver's library that returns known figures.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests, outside of #[test]"
)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use test_kit::limit::WithTimeout as _;
use test_kit::recording;
use test_kit::recording::Trace;

const BUSY: &str = "import gc, time\nend = time.monotonic() + 1.6\nwhile time.monotonic() < end:\n    gc.collect()\n    time.sleep(0.05)";

/// The library of the sampler's own tests; `None`, with a skip message, without a C compiler.
fn library(test: &str, folder: &Path, options: &[&str]) -> Option<PathBuf> {
    let path = folder.join("nvml.so");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&path)
        .args(options)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../probes/tests/fake_nvml.c"))
        .status_in_time();
    match built {
        Ok(status) => {
            assert!(status.success(), "cc failed");
            Some(path)
        }
        Err(error) => {
            eprintln!("skipped {test}: cc: {error}");
            None
        }
    }
}

fn record(python: &Path, folder: &Path, library: &Path, options: &[&str]) -> Output {
    Command::new(recording::binary())
        .args(options)
        .args(["--", python.to_str().unwrap(), "-c", BUSY])
        .current_dir(folder)
        .env("GCTRACE_NVML", library)
        .env_remove("SUDO_UID")
        .output_in_time()
        .expect("gctrace runs")
}

/// Length of the recording.
fn seconds(trace: &Trace) -> f64 {
    let (_, header) = trace.named("gctrace_header")[0];
    let ended = trace.end()["ended_ns"].as_f64().unwrap();
    (ended - header["started_ns"].as_f64().unwrap()) / 1e9
}

fn report(folder: &Path) -> Value {
    let output = recording::gctrace(&["analyze", "--format", "json", "trace.json"], folder);
    serde_json::from_slice(&output.stdout).expect("a report")
}

#[test]
fn samples_are_in_the_trace_and_the_report() {
    let test = "samples_are_in_the_trace_and_the_report";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    let Some(library) = library(test, place.path(), &["-DMIG=1"]) else {
        return;
    };
    let output = record(&python, place.path(), &library, &["--nvml-hz", "10"]);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stderr);
    let absence =
        "NVML: not recorded: utilization of GPU 1, split by MIG (the device does not support it)";
    assert_eq!(printed.matches("NVML").count(), 1, "{printed}");
    assert!(printed.contains(absence), "{printed}");

    let trace = Trace::read(&place.path().join("trace.json"));
    trace.assert_nothing_lost();
    assert!(!trace.pauses().is_empty());
    let devices = trace.named("gctrace_gpu");
    let uuids: Vec<_> = devices.iter().map(|(_, gpu)| gpu["uuid"].as_str().unwrap()).collect();
    assert_eq!(uuids, ["GPU-fake-0", "GPU-fake-1"]);
    let samples = trace.named("gctrace_gpu_sample");
    let seconds = seconds(&trace);
    assert!(samples.len() >= 4, "{}", samples.len());
    assert!(samples.len() as f64 <= 2.0 * (10.0 * seconds + 1.0), "10 a second at most");
    for (_, sample) in &samples {
        let gpu = sample["gpu"].as_u64().unwrap();
        let utilization = if gpu == 0 { Some(40) } else { None };
        assert_eq!(sample["utilization_percent"].as_u64(), utilization);
        assert_eq!(sample["memory_used_bytes"].as_u64(), Some((1 + gpu) << 30));
        assert_eq!(sample["power_mw"].as_u64(), Some(300_000 + gpu));
        assert_eq!(sample["throttle_reasons"], serde_json::json!(["sw_power_cap"]));
    }
    let with =
        |member: &str| samples.iter().filter(|(_, sample)| !sample[member].is_null()).count();
    let throughputs = with("pcie_rx_kb_per_s");
    assert!(throughputs >= 2, "each in the first round");
    assert!(throughputs as f64 <= 2.0 * (seconds + 1.0), "once a second at most");
    assert_eq!(with("utilization_percent"), samples.len() / 2);
    let notes = trace.named("gctrace_note");
    assert!(notes.iter().any(|(_, note)| note["message"] == absence));
    let counters = trace.named("GPU 0 power");
    assert_eq!(counters.len(), 1, "it does not change");
    assert_eq!(counters[0].1["W"].as_f64(), Some(300.0));

    let report = report(place.path());
    let gpus = report["gpus"].as_array().unwrap();
    assert_eq!(gpus.len(), 2);
    assert_eq!(gpus[0]["utilization_ratio"]["mean"].as_f64(), Some(0.4));
    assert!(gpus[1]["utilization_ratio"].is_null() && gpus[1]["mig"] == true);
    assert_eq!(gpus[0]["power_w"]["max"].as_f64(), Some(300.0));
    assert_eq!(gpus[0]["throttled_ratio"].as_f64(), Some(1.0));
    assert_eq!(gpus[0]["samples"].as_u64(), Some(samples.len() as u64 / 2));
}

#[test]
fn hz_0_queries_nothing() {
    let test = "hz_0_queries_nothing";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    let Some(library) = library(test, place.path(), &[]) else {
        return;
    };
    let output = record(&python, place.path(), &library, &["--nvml-hz", "0"]);
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&place.path().join("trace.json"));
    assert!(trace.named("gctrace_gpu").is_empty());
    assert!(trace.named("gctrace_gpu_sample").is_empty());
}

#[test]
fn a_missing_driver_is_not_reported() {
    let test = "a_missing_driver_is_not_reported";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    let absent = Path::new("/no/such/libnvidia-ml.so.1");
    let output = record(&python, place.path(), absent, &[]);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!printed.contains("nvidia") && !printed.contains("GPU"), "{printed}");
    assert_eq!(report(place.path())["gpus"], serde_json::json!([]));
}

/// A call that never returns costs the recording only its samples.
#[test]
fn a_driver_that_hangs_does_not_block_the_recording() {
    let test = "a_driver_that_hangs_does_not_block_the_recording";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    let Some(library) = library(test, place.path(), &["-DHANG"]) else {
        return;
    };
    let output = record(&python, place.path(), &library, &[]);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("driver does not respond"), "{printed}");
    let trace = Trace::read(&place.path().join("trace.json"));
    trace.assert_nothing_lost();
    assert!(trace.pauses().len() > 10);
}

/// A user who may run a gctrace with file capabilities must not run code of their own with these.
#[test]
fn a_gctrace_with_capabilities_loads_no_library_of_its_users() {
    let test = "a_gctrace_with_capabilities_loads_no_library_of_its_users";
    let Some((_, place)) = recording::place_for(test) else {
        return;
    };
    let Some(library) = library(test, place.path(), &[]) else {
        return;
    };
    let binary = place.path().join("gctrace");
    std::fs::copy(recording::binary(), &binary).unwrap();
    let capable =
        Command::new("setcap").arg("cap_bpf,cap_perfmon+ep").arg(&binary).status_in_time();
    let open = Command::new("chmod").arg("777").arg(place.path()).status_in_time();
    if ![capable, open].iter().all(|done| done.as_ref().is_ok_and(|status| status.success())) {
        eprintln!("skipped {test}: setcap does not work here");
        return;
    }
    let doctor = |binary: &Path| {
        let output = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"])
            .arg(binary)
            .arg("doctor")
            .env("GCTRACE_NVML", &library)
            .output_in_time()
            .expect("setpriv runs");
        (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (list, printed) = doctor(&binary);
    assert!(!list.contains("Fake GPU"), "{list}");
    assert!(printed.contains("GCTRACE_NVML is ignored"), "{printed}");
    let plain = place.path().join("plain");
    std::fs::copy(recording::binary(), &plain).unwrap();
    let (list, _) = doctor(&plain);
    assert!(list.contains("Fake GPU"), "{list}");
}
