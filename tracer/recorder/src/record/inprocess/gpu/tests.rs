//! The trace records of CUPTI's ring, without CUPTI.

use super::*;
use crate::record::inprocess::ring_event::decoded;
use gctrace_ring::{GpuMessage as Raw, TimeInterval};
use proptest::collection::vec;
use proptest::prelude::*;

const fn at(start_ns: u64, end_ns: u64) -> TimeInterval {
    TimeInterval { start_ns, end_ns }
}

fn text(id: u32, text: &str) -> Vec<Raw> {
    vec![Raw::Text { id, text: text.into() }]
}

fn call(layer: ApiLayer, interval: TimeInterval, correlation: u32, name: u32) -> Raw {
    Raw::Api(RingCall { interval, layer, tid: 8, correlation, function: 211, name })
}

fn kernel(interval: TimeInterval, correlation: u32, name: u32) -> Raw {
    Raw::Gpu(RingGpuOp {
        interval,
        work: GpuRecord::Kernel,
        copy_kind: 0,
        device: 1,
        context: 2,
        stream: 7,
        correlation,
        bytes: 0,
        name,
        graph: 0,
    })
}

fn wait(kind: u8, interval: TimeInterval, correlation: u32) -> Raw {
    Raw::Sync(RingSync { interval, kind, correlation, context: 2, stream: 9, event: 5 })
}

fn recorded(correlation: u32, stream: u32) -> Raw {
    Raw::Event { correlation, context: 2, stream, event: 5 }
}

fn ring_events(records: &[Raw]) -> Vec<RingEvent> {
    let mut ring = GpuRing::new(7);
    let mut ring_events = Vec::new();
    for record in records {
        ring.take(record.clone(), &mut ring_events);
    }
    ring.finish(&mut ring_events);
    ring_events
}

fn records(ring_events: &[RingEvent]) -> Vec<&Record> {
    let record = |one: &'_ RingEvent| matches!(one, RingEvent::Record(_));
    let found = ring_events.iter().filter(|one| record(one));
    found
        .filter_map(|one| match one {
            RingEvent::Record(record) => Some(record),
            _ => None,
        })
        .collect()
}

/// Each type is a pair of the one before.
#[test]
fn names_that_grow_without_end_are_not_demangled() {
    let pairs: String =
        ('0'..='9').chain('A'..='O').map(|at| format!("S_IS{at}_S{at}_E")).collect();
    let mangled = format!("_Z1f1AIiiE{pairs}");
    assert_eq!(demangled(&mangled), mangled);
    assert_eq!(demangled(&format!("{}i", &mangled[..10])), "f(A<int, int>, int)");
}

