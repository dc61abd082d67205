//! Headers, records and ends of traces, any: of their types, by [`Choices`]. What other tools write, too, is read and
//! written member by member, and so it is made here.

#![expect(clippy::expect_used, reason = "helpers of tests fail by panicking")]

mod choices;

use choices::Choices;
use gctrace_event::{
    Annotation, Collective, Counter, Counters, CudaCall, CudaLaunches, CudaLayer, DeviceMemory,
    EventSource, FORMAT, Frame, GpuOp, GpuOpKind, GpuSync, GpuSyncKind, Head, Kind, NamedMarker,
    Note, ObjectKind, Pause, ProcessCounters, ProcessExit, Record, StepMark, ThreadName, TraceEnd,
    TraceHeader, Turn,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

fn made<T: std::fmt::Debug>(make: impl Fn(&mut Choices) -> T) -> impl Strategy<Value = T> {
    vec(any::<u64>(), 0..100).prop_map(move |numbers| make(&mut Choices::new(numbers)))
}

pub(crate) fn header() -> impl Strategy<Value = TraceHeader> {
    made(|choices| TraceHeader {
        format: FORMAT.to_owned(),
        started_ns: choices.time(),
        ..choices.any()
    })
}

pub(crate) fn end() -> impl Strategy<Value = TraceEnd> {
    made(|choices| TraceEnd { ended_ns: choices.time(), ..choices.any() })
}

pub(crate) fn frame() -> impl Strategy<Value = Record> {
    made(|choices| Record::Frame(choices.any::<Frame>()))
}

pub(crate) fn pause() -> impl Strategy<Value = Record> {
    made(|choices| Record::Pause(any_pause(choices)))
}

/// Any record; pauses and frames more often.
pub(crate) fn record() -> impl Strategy<Value = Record> {
    prop_oneof![4 => pause(), 2 => frame(), 10 => of_profilers(), 20 => of_gctrace()]
}

/// A record of a kind that only gctrace writes, as its reader believes it.
fn of_kind(name: &str, numbers: Vec<u64>) -> Option<Result<Record, &'static str>> {
    let mut choices = Choices::new(numbers);
    let head = head(&mut choices);
    // `Choices` does not know the members of a flattened type.
    if name == Record::ObjectKind(ObjectKind::default()).kind().name {
        let (id, name) = choices.any();
        return Some(Ok(Record::ObjectKind(ObjectKind { pid: head.pid?, id, name })));
    }
    Record::by_name(name.as_bytes(), &mut choices, |_| Ok(head))
}

fn of_gctrace() -> impl Strategy<Value = Record> {
    let names = Record::KINDS.iter().map(|(_, _, kind)| kind.name);
    let names: Vec<_> = names.filter(|name| of_kind(name, Vec::new()).is_some()).collect();
    (prop::sample::select(names), vec(any::<u64>(), 1..100))
        .prop_filter_map("not believed", |(name, numbers)| of_kind(name, numbers)?.ok())
}

/// Two records of such a kind, always the same: one with members, and one with as few as possible.
pub(crate) fn examples(name: &str) -> Vec<Record> {
    let numbers = (0..200).map(|first| (0..100).map(|at| (1_000 + first + at) << 6 | 1).collect());
    let with_members = numbers.filter_map(|numbers| of_kind(name, numbers)?.ok()).next();
    with_members.into_iter().chain(of_kind(name, Vec::new()).and_then(Result::ok)).collect()
}

fn head(choices: &mut Choices) -> Head {
    let at_ns = choices.time();
    Head {
        pid: Some(choices.any()),
        tid: Some(choices.any()),
        span_ns: Some((at_ns, at_ns)),
        stack: choices.id(),
    }
}

fn of_profilers() -> impl Strategy<Value = Record> {
    const MAKE: [fn(&mut Choices) -> Record; 13] = [
        |choices| {
            let (pid, at_ns) = (choices.any(), choices.time());
            Record::ProcessExit(ProcessExit { pid, at_ns, ..choices.any() })
        },
        |choices| {
            let (pid, at_ns) = (choices.any(), choices.time());
            Record::Note(Note { pid, at_ns, ..choices.any() })
        },
        |choices| {
            let (pid, tid, name) = choices.any();
            Record::ThreadName(ThreadName { pid, tid, name })
        },
        |choices| {
            let (since_ns, at_ns) = choices.span();
            let counters = counters(choices);
            Record::Counters(ProcessCounters { pid: choices.any(), since_ns, at_ns, counters })
        },
        |choices| {
            let ((pid, tid), (start_ns, end_ns)) = (choices.any(), choices.span());
            Record::Turn(Turn { pid, tid, start_ns, end_ns, ..choices.any() })
        },
        |choices| {
            let ((pid, tid), (first_ns, last_ns)) = (choices.any(), choices.span());
            Record::CudaLaunches(CudaLaunches { pid, tid, first_ns, last_ns, ..choices.any() })
        },
        |choices| {
            let ((pid, tid, device_type, device), at_ns) = (choices.any(), choices.time());
            let (bytes, allocated, reserved) = choices.any();
            Record::DeviceMemory(DeviceMemory {
                pid,
                tid,
                at_ns,
                device_type,
                device,
                bytes,
                allocated,
                reserved,
            })
        },
        |choices| {
            let ((pid, tid), (start_ns, end_ns)) = (choices.any(), choices.span());
            let marker = marker(choices);
            Record::Step(StepMark { pid, tid, marker, start_ns, end_ns, cpu_ns: choices.any() })
        },
        |choices| {
            let ((pid, tid, name), (start_ns, end_ns)) = (choices.any(), choices.span());
            Record::Annotation(Annotation { pid, tid, name, start_ns, end_ns })
        },
        |choices| Record::CudaCall(call(choices)),
        |choices| Record::GpuOp(op(choices)),
        |choices| Record::GpuSync(sync(choices)),
        |choices| Record::Pause(any_pause(choices)),
    ];
    (prop::sample::select(&MAKE[..]), vec(any::<u64>(), 0..100))
        .prop_map(|(make, numbers)| make(&mut Choices::new(numbers)))
        .prop_filter("a mark of a step", |record| match record {
            Record::Annotation(of) => NamedMarker::from_annotation(&of.name).is_none(),
            _ => true,
        })
}

