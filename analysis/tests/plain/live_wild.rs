//! Records with times and ids that no clock and no kernel gives do no harm.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use crate::live_feed;

use gctrace_analysis::live::SnapshotRequest;
use gctrace_event::{
    Annotation, Frame, GpuOp, GpuOpKind, GpuSample, NamedMarker, Pause, Record, StepMark,
};
use live_feed::{SECOND, fed};
use proptest::prelude::*;
use test_kit::reports::{pause, process};

/// Times and ids that no clock and no kernel gives.
fn wild() -> impl Strategy<Value = Record> {
    let time = prop_oneof![Just(0), Just(u64::MAX), 0..SECOND * 100, any::<u64>()];
    let pid = prop_oneof![1u32..4, Just(u32::MAX)];
    (0u8..12, pid, time.clone(), time, any::<u64>()).prop_map(|(kind, pid, start, end, value)| {
        let small = u32::try_from(value % 5).unwrap();
        match kind {
            0..3 => Record::Pause(Pause {
                start_ns: start,
                end_ns: end,
                generation: (value % 256) as u8,
                collected: Some(value),
                heap_objects: Some(value),
                stack: Some(pid),
                ..pause(pid, 0, 0)
            }),
            3 => Record::GpuOp(GpuOp {
                pid: Some(pid),
                device: value as u32,
                stream: 0,
                kind: GpuOpKind::Memcpy,
                name: String::new(),
                start_ns: start,
                end_ns: end,
                ..GpuOp::default()
            }),
            4 => Record::Step(StepMark {
                marker: NamedMarker::Backward,
                pid,
                tid: small,
                start_ns: start,
                end_ns: end,
                cpu_ns: None,
            }),
            5 => Record::Annotation(Annotation {
                pid,
                tid: small,
                name: format!("ProfilerStep#{value}"),
                start_ns: start,
                end_ns: end,
            }),
            6 => Record::Frame(Frame { id: value as u32, parent: Some(pid), ..Frame::default() }),
            7 => Record::GpuSample(GpuSample {
                device: value as u32,
                at_ns: start,
                utilization_percent: Some(value as u32),
                ..GpuSample::default()
            }),
            8 => Record::Pressure(gctrace_event::Pressure {
                pid,
                since_ns: start,
                at_ns: end,
                net_containers: value,
                arenas_mapped: Some(value),
                arenas_unmapped: Some(end),
                ..Default::default()
            }),
            9 => Record::ProcessExit(gctrace_event::ProcessExit {
                pid,
                at_ns: start,
                code: None,
                signal: Some(9),
            }),
            _ => {
                let Record::Process(known) = process(pid, 0, "generational") else {
                    unreachable!()
                };
                Record::Process(gctrace_event::Process { since_ns: start, ..known })
            }
        }
    })
}

proptest! {
    #[test]
    fn no_record_is_too_wild(
        records in prop::collection::vec(wild(), 0..60),
        now_ns in any::<u64>(),
        interval_ns in any::<u64>(),
    ) {
        let live = fed(records.iter().cloned());
        let snapshot = live.snapshot(&SnapshotRequest { now_ns, interval_ns, detail: Some(1) });
        let pauses = records.iter().filter(|record| matches!(record, Record::Pause(_))).count();
        prop_assert_eq!(snapshot.totals.collections.pauses.iter().sum::<u64>(), pauses as u64);
    }
}