#[test]
fn kernel_names_are_demangled() {
    let mut given =
        text(1, "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE");
    given.extend(text(2, "plain_kernel"));
    given.extend([1, 2, 3].map(|name| kernel(at(10, 30), name, name)));
    let ring_events = ring_events(&given);
    let names: Vec<&str> = records(&ring_events)
        .into_iter()
        .filter_map(|record| match record {
            Record::GpuOp(op) => Some(op.name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(
        names,
        [
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
            "plain_kernel",
            "[name lost]"
        ]
    );
}

#[test]
fn the_outermost_of_nested_calls_is_written() {
    let mut given = text(1, "cudaLaunchKernel_v7000");
    given.extend(text(2, "cuLaunchKernel"));
    given.push(call(ApiLayer::Driver, at(12, 18), 3, 2));
    given.push(call(ApiLayer::Runtime, at(10, 20), 3, 1));
    given.push(call(ApiLayer::Driver, at(30, 40), 4, 2));
    given.push(call(ApiLayer::Driver, at(50, 60), 0, 0));
    given.push(call(ApiLayer::Driver, at(70, 80), 0, 0));
    let ring_events = ring_events(&given);
    let mut calls: Vec<_> = records(&ring_events)
        .into_iter()
        .filter_map(|record| match record {
            Record::CudaCall(call) => {
                Some((call.start_ns, call.function.as_ref(), call.correlation))
            }
            _ => None,
        })
        .collect();
    calls.sort_unstable();
    assert_eq!(
        calls,
        [
            (10, "cudaLaunchKernel", Some(3)),
            (30, "cuLaunchKernel", Some(4)),
            (50, "driver function 211", None),
            (70, "driver function 211", None),
        ]
    );
}

#[test]
fn a_wait_is_for_the_last_recording_before_it_however_late_that_arrives() {
    let given = [
        kernel(at(1, 2), 1, 0),
        wait(2, at(50, 60), 20),
        wait(4, at(70, 80), 30),
        recorded(10, 3),
        recorded(15, 4),
        recorded(25, 6),
    ];
    let ring_events = ring_events(&given);
    let waits: Vec<_> = records(&ring_events)
        .into_iter()
        .filter_map(|record| match record {
            Record::GpuSync(wait) => Some(wait),
            _ => None,
        })
        .collect();
    let [event, context] = waits.as_slice() else {
        panic!("two waits: {waits:?}");
    };
    assert_eq!(event.kind, GpuSyncKind::StreamWaitEvent);
    assert_eq!((event.stream, event.device), (Some(9), Some(1)));
    assert_eq!((event.event_stream, event.event_correlation), (Some(4), Some(15)));
    assert_eq!(
        (context.stream, context.event_stream, context.event_correlation),
        (None, None, None)
    );
}

#[test]
fn calls_are_written_one_flush_later() {
    let mut ring = GpuRing::new(7);
    let mut ring_events = Vec::new();
    ring.take(call(ApiLayer::Driver, at(10, 20), 3, 0), &mut ring_events);
    ring.take(Raw::Flushed { at_ns: 30 }, &mut ring_events);
    assert!(ring_events.is_empty(), "the call around it may not have ended");
    ring.take(call(ApiLayer::Runtime, at(5, 31), 3, 0), &mut ring_events);
    ring.take(Raw::Flushed { at_ns: 60 }, &mut ring_events);
    assert!(ring_events.is_empty());
    ring.take(Raw::Flushed { at_ns: 90 }, &mut ring_events);
    assert_eq!(records(&ring_events).len(), 1);
}

#[test]
fn states_are_sentences() {
    let state = |state, code| Raw::Cupti { at_ns: 5, state, code, detail: 1 };
    let mut given = text(1, "cuptiActivityEnable");
    given.push(state(CuptiState::Refused, 35));
    given.push(state(CuptiState::Recording, 28));
    given.push(Raw::Dropped { at_ns: 9, count: 4 });
    let ring_events = ring_events(&given);
    let [without, refused, since, recording, dropped] = ring_events.as_slice() else {
        panic!("five: {ring_events:?}");
    };
    assert_eq!(*without, RingEvent::NoCupti);
    assert_eq!(
        *refused,
        RingEvent::Notice(InjectedNotice {
            at_ns: 5,
            weight: NoticeLevel::Warning,
            text: "GPU work is not recorded: CUPTI refused cuptiActivityEnable (error 35)"
                .to_owned(),
        })
    );
    assert_eq!(*since, RingEvent::CuptiSince(5));
    assert!(matches!(recording, RingEvent::Notice(notice) if notice.weight == NoticeLevel::Detail));
    assert_eq!(*dropped, RingEvent::Missed(DROPPED, 4));
}

proptest! {
    #[test]
    fn whatever_the_memory_contains_no_work_is_lost(
        bytes in vec(vec(prop_oneof![1..5_u8, any::<u8>()], 0..60), 0..200),
        kinds in vec(1..10_u8, 200),
    ) {
        let decoded: Vec<Raw> = decoded(&bytes, kinds);
        let expected = decoded.iter().filter(|raw| matches!(raw, Raw::Gpu(_))).count();
        let ring_events = ring_events(&decoded);
        let work = records(&ring_events).into_iter().filter(|record| matches!(record, Record::GpuOp(_)));
        prop_assert_eq!(work.count(), expected);
    }
}
