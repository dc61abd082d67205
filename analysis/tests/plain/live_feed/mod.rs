//! Records in, the state at a given time out.

#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test program uses its part of these; in some nothing is left over"
)]

use gctrace_analysis::live::{Live, ProcessFigures, SETTLE_NS, Snapshot, SnapshotRequest};
use gctrace_event::{GpuOp, GpuOpKind, NamedMarker, Record, StepMark};
use test_kit::reports::{MS, START, header};

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const LONG: u64 = 10 * MS;

pub(crate) fn live() -> Live {
    Live::new(header(), LONG)
}

pub(crate) fn fed(records: impl IntoIterator<Item = Record>) -> Live {
    let mut live = live();
    for record in records {
        live.record(&record);
    }
    live
}

/// The state shortly after `until_ms` has settled, over the interval before.
pub(crate) fn at(live: &Live, until_ms: u64, interval_ms: u64) -> Snapshot {
    live.snapshot(&SnapshotRequest {
        now_ns: START + until_ms * MS + SETTLE_NS,
        interval_ns: interval_ms * MS,
        detail: None,
    })
}

pub(crate) fn only(snapshot: &Snapshot) -> &ProcessFigures {
    assert_eq!(snapshot.processes.len(), 1, "{snapshot:?}");
    &snapshot.processes[0]
}

pub(crate) fn op(pid: u32, from_ms: u64, to_ms: u64) -> Record {
    Record::GpuOp(GpuOp {
        pid: Some(pid),
        device: 0,
        stream: 7,
        kind: GpuOpKind::Kernel,
        name: "kernel".to_owned(),
        start_ns: START + from_ms * MS,
        end_ns: START + to_ms * MS,
        ..GpuOp::default()
    })
}

pub(crate) fn backward(pid: u32, from_ms: u64, to_ms: u64) -> Record {
    Record::Step(StepMark {
        marker: NamedMarker::Backward,
        pid,
        tid: pid,
        start_ns: START + from_ms * MS,
        end_ns: START + to_ms * MS,
        cpu_ns: None,
    })
}
