//! GPU work beyond the bytes of a day: counted exactly, and whole around the longest pauses.

use super::{SECOND_NS, Simulated, keeping};
use crate::args::{DailyLimit, KeepConfig};
use crate::files::segments::segments_in;
use gctrace_event::read::{DecodedItem, TraceReader};
use gctrace_event::{CudaCall, GpuOp, OmittedGpuWork, OmittedPauses, Record, TraceEnd};
use std::path::Path;

/// Every 10 ms an operation of 2 to 8 ms with the call that launched it.
const BETWEEN_NS: u64 = 10_000_000;

/// What all segments have of GPU work: the operations by start, and what was only counted.
fn read(path: &Path) -> (Vec<(u64, u64)>, Vec<OmittedGpuWork>, OmittedPauses) {
    let (mut ops, mut omitted, mut deleted) = (Vec::new(), Vec::new(), OmittedPauses::default());
    for (_, segment) in segments_in(path) {
        let mut reader = TraceReader::open(&segment).unwrap();
        while let Some(item) = reader.next_item().unwrap() {
            match item {
                DecodedItem::Header(header) => {
                    deleted = header.segment.clone().unwrap().before.operations;
                }
                DecodedItem::Record(Record::GpuOp(op)) => ops.push((op.start_ns, op.end_ns)),
                DecodedItem::Record(Record::OmittedGpuWork(work)) => omitted.push(work),
                _ => {}
            }
        }
    }
    ops.sort_unstable();
    omitted.sort_unstable_by_key(|work| work.since_ns);
    (ops, omitted, deleted)
}

struct Training {
    recorder: Simulated,
    ops: Vec<(u64, u64)>,
}

impl Training {
    fn start(path: &Path, keep: &KeepConfig) -> Self {
        Self { recorder: Simulated::start(path, keep), ops: Vec::new() }
    }

    /// Calls are handed over after operations, some tenths of a second late.
    fn go_on(&mut self, ns: u64) {
        for _ in 0..ns / BETWEEN_NS {
            let start_ns = self.recorder.now.monotonic_ns;
            let number = self.ops.len() as u64;
            let end_ns = start_ns + 2_000_000 + number * 7919 % 6_000_000;
            self.ops.push((start_ns, end_ns));
            let correlation = Some(number + 1);
            self.recorder.trace.write(&Record::GpuOp(GpuOp {
                pid: Some(7),
                name: "gemm".into(),
                start_ns,
                end_ns,
                correlation,
                ..GpuOp::default()
            }));
            let called_ns = start_ns - 300_000_000;
            self.recorder.trace.write(&Record::CudaCall(CudaCall {
                pid: 7,
                tid: 7,
                function: "cudaLaunchKernel".into(),
                start_ns: called_ns,
                end_ns: called_ns + 5_000,
                correlation: Some(number + 31),
                ..CudaCall::default()
            }));
            self.recorder.pass(BETWEEN_NS);
        }
    }

    fn finish(self) -> Vec<(u64, u64)> {
        let ended_ns = self.recorder.now.monotonic_ns;
        self.recorder.trace.finish(TraceEnd { ended_ns, ..TraceEnd::default() }).unwrap();
        self.ops
    }
}

#[test]
fn gpu_work_is_whole_around_the_longest_pauses_and_counted_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    // An hour of them is 125,000 bytes; that of this program some 6 million.
    let keep = KeepConfig { per_day: DailyLimit(Some(3_000_000)), ..keeping(Some(7200), None) };
    let mut training = Training::start(&path, &keep);
    let mut longest_ns = 0;
    for second in 0..3600 {
        training.go_on(SECOND_NS);
        training.recorder.pause(1_000_000 + second * 7919 % 1_000_000);
        if second == 3000 {
            longest_ns = training.recorder.now.monotonic_ns;
            training.recorder.pause(50_000_000);
        }
    }
    let truth = training.finish();
    let bytes: u64 =
        segments_in(&path).iter().map(|(_, file)| file.metadata().unwrap().len()).sum();
    let (ops, omitted, _) = read(&path);
    let counted: u64 = omitted.iter().map(|work| work.operations.count.0).sum();
    assert_eq!(ops.len() as u64 + counted, truth.len() as u64);
    let lengths = |ops: &[(u64, u64)]| ops.iter().map(|(start, end)| end - start).sum::<u64>();
    let counted_ns: u64 = omitted.iter().map(|work| work.operations.total_ns.0).sum();
    assert_eq!(lengths(&ops) + counted_ns, lengths(&truth));
    // What it may have for an hour, what an hour saves, and a part that was not foreseen.
    assert!(bytes < 3 * 125_000, "{bytes}");
    assert!(counted > truth.len() as u64 / 2, "{counted}");
    // Outside of what was only counted, all is there.
    let is_whole = |op: &&(u64, u64)| {
        !omitted.iter().any(|work| work.since_ns <= op.0 && op.1 <= work.until_ns)
    };
    let whole: Vec<&(u64, u64)> = truth.iter().filter(is_whole).collect();
    assert!(whole.iter().all(|op| ops.binary_search(op).is_ok()));
    let around = (longest_ns - SECOND_NS, longest_ns + SECOND_NS / 2);
    let wanted = truth.iter().filter(|op| around.0 <= op.0 && op.1 <= around.1);
    assert!(wanted.clone().count() >= 140 && wanted.clone().all(|op| is_whole(&op)));
}

#[test]
fn what_a_user_asks_for_has_the_gpu_work_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let keep = KeepConfig { per_day: DailyLimit(Some(100_000)), ..keeping(Some(60), None) };
    let mut training = Training::start(&path, &keep);
    training.go_on(300 * SECOND_NS);
    let asked_ns = training.recorder.now.monotonic_ns;
    training.recorder.trace.ask("asked for");
    training.go_on(60 * SECOND_NS);
    let truth = training.finish();
    let (kept, omitted, _) = read(&path.join("kept-1"));
    assert!(!omitted.is_empty());
    let before = |op: &&(u64, u64)| op.0 >= asked_ns - 2 * SECOND_NS && op.1 <= asked_ns;
    let mut wanted = truth.iter().filter(before);
    assert!(wanted.clone().count() > 190 && wanted.all(|op| kept.binary_search(op).is_ok()));
    // Of all that is deleted, the number is there.
    let (ops, omitted, deleted) = read(&path);
    let counted: u64 = omitted.iter().map(|work| work.operations.count.0).sum();
    assert!(
        deleted.count.0 > 20_000
            && deleted.count.0 + counted + ops.len() as u64 >= truth.len() as u64
    );
}

#[test]
fn few_gpu_work_and_no_limit_leave_all() {
    for bytes_a_day in [None, Some(2_000_000_000)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        let keep = KeepConfig { per_day: DailyLimit(bytes_a_day), ..keeping(Some(600), None) };
        let mut training = Training::start(&path, &keep);
        training.go_on(120 * SECOND_NS);
        let truth = training.finish();
        let (ops, omitted, _) = read(&path);
        assert_eq!((ops, omitted), (truth, Vec::new()));
    }
}
