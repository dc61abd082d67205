//! Gaps of devices against a count per tick; launching ahead.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::Analysis;
use gctrace_analysis::report::{GpuWorkReport, IdleCause, IdleGap, IdlePart};
use gctrace_event::read::{DecodedItem, TraceCompletion};
use gctrace_event::{Annotation, CudaCall, CudaLayer, GpuOp, GpuOpKind, Pause, Record};
use proptest::prelude::*;
use test_kit::reports;

const PID: u32 = 1;
const US: u64 = 1_000;
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

/// A gap of 100 µs.
fn only_gap(more: Vec<Record>) -> IdleGap {
    let mut records = vec![
        Record::GpuOp(op(0, 7, 50 * US, 100 * US, 1)),
        Record::GpuOp(op(0, 7, 200 * US, 220 * US, 2)),
    ];
    records.extend(more);
    let [ledger] = work(records).idle.try_into().unwrap();
    assert_eq!((ledger.gaps, ledger.idle_ns), (1, 100 * US));
    let [gap] = ledger.longest.try_into().unwrap();
    gap
}

#[test]
fn one_gap_is_named() {
    let gap = only_gap(vec![
        Record::CudaCall(call(7, "cudaLaunchKernel", 40 * US, 45 * US, 1)),
        Record::CudaCall(call(7, "cudaLaunchKernel", 190 * US, 195 * US, 2)),
    ]);
    let gap_ns = (gap.start_ns, gap.after_first_ns, gap.duration_ns);
    assert_eq!(gap_ns, (100 * US, 50 * US, 100 * US));
    assert_eq!((gap.before.as_str(), gap.after.as_str()), ("kernel 1", "kernel 2"));
    assert_eq!((gap.call.as_deref(), gap.tid), (Some("cudaLaunchKernel"), Some(7)));
    // A faster host would have hidden the launch latency, too, but for what a stream needs.
    let [host, latency] = [(IdleCause::Host, 99 * US), (IdleCause::LaunchLatency, US)]
        .map(|(cause, time_ns)| IdlePart { cause, time_ns });
    assert_eq!(gap.causes, [host, latency]);
}

#[test]
fn nothing_is_known_without_a_call() {
    let gap = only_gap(vec![Record::Pause(pause(7, 150 * US, 250 * US))]);
    let causes = [IdlePart { cause: IdleCause::Unknown, time_ns: 100 * US }];
    assert_eq!((gap.causes.as_slice(), gap.tid, gap.call), (&causes[..], None, None));
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
        assert_eq!(work.idle.iter().map(|ledger| ledger.gaps).sum::<u64>(), 0);
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

    /// Span and busy time of a device, tick by tick, and the number of its gaps.
    fn expected(&self, device: u32) -> (u64, u64, u64) {
        let ops = || self.ops.iter().filter(|op| op.0 == device);
        let first = ops().map(|op| op.2).min().unwrap();
        let last = ops().map(|op| op.2 + op.3).max().unwrap();
        let busy = (first..last).filter(|at| self.busy(device, *at)).count() as u64;
        // One of no length may end a gap and start the next.
        let starts = |at: u64| ops().any(|op| op.2 == at);
        let ends = (first + 1..=last).filter(|at| !self.busy(device, at - 1));
        let gaps = ends.filter(|at| starts(*at)).count() as u64;
        (last - first, busy, gaps)
    }
}

proptest! {
    #[test]
    fn figures_equal_a_count_per_tick(random in random()) {
        let work = work(random.records());
        prop_assert_eq!(work.idle.len(), work.devices.len());
        for (device, ledger) in work.devices.iter().zip(&work.idle) {
            let (span_ns, busy_ns, gaps) = random.expected(device.id.device);
            prop_assert_eq!((device.span_ns, device.busy_ns), (span_ns, busy_ns));
            prop_assert_eq!(device.busy_ns + device.idle_ns, span_ns);
            prop_assert_eq!((ledger.idle_ns, ledger.gaps), (device.idle_ns, gaps));
            let booked_ns: u64 = ledger.rows.iter().map(|row| row.time_ns).sum();
            prop_assert_eq!(booked_ns, ledger.idle_ns);
            prop_assert_eq!(ledger.longest.len() as u64, gaps.min(20));
            for gap in &ledger.longest {
                let parts_ns: u64 = gap.causes.iter().map(|part| part.time_ns).sum();
                prop_assert_eq!(parts_ns, gap.duration_ns);
            }
        }
    }
}
