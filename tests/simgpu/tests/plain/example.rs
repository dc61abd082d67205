//! The example program, run by Python on the laid-out libraries: the log contains exactly what it
//! did.

#![expect(clippy::expect_used, reason = "a helper that fails is a failed test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::simulator;
use test_kit::simulator::log::Log;

/// Runs `examples/train_simgpu.py`; `None` if there is no Python.
fn train(arguments: &[&str]) -> Option<Log> {
    if Command::new("python3").arg("--version").output_in_time().is_err() {
        println!("skipped: there is no python3");
        return None;
    }
    let folder = tempfile::tempdir().expect("folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/train_simgpu.py");
    let output = Command::new("python3")
        .arg(script)
        .arg("--library")
        .arg(simulator::libraries())
        .args(["--samples", "100", "--copies", "10", "--layers", "5", "--kernel-us", "20"])
        .args(arguments)
        .env("SIMGPU_LOG", folder.path().join("log"))
        .env("SIMGPU_SHARED", folder.path().join("shared"))
        .output_in_time()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(Log::read(folder.path()))
}

fn count(log: &Log, kind: &str) -> usize {
    log.ops.iter().filter(|op| op.kind == kind).count()
}

/// Per step: two kernels a layer forward, two backward, one loss, one update a layer.
const KERNELS: usize = 5 * 2 + 5 * 2 + 1 + 5;

#[test]
fn every_step_launches_its_kernels() {
    let Some(log) = train(&["--steps", "30", "--sync-every", "10"]) else {
        return;
    };
    assert_eq!(count(&log, "kernel"), 30 * KERNELS);
    assert_eq!(count(&log, "memcpy"), 30);
    assert_eq!(log.calls_of("cudaLaunchKernel").len(), 30 * KERNELS);
    assert_eq!(log.calls_of("cudaStreamSynchronize").len(), 3);
    assert!(log.calls.iter().all(|call| call.result == 0));
    let work = log.work();
    assert!(
        work.windows(2).all(|pair| pair[0].end_ns < pair[1].start_ns),
        "one stream: one at a time"
    );
}

#[test]
fn two_devices_of_one_process_both_work() {
    let Some(log) = train(&["--steps", "10", "--devices", "2", "--streams", "2"]) else {
        return;
    };
    let devices: BTreeSet<u32> = log.work().iter().map(|op| op.device).collect();
    assert_eq!(devices, BTreeSet::from([0, 1]));
    assert_eq!(count(&log, "kernel"), 2 * 10 * KERNELS);
}

#[test]
fn two_ranks_reduce_together() {
    let Some(log) = train(&["--steps", "10", "--ranks", "2"]) else {
        return;
    };
    let pids: BTreeSet<u32> = log.work().iter().map(|op| op.pid).collect();
    assert_eq!(pids.len(), 2);
    let reductions = log.ops.iter().filter(|op| op.kind == "collective");
    let ends: Vec<u64> = reductions.map(|op| op.end_ns).collect();
    assert_eq!(ends.len(), 20);
    assert_eq!(ends.iter().collect::<BTreeSet<_>>().len(), 10, "in pairs");
}
