//! Gaps of devices and what the host did in them, against a count per tick; launching ahead.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::Analysis;
use gctrace_analysis::report::{DeviceReport, GapReport, GpuWorkReport, HostTime};
use gctrace_event::read::{DecodedItem, TraceCompletion};
use gctrace_event::{Annotation, CudaCall, CudaLayer, GpuOp, GpuOpKind, Pause, Record};
use proptest::prelude::*;
use test_kit::reports;

const PID: u32 = 1;
const LOADING: &str = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";

fn op(device: u32, stream: u64, start_ns: u64, end_ns: u64, correlation: u64) -> GpuOp {
    GpuOp {
        pid: Some(PID),
        device,
        stream,
        kind: GpuOpKind::Kernel,
        name: format!("kernel {correlation}"),
        start_ns,
        end_ns,
        correlation: Some(correlation),
        ..GpuOp::default()
    }
}

fn call(
    tid: u32,
    function: &'static str,
    start_ns: u64,
    end_ns: u64,
    correlation: u64,
) -> CudaCall {
    CudaCall {
        pid: PID,
        tid,
        layer: CudaLayer::Runtime,
        function: function.into(),
        start_ns,
        end_ns,
        correlation: Some(correlation),
        ..CudaCall::default()
    }
}

fn pause(tid: u32, start_ns: u64, end_ns: u64) -> Pause {
    Pause { tid, start_ns, end_ns, ..reports::pause(PID, 0, 0) }
}

fn loading(tid: u32, start_ns: u64, end_ns: u64) -> Record {
    Record::Annotation(Annotation { pid: PID, tid, name: LOADING.to_owned(), start_ns, end_ns })
}

fn work(records: Vec<Record>) -> GpuWorkReport {
    let mut analysis = Analysis::default();
    analysis.begin_trace("t.json");
    for record in records {
        analysis.add(DecodedItem::Record(record));
    }
    analysis.end_trace(TraceCompletion::default(), None);
    analysis.settle();
    analysis.report().gpu.unwrap()
}

fn only_gap(records: Vec<Record>) -> GapReport {
    let gaps = work(records).gaps.unwrap();
    assert_eq!(gaps.longest.len(), 1, "{:?}", gaps.longest);
    gaps.longest.into_iter().next().unwrap()
}

/// A gap from 100 to 200, ended by an operation that thread 7 launches at 190.
fn gap_with(more: Vec<Record>) -> GapReport {
    let mut records = vec![
        Record::GpuOp(op(0, 7, 50, 100, 1)),
        Record::GpuOp(op(0, 7, 200, 220, 2)),
        Record::CudaCall(call(7, "cudaLaunchKernel", 40, 45, 1)),
        Record::CudaCall(call(7, "cudaLaunchKernel", 190, 195, 2)),
    ];
    records.extend(more);
    only_gap(records)
}

#[test]
fn one_gap_is_named() {
    let gap = gap_with(Vec::new());
    assert_eq!((gap.start_ns, gap.after_first_ns, gap.duration_ns), (100, 50, 100));
    assert_eq!((gap.before.as_str(), gap.after.as_str()), ("kernel 1", "kernel 2"));
    assert_eq!((gap.call.as_deref(), gap.tid), (Some("cudaLaunchKernel"), Some(7)));
    let expected =
        HostTime { launch_under_way_ns: 10, launching_late_ns: 90, ..HostTime::default() };
    assert_eq!(gap.host, expected);
}

#[test]
fn classes_in_their_order() {
    let gap = gap_with(vec![
        Record::CudaCall(call(7, "cudaStreamSynchronize", 90, 120, 3)),
        Record::Pause(pause(7, 125, 140)),
        Record::Pause(pause(8, 135, 150)),
        Record::CudaCall(call(7, "cudaMalloc", 148, 155, 4)),
        Record::CudaCall(call(9, "cudaDeviceSynchronize", 100, 200, 5)),
        loading(7, 140, 170),
        loading(8, 100, 200),
    ]);
    let expected = HostTime {
        gc_ns: 15,
        synchronizing_ns: 20,
        copy_or_allocation_ns: 7,
        gc_on_other_thread_ns: 8,
        waiting_for_data_ns: 15,
        launch_under_way_ns: 10,
        launching_late_ns: 25,
        unknown_ns: 0,
    };
    assert_eq!(gap.host, expected);
    assert_eq!(gap.collecting, [7, 8]);
}

