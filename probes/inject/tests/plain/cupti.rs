//! GPU work through the injected library against the truth log, for all versions of CUPTI's records.

#![expect(clippy::panic, reason = "a helper that fails is a failed test")]

use crate::cupti_harness;

use cupti_harness::{Recorded, options, recorded, truth, work};
use gctrace_ring::{CuptiState, GpuMessage, InjectOptions};
use std::collections::BTreeSet;

/// Rounds per thread: enough for several buffers and flushes.
const ROUNDS: usize = 1500;

fn check(recorded: &Recorded, version: i64) {
    assert!(recorded.status.success(), "{}", recorded.output);
    let ring = recorded.ring();
    let [(CuptiState::Recording, printed, file)] = ring.states().as_slice()[..] else {
        panic!("{:?}", ring.states());
    };
    assert_eq!(printed, version);
    assert!(file.contains("libcupti.so.1"), "{file}");
    let (truth, seen) = (truth::work_of_log(&recorded.log), truth::work_of_ring(ring));
    assert_eq!(truth.len(), 3 * 4 * ROUNDS + 3 * 40);
    assert!(truth == seen, "{} of {}", truth.intersection(&seen).count(), truth.len());
    let truth = truth::calls_of_log(&recorded.log, &work::FUNCTIONS);
    let seen = truth::calls_of_ring(ring);
    let known = |call: &truth::CallSeen| work::FUNCTIONS.contains(&call.0.as_str());
    let (known, rest) = seen.into_iter().partition::<BTreeSet<_>, _>(known);
    let only = |these: &BTreeSet<_>, those: &BTreeSet<_>| these.difference(those).next().cloned();
    let (missing, too_many) = (only(&truth, &known), only(&known, &truth));
    assert_eq!((missing, too_many), (None, None), "{} lost, {} dropped", ring.lost, ring.dropped());
    assert!(rest.iter().all(|call| call.0 != "cudaGetDevice"));
    // A function that only CUPTI names.
    let creations = rest.iter().filter(|call| call.0 == "cudaStreamCreateWithFlags");
    assert_eq!(creations.count(), 4);
    let events = ring.records.iter().filter(|record| matches!(record, GpuMessage::Event { .. }));
    assert_eq!(events.count(), 3 * ROUNDS);
    let waits = ring.records.iter().filter(|record| matches!(record, GpuMessage::Sync { .. }));
    assert!(waits.count() >= 8);
    assert_eq!((ring.lost, ring.dropped()), (0, 0));
    // Every 250 ms, and at the end: on a fast machine the work takes less.
    assert!(!ring.flushed_ns().is_empty());
}

fn version(test: &str, name: &str, api: i64) {
    let settings = [("SIMGPU_CUPTI", name)];
    let play = |_: &std::path::Path| work::everything(ROUNDS);
    if let Some(recorded) = recorded(test, &settings, &options(), play) {
        check(&recorded, api);
    }
}

#[test]
fn all_work_of_11_8() {
    version("all_work_of_11_8", "11.8", 18);
}

#[test]
fn all_work_of_12_4() {
    version("all_work_of_12_4", "12.4", 22);
}

#[test]
fn all_work_of_13_0() {
    version("all_work_of_13_0", "13.0", 130_001);
}

#[test]
fn all_work_of_future_versions() {
    version("all_work_of_future_versions", "future", 990_000);
}

#[test]
fn only_waits_leaves_out_launches() {
    let test = "only_waits_leaves_out_launches";
    let options = InjectOptions { only_waits: true, ..options() };
    let Some(recorded) = recorded(test, &[], &options, |_| work::everything(10)) else {
        return;
    };
    let ring = recorded.ring();
    assert_eq!(truth::work_of_ring(ring), truth::work_of_log(&recorded.log));
    let calls = truth::calls_of_ring(ring);
    assert!(calls.iter().all(|call| !call.0.contains("Launch")), "{calls:?}");
    let waits = work::FUNCTIONS.iter().copied().filter(|name| !name.contains("Launch"));
    let truth = truth::calls_of_log(&recorded.log, &waits.collect::<Vec<_>>());
    assert!(truth.is_subset(&calls) && truth.len() > 60);
}