fn counters(choices: &mut Choices) -> Counters {
    let mut counters = Counters::default();
    (counters.scaled, counters.migrated) = choices.any();
    for counter in Counter::ALL {
        if let Some(value) = choices.count() {
            counters.set(*counter, value);
        }
    }
    counters
}

fn any_pause(choices: &mut Choices) -> Pause {
    let ((pid, tid), (start_ns, end_ns)) = (choices.any(), choices.span());
    let (injected_ns, injected_end_ns) = choices.span();
    let both = EventSource::Both { start_ns: injected_ns, end_ns: injected_end_ns };
    Pause {
        pid,
        tid,
        start_ns,
        end_ns,
        reason: choices.any(),
        generation: choices.of(&[0, 1, 2, Pause::UNKNOWN_GENERATION]),
        collected: choices.count(),
        uncollectable: choices.count(),
        interpreter: choices.any(),
        cpu_ns: choices.count(),
        stop_the_world_ns: choices.count(),
        oldest_objects: choices.count(),
        heap_objects: choices.count(),
        young_count: choices.count(),
        freed_bytes: choices.count(),
        unfinished: choices.any(),
        source: choices.of(&[EventSource::Probes, EventSource::Injected, both]),
        counters: counters(choices),
        stack: choices.any(),
    }
}

/// Names may contain the words around them.
fn marker(choices: &mut Choices) -> NamedMarker {
    let around = ["", "Optimizer.step#", ".step", "backward", " "];
    let name = choices.of(&around).to_owned() + &choices.any::<String>() + choices.of(&around);
    choices.of(&[
        NamedMarker::Function(name.clone()),
        NamedMarker::Optimizer(name.clone()),
        NamedMarker::Backward,
        NamedMarker::DataLoader(name),
    ])
}

fn call(choices: &mut Choices) -> CudaCall {
    let ((pid, tid), (start_ns, end_ns)) = (choices.any(), choices.span());
    CudaCall {
        pid,
        tid,
        start_ns,
        end_ns,
        layer: choices.of(&[CudaLayer::Driver, CudaLayer::Runtime, CudaLayer::Nccl]),
        function: choices.any::<String>().into(),
        stream: choices.any(),
        bytes: choices.any(),
        grid: choices.any(),
        correlation: choices.id(),
        error: choices.any::<Option<i32>>().filter(|error| *error != 0),
    }
}

fn op(choices: &mut Choices) -> GpuOp {
    let (start_ns, end_ns) = choices.span();
    let (name, group, sequence, size, ranks) = choices.any();
    let (source, destination) = choices.any();
    let collective = Collective { name, group, sequence, size, ranks, source, destination };
    let (pid, device, stream, name, bytes) = choices.any();
    GpuOp {
        pid,
        device,
        stream,
        name,
        start_ns,
        end_ns,
        bytes,
        kind: choices.of(GpuOpKind::ALL),
        correlation: choices.id(),
        collective: (collective != Collective::default()).then(|| Box::new(collective)),
    }
}

fn sync(choices: &mut Choices) -> GpuSync {
    let (start_ns, end_ns) = choices.span();
    let kinds = ["Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync"];
    let (pid, device, stream, event_stream, event_correlation) = choices.any();
    GpuSync {
        pid,
        device,
        stream,
        event_stream,
        event_correlation,
        start_ns,
        end_ns,
        kind: GpuSyncKind::from_name(choices.of(&kinds).as_bytes()).expect("a kind"),
        correlation: choices.id(),
    }
}

#[test]
fn any_record_is_of_any_kind() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let record = record();
    let made: Vec<Record> =
        (0..5_000).filter_map(|_| Some(record.new_tree(&mut runner).ok()?.current())).collect();
    let is_missing = |kind: &Kind| !made.iter().any(|record| record.kind() == kind);
    let missing = Record::KINDS.iter().filter(|(_, _, kind)| is_missing(kind));
    let missing: Vec<_> = missing.map(|(name, ..)| *name).collect();
    // The first is the last line of each trace, of the second only some are read.
    assert_eq!(missing, ["End", "HostCode"]);
}