#[test]
fn only_pauses_are_known_without_a_call() {
    let gap = only_gap(vec![
        Record::GpuOp(op(0, 7, 0, 100, 1)),
        Record::GpuOp(op(0, 7, 200, 220, 2)),
        Record::Pause(pause(7, 150, 250)),
    ]);
    let expected = HostTime { gc_on_other_thread_ns: 50, unknown_ns: 50, ..HostTime::default() };
    assert_eq!((gap.host, gap.tid, gap.call), (expected, None, None));
}

#[test]
fn one_operation_or_one_of_no_length_leaves_no_gap() {
    for end_ns in [500, 900] {
        let work = work(vec![Record::GpuOp(op(0, 7, 500, end_ns, 1))]);
        let [device] = work.devices.as_slice() else {
            panic!("one device");
        };
        let span_ns = end_ns - 500;
        assert_eq!((device.span_ns, device.busy_ns, device.idle_ns), (span_ns, span_ns, 0));
        assert_eq!(device.busy_ratio.is_some(), span_ns > 0);
        assert_eq!(work.gaps.unwrap().count, 0);
        assert!(work.launching.is_none(), "no call is known");
    }
}

#[test]
fn latency_and_depth() {
    let work = work(vec![
        Record::CudaCall(call(7, "cudaLaunchKernel", 0, 5, 1)),
        Record::CudaCall(call(7, "cudaLaunchKernel", 10, 15, 2)),
        Record::CudaCall(call(7, "cudaGraphLaunch", 20, 25, 3)),
        Record::GpuOp(op(0, 7, 100, 200, 1)),
        Record::GpuOp(op(0, 7, 200, 250, 2)),
        Record::GpuOp(op(0, 7, 300, 350, 3)),
        Record::GpuOp(op(0, 7, 400, 500, 3)),
        Record::GpuOp(op(0, 7, 450, 500, 99)),
    ]);
    let launching = work.launching.unwrap();
    let [device] = launching.devices.as_slice() else {
        panic!("one device");
    };
    let latency = device.latency;
    assert_eq!((latency.count, device.left_out), (3, 2));
    assert_eq!((latency.min_ns, latency.p50_ns, latency.max_ns), (100, 190, 280));
    // Two wait until 200, one until 300; then nothing does.
    let waiting = device.waiting.as_ref().unwrap();
    assert_eq!((waiting.max, waiting.zero_ns), (2, 200));
    assert!((waiting.mean - 300.0 / 400.0).abs() < 1e-9);
    let unfinished = device.unfinished.as_ref().unwrap();
    assert_eq!((unfinished.max, unfinished.zero_ns), (3, 150));
}

/// Sums do not overflow, whatever the reader accepts.
#[test]
fn absurd_times_are_survived() {
    let mut records = Vec::new();
    for (n, start) in (1..).zip([0, 1, 5, u64::MAX / 3, u64::MAX - 1]) {
        for end in [start, start + 1, u64::MAX] {
            for device in 0..3 {
                records.push(Record::GpuOp(op(device, 7, start, end, n)));
            }
            records.push(Record::CudaCall(call(7, "cudaLaunchKernel", start, end, n)));
            records.push(Record::Pause(pause(7, start, end)));
            records.push(loading(7, start, end));
            records.push(Record::Annotation(Annotation {
                pid: PID,
                tid: 7,
                name: format!("ProfilerStep#{n}"),
                start_ns: start,
                end_ns: end,
            }));
        }
    }
    assert_eq!(work(records).devices.len(), 3);
}

/// Operations of two devices, calls one after the other on each of three threads, pauses and waits
/// for data anywhere.
#[derive(Clone, Debug)]
struct Random {
    ops: Vec<(u32, u64, u64, u64)>,
    calls: Vec<(u32, usize, u64, u64)>,
    pauses: Vec<(u32, u64, u64)>,
    loading: Vec<(u32, u64, u64)>,
}

const FUNCTIONS: [&str; 4] =
    ["cudaLaunchKernel", "cudaStreamSynchronize", "cudaMemcpyAsync", "cudaMalloc"];

fn random() -> impl Strategy<Value = Random> {
    let op = (0u32..2, 0u64..3, 0u64..300, 0u64..30);
    let call = (0u32..3, 0usize..4, 0u64..20, 1u64..12);
    let span = || (0u32..3, 0u64..300, 0u64..40);
    (
        prop::collection::vec(op, 1..25),
        prop::collection::vec(call, 0..40),
        prop::collection::vec(span(), 0..5),
        prop::collection::vec(span(), 0..5),
    )
        .prop_map(|(ops, calls, pauses, loading)| {
            let mut ends = [0u64; 3];
            let calls = calls.into_iter().map(|(thread, function, wait, length)| {
                let start = ends[thread as usize] + wait;
                ends[thread as usize] = start + length;
                (thread, function, start, start + length)
            });
            Random { ops, calls: calls.collect(), pauses, loading }
        })
}

