//! Compares what was read from the ring with the truth log.

use super::Ring;
use gctrace_ring::{ApiLayer, GpuMessage, GpuRecord, RingCall};
use std::collections::{BTreeMap, BTreeSet};
use test_kit::simulator::log::{Call, Log};

/// Kind, kernel's name, device, start, end, correlation id, bytes.
pub(crate) type Work = (&'static str, String, u32, u64, u64, u32, u64);

/// The GPU operations in the log.
pub(crate) fn work_of_log(log: &Log) -> BTreeSet<Work> {
    let work = log.work().into_iter().map(|op| {
        let kind = match op.kind.as_str() {
            "kernel" | "collective" => "kernel",
            "memcpy" => "memcpy",
            "memset" => "memset",
            other => panic!("{other}"),
        };
        let name = if kind == "kernel" { op.name.clone() } else { String::new() };
        let bytes = if kind == "kernel" { 0 } else { op.bytes };
        (kind, name, op.device, op.start_ns, op.end_ns, op.correlation, bytes)
    });
    work.collect()
}

/// The GPU operations read from the ring.
pub(crate) fn work_of_ring(ring: &Ring) -> BTreeSet<Work> {
    let mut count = 0;
    let work = ring.records.iter().filter_map(|record| {
        let GpuMessage::Gpu(op) = record else {
            return None;
        };
        let kind = match op.work {
            GpuRecord::Kernel => "kernel",
            GpuRecord::Memcpy | GpuRecord::PeerCopy => "memcpy",
            GpuRecord::Memset => "memset",
            GpuRecord::HostFunction => "host",
        };
        count += 1;
        Some((
            kind,
            ring.text(op.name).to_owned(),
            op.device,
            op.interval.start_ns,
            op.interval.end_ns,
            op.correlation,
            op.bytes,
        ))
    });
    let work: BTreeSet<_> = work.collect();
    assert_eq!(work.len(), count, "no duplicates");
    work
}

/// Function, layer, thread, start, end, correlation id.
pub(crate) type CallSeen = (String, &'static str, u32, u64, u64, u32);

/// Calls of these functions that are not nested in another with their correlation id.
pub(crate) fn calls_of_log(log: &Log, functions: &[&str]) -> BTreeSet<CallSeen> {
    let cuda = || log.calls.iter().filter(|call| call.layer != "nccl");
    let mut together: BTreeMap<(u32, u32), Vec<&Call>> = BTreeMap::new();
    for call in cuda() {
        let key = (call.tid, call.correlation);
        together.entry(key).or_default().push(call);
    }
    let is_outermost = |call: &&Call| {
        let mut others = together[&(call.tid, call.correlation)].iter();
        !others.any(|outer| {
            let encloses = outer.start_ns <= call.start_ns && call.end_ns <= outer.end_ns;
            encloses && outer.function != call.function
        })
    };
    let calls = cuda().filter(|call| functions.contains(&call.function.as_str()));
    let seen = calls.filter(is_outermost).map(|call| {
        let layer = if call.layer == "driver" { "driver" } else { "runtime" };
        let (start_ns, end_ns) = (call.start_ns, call.end_ns);
        (call.function.clone(), layer, call.tid, start_ns, end_ns, call.correlation)
    });
    seen.collect()
}

/// The calls read from the ring.
pub(crate) fn calls_of_ring(ring: &Ring) -> BTreeSet<CallSeen> {
    let mut count = 0;
    let calls = ring.records.iter().filter_map(|record| {
        let GpuMessage::Api(RingCall { interval, layer, tid, correlation, name, .. }) = record
        else {
            return None;
        };
        count += 1;
        let layer = match layer {
            ApiLayer::Driver => "driver",
            ApiLayer::Runtime => "runtime",
        };
        let name = ring.text(*name).to_owned();
        Some((name, layer, *tid, interval.start_ns, interval.end_ns, *correlation))
    });
    let calls: BTreeSet<_> = calls.collect();
    assert_eq!(calls.len(), count, "no duplicates");
    calls
}
