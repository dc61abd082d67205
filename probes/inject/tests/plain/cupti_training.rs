//! Training in Python, with several ranks, as gctrace sees it: all work of every process, with
//! output unchanged.

#![expect(clippy::expect_used, reason = "a helper that fails is a failed test")]

use crate::cupti_harness;

use cupti_harness::{Recorded, injected, options, record, truth};
use gctrace_ring::{CuptiState, InjectOptions};
use std::path::Path;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::simulator;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/train_simgpu.py");

/// `None`, reported in the output, if there is no Python.
fn train(arguments: &[&str], options: &InjectOptions) -> Option<Recorded> {
    if Command::new("python3").arg("-c").arg("").status_in_time().is_err() {
        eprintln!("skipped: there is no python3");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("python3");
    command
        .args([SCRIPT, "--library"])
        .arg(simulator::libraries())
        .args(["--steps", "20", "--samples", "2000"])
        .args(arguments)
        .env("SIMGPU_LOG", folder.path().join("log"))
        .env("SIMGPU_SHARED", folder.path().join("shared"));
    injected(&mut command, folder.path(), options);
    command.env("LD_PRELOAD", cupti_harness::library());
    let recorded = record(command, Path::new(folder.path()), |_, _| {});
    assert!(recorded.status.success(), "{}", recorded.output);
    assert!(recorded.output.contains("rank 0: 20 steps in"), "{}", recorded.output);
    Some(recorded)
}

/// Each ring contains the work of its process.
fn check(recorded: &Recorded, processes: usize) {
    assert_eq!(recorded.rings.len(), processes);
    for ring in &recorded.rings {
        assert!(matches!(ring.states()[..], [(CuptiState::Recording, 22, _)]));
        let mut log = recorded.log.clone();
        log.ops.retain(|op| op.pid == ring.pid);
        let (truth, seen) = (truth::work_of_log(&log), truth::work_of_ring(ring));
        assert!(truth.len() > 1000);
        let missing = truth.difference(&seen).count();
        assert_eq!((missing, seen.len()), (0, truth.len()));
        assert_eq!((ring.lost, ring.dropped()), (0, 0));
    }
}

#[test]
fn several_streams_and_devices() {
    if let Some(recorded) = train(&["--streams", "3", "--devices", "2"], &options()) {
        check(&recorded, 1);
    }
}

#[test]
fn several_ranks() {
    // The first process only starts the others: it has no CUDA, and no ring.
    if let Some(recorded) = train(&["--ranks", "3"], &options()) {
        check(&recorded, 3);
    }
}