impl Random {
    fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for (n, (device, stream, start, length)) in (1..).zip(&self.ops) {
            let op = op(*device, *stream, *start, start + length, n);
            records.push(Record::GpuOp(op));
        }
        for (n, (thread, function, start, end)) in (1..).zip(&self.calls) {
            let call = call(100 + thread, FUNCTIONS[*function], *start, *end, n);
            records.push(Record::CudaCall(call));
        }
        for (thread, start, length) in &self.pauses {
            records.push(Record::Pause(pause(100 + thread, *start, start + length)));
        }
        for (thread, start, length) in &self.loading {
            records.push(loading(100 + thread, *start, start + length));
        }
        records
    }

    fn busy(&self, device: u32, at: u64) -> bool {
        let mut ops = self.ops.iter().filter(|op| op.0 == device);
        ops.any(|(_, _, start, length)| *start <= at && at < start + length)
    }

    /// Sums of a device, tick by tick.
    fn expected(&self, device: u32) -> (u64, u64, HostTime) {
        let ops = || self.ops.iter().filter(|op| op.0 == device);
        let first = ops().map(|op| op.2).min().unwrap();
        let last = ops().map(|op| op.2 + op.3).max().unwrap();
        let mut host = HostTime::default();
        let mut busy = 0;
        for at in first..last {
            if self.busy(device, at) {
                busy += 1;
                continue;
            }
            *self.class(device, at, &mut host) += 1;
        }
        (last - first, busy, host)
    }

    /// The class of an idle tick, found by searching for the next operation.
    fn class<'a>(&self, device: u32, at: u64, host: &'a mut HostTime) -> &'a mut u64 {
        let next = self.ops.iter().filter(|op| op.0 == device && op.2 > at);
        let start = next.map(|op| op.2).min().unwrap();
        let candidates = (0..).zip(&self.ops);
        let candidates = candidates.filter(|(_, op)| op.0 == device && op.2 == start);
        // As operations are sorted: by end, stream and correlation id.
        let mut candidates: Vec<(u64, u64, usize)> =
            candidates.map(|(n, op)| (op.3, op.1, n)).collect();
        candidates.sort_unstable();
        let call = candidates.iter().find_map(|(.., n)| self.calls.get(*n));
        let covers = |(_, start, length): &&(u32, u64, u64)| *start <= at && at < start + length;
        let collecting = self.pauses.iter().filter(covers);
        let Some((thread, _, launched, _)) = call else {
            return match collecting.count() {
                0 => &mut host.unknown_ns,
                _ => &mut host.gc_on_other_thread_ns,
            };
        };
        let mut calls = self.calls.iter().filter(|call| call.0 == *thread);
        let in_call = calls.find(|call| call.2 <= at && at < call.3);
        let of_thread =
            |spans: &[(u32, u64, u64)]| spans.iter().filter(covers).any(|span| span.0 == *thread);
        match in_call.map(|call| call.1) {
            _ if *launched <= at => &mut host.launch_under_way_ns,
            _ if of_thread(&self.pauses) => &mut host.gc_ns,
            Some(1) => &mut host.synchronizing_ns,
            Some(2 | 3) => &mut host.copy_or_allocation_ns,
            _ if collecting.count() > 0 => &mut host.gc_on_other_thread_ns,
            _ if of_thread(&self.loading) => &mut host.waiting_for_data_ns,
            _ => &mut host.launching_late_ns,
        }
    }
}

proptest! {
    #[test]
    fn figures_equal_a_count_per_tick(random in random()) {
        let work = work(random.records());
        let gaps = work.gaps.unwrap();
        prop_assert_eq!(gaps.devices.len(), work.devices.len());
        for (device, of_device) in work.devices.iter().zip(&gaps.devices) {
            let (span_ns, busy_ns, host) = random.expected(device.id.device);
            let DeviceReport { idle_ns, .. } = *device;
            prop_assert_eq!((device.span_ns, device.busy_ns), (span_ns, busy_ns));
            prop_assert_eq!(device.busy_ns + idle_ns, span_ns);
            prop_assert_eq!(of_device.time_ns, idle_ns);
            prop_assert_eq!(of_device.host, host);
        }
        for gap in &gaps.longest {
            prop_assert_eq!(gap.host.classes().iter().sum::<u64>(), gap.duration_ns);
        }
        prop_assert!(gaps.longest.len() <= 20);
        prop_assert_eq!(gaps.longest.len() as u64, gaps.count.min(20));
    }
}
