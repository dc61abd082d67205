//! The trace records of an interpreter's ring, without an interpreter.

use super::*;
use crate::record::inprocess::ring_event::decoded;
use gctrace_event::Record;
use gctrace_ring::{
    PythonMessage as Raw, RingBirthCount, RingCycleCount, RingCycleEdge, RingGarbage,
    RingKindCount, RingLayer, RingLayers,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn ring_events(ring: &mut PythonRing, frames: &mut FrameTree, records: &[Raw]) -> Vec<RingEvent> {
    let mut ring_events = Vec::new();
    for record in records {
        ring.take(record.clone(), frames, &mut ring_events);
    }
    ring_events
}

fn start(at_ns: u64, tid: u32) -> Raw {
    Raw::PauseStart { at_ns, tid, generation: 2, interpreter: 0 }
}

fn pause(start_ns: u64, end_ns: u64, tid: u32, frame: u32) -> Raw {
    Raw::Pause(RingPause {
        interval: TimeInterval { start_ns, end_ns },
        tid,
        generation: 2,
        collected: Some(5),
        uncollectable: Some(1),
        frame,
        ..RingPause::default()
    })
}

fn frame(id: u32, parent: u32, line: u32) -> Raw {
    Raw::Frame { id, parent, function: 1, file: 2, line }
}

fn names() -> Vec<Raw> {
    [(1, "work"), (2, "a.py")].map(|(id, text)| Raw::Text { id, text: text.into() }).into()
}

#[test]
fn marks_have_the_profilers_names() {
    let mark =
        |marker, name| Raw::StepMark { at_ns: 40, end_ns: 50, tid: 9, cpu_ns: 30, marker, name };
    use gctrace_ring::StepMarker as From;
    let mut given = names();
    let unknown = 77;
    given.extend([
        mark(From::Function, 1),
        mark(From::Optimizer, 1),
        mark(From::Backward, gctrace_ring::NO_TEXT),
        mark(From::DataLoader, unknown),
    ]);
    let mut frames = FrameTree::default();
    let events = ring_events(&mut PythonRing::new(7, (0, 0)), &mut frames, &given);
    let expected = [
        "step function work",
        "Optimizer.step#work.step",
        "backward",
        "enumerate(DataLoader)#[name lost].__next__",
    ];
    let marks: Vec<String> = events
        .iter()
        .map(|event| match event {
            RingEvent::Record(Record::Step(step)) => {
                assert_eq!((step.pid, step.tid), (7, 9));
                assert_eq!((step.start_ns, step.end_ns, step.cpu_ns), (40, 50, Some(30)));
                step.marker.annotation().into_owned()
            }
            other => unreachable!("{other:?}"),
        })
        .collect();
    assert_eq!(marks, expected);
}

#[test]
fn frames_of_two_processes_share_their_names() {
    let mut frames = FrameTree::default();
    let mut given = names();
    given.extend([frame(1, 0, 3), frame(2, 1, 4), pause(10, 20, 7, 2)]);
    let first = ring_events(&mut PythonRing::new(7, (0, 0)), &mut frames, &given);
    // The other process saw them in another order, under other ids.
    let mut given = names();
    given.extend([frame(5, 0, 9), frame(6, 0, 3), frame(7, 6, 4), pause(30, 40, 8, 7)]);
    let second = ring_events(&mut PythonRing::new(8, (0, 0)), &mut frames, &given);
    let stack = |ring_events: &[RingEvent]| match ring_events.last() {
        Some(RingEvent::Record(Record::Pause(pause))) => pause.stack,
        other => panic!("a pause: {other:?}"),
    };
    assert_eq!(stack(&first), Some(2));
    assert_eq!(stack(&second), Some(2));
    assert_eq!((first.len(), second.len()), (3, 2), "known frames are not written again");
}

#[test]
fn a_collection_in_which_the_process_died_is_unfinished() {
    let mut frames = FrameTree::default();
    let mut ring = PythonRing::new(7, (0, 0));
    let given = [start(10, 7), pause(10, 20, 7, 0), start(30, 8)];
    assert_eq!(ring_events(&mut ring, &mut frames, &given).len(), 1);
    let mut left = Vec::new();
    ring.ended(50, false, &mut left);
    let [RingEvent::Record(Record::Pause(pause))] = left.as_slice() else {
        panic!("one pause: {left:?}");
    };
    assert!(pause.unfinished);
    assert_eq!((pause.tid, pause.start_ns, pause.end_ns), (8, 30, 50));
    assert_eq!(pause.source, EventSource::Injected);
}

#[test]
fn lost_ends_do_not_make_collections_unfinished() {
    let mut ring = PythonRing::new(7, (0, 0));
    ring_events(&mut ring, &mut FrameTree::default(), &[start(30, 8)]);
    let mut left = Vec::new();
    ring.ended(50, true, &mut left);
    assert!(left.is_empty());
}

#[test]
fn a_collection_that_hangs_when_the_recording_ends_is_unfinished() {
    let mut ring = PythonRing::new(7, (0, 0));
    let given = [start(30, 8), start(5_000_000_000, 9)];
    ring_events(&mut ring, &mut FrameTree::default(), &given);
    let mut left = Vec::new();
    ring.left(6_000_000_000, false, &mut left);
    let [RingEvent::Record(Record::Pause(pause))] = left.as_slice() else {
        panic!("one pause: {left:?}");
    };
    assert_eq!((pause.unfinished, pause.tid, pause.end_ns), (true, 8, 6_000_000_000));
}

#[test]
fn missed_collections_are_counted_and_reported() {
    let given = [
        Raw::Hook { at_ns: 3, state: HookState::Installed, interpreter: 0, detail: 0, count: 6 },
        Raw::Hook { at_ns: 5, state: HookState::Restored, interpreter: 0, detail: 0, count: 12 },
    ];
    let stats = ring_events(&mut PythonRing::new(7, (0, 0)), &mut FrameTree::default(), &given);
    let [
        RingEvent::SeenSince(3),
        RingEvent::Unseen(UnseenCollections { at_start: 6, at_end: 0, uncounted: 0, end_ns: 0 }),
        RingEvent::Missed(MISSED, 12),
        RingEvent::Notice(notice),
    ] = stats.as_slice()
    else {
        panic!("since when, how many, why: {stats:?}");
    };
    assert!(notice.weight == NoticeLevel::Warning && notice.text.contains("gc.callbacks"));
}

#[test]
fn an_end_that_is_not_counted_is_reported() {
    let hook =
        |state, interpreter, count| Raw::Hook { at_ns: 3, state, interpreter, detail: 0, count };
    let given = [
        hook(HookState::Installed, 1, HookState::UNCOUNTED),
        hook(HookState::Ending, 1, 0),
        hook(HookState::Ending, 2, 0),
        hook(HookState::Ended, 2, 3),
    ];
    let mut ring = PythonRing::new(7, (0, 0));
    let mut all = ring_events(&mut ring, &mut FrameTree::default(), &given);
    ring.ended(9, false, &mut all);
    let mut sum = UnseenCollections::default();
    for event in &all {
        if let RingEvent::Unseen(unseen) = event {
            sum.add(*unseen);
        }
    }
    assert_eq!(sum, UnseenCollections { at_start: 0, at_end: 3, uncounted: 2, end_ns: 0 });
}

fn garbage(at_ns: u64, tid: u32, kinds: &[u32]) -> Raw {
    let kinds = kinds.iter().map(|kind| RingKindCount {
        kind: *kind,
        objects: 4,
        bytes: (*kind != 1).then_some(64),
    });
    let cycle = RingCycleCount { cycle: 1, count: 3, objects: 6, held_objects: 1, bytes: Some(80) };
    Raw::Garbage(RingGarbage {
        at_ns,
        tid,
        objects: 9,
        cost_ns: 4,
        kinds: kinds.collect(),
        births: vec![RingBirthCount { kind: 2, samples: 3 }],
        cycles: Some(vec![cycle]),
        ..RingGarbage::default()
    })
}

fn kind(id: u32) -> Raw {
    Raw::ObjectKind {
        id,
        type_name: 1,
        function: gctrace_ring::NO_TEXT,
        file: gctrace_ring::NO_TEXT,
        line: 0,
    }
}

#[test]
fn garbage_of_two_threads_precedes_its_pauses() {
    let mut given = names();
    let edges = vec![RingCycleEdge { kind: 2, name: 2 }];
    given.extend([kind(1), kind(2), Raw::Cycle { id: 1, edges }]);
    given.extend([garbage(15, 7, &[2, 1, 2]), garbage(16, 8, &[2])]);
    given.extend([pause(10, 20, 8, 0), pause(10, 20, 7, 0), pause(30, 40, 7, 0)]);
    // The process executed another program: its numbers continue.
    let mut ring = PythonRing::new(7, (10, 20));
    let events = ring_events(&mut ring, &mut FrameTree::default(), &given);
    assert_eq!(ring.last_numbers(), (12, 21));
    let records: Vec<&Record> = events
        .iter()
        .map(|event| match event {
            RingEvent::Record(record) => record,
            other => unreachable!("{other:?}"),
        })
        .collect();
    let [
        Record::ObjectKind(first),
        Record::ObjectKind(_),
        Record::CycleSignature(signature),
        Record::Garbage(of_eight),
        Record::Pause(_),
        Record::Garbage(of_seven),
        Record::Pause(_),
        Record::Pause(_),
    ] = records.as_slice()
    else {
        panic!("{records:?}")
    };
    assert_eq!((first.id, first.name.type_name.as_str()), (11, "work"));
    assert_eq!(signature.id, 21);
    assert_eq!(signature.edges[0].kind, 12);
    assert_eq!(signature.edges[0].name.as_deref(), Some("a.py"));
    assert_eq!((of_eight.tid, of_eight.kinds.len()), (8, 1));
    let kinds: Vec<_> = of_seven.kinds.iter().map(|kind| (kind.kind, kind.bytes)).collect();
    assert_eq!(kinds, [(12, Some(64)), (11, None), (12, Some(64))]);
    let births = of_seven.births.iter().map(|birth| (birth.kind, birth.samples));
    assert_eq!(births.collect::<Vec<_>>(), [(12, 3)]);
    let cycle = of_seven.cycles.as_ref().and_then(|cycles| cycles.first());
    assert_eq!(cycle.map(|count| (count.cycle, count.count)), Some((21, 3)));
}

#[test]
fn layers_as_in_a_table_that_was_lost_are_not_written() {
    let step = |table, rows| {
        let rows = vec![RingLayer::default(); rows];
        Raw::Layers(RingLayers { table, rows, ..RingLayers::default() })
    };
    let mut ring = PythonRing::new(7, (0, 0));
    let mut written = |message| {
        let events = ring_events(&mut ring, &mut FrameTree::default(), &[message]);
        events.iter().any(|event| matches!(event, RingEvent::Record(Record::Layers(_))))
    };
    assert!(!written(step(1, 0)), "the first did not come");
    assert!(written(step(2, 1)) && written(step(2, 0)));
    // That of number 3 did not come.
    assert!(!written(step(3, 0)));
    assert!(written(step(4, 2)) && written(step(4, 0)));
}

#[test]
fn collectors_by_version() {
    assert_eq!(collector("3.14.0rc2", false), CollectorKind::Incremental);
    assert_eq!(collector("3.14.4+", false), CollectorKind::Incremental);
    assert_eq!(collector("3.14.5", false), CollectorKind::Generational);
    assert_eq!(collector("3.14.10", false), CollectorKind::Generational);
    assert_eq!(collector("3.14.2", true), CollectorKind::FreeThreaded);
    assert_eq!(collector("3.9.18", false), CollectorKind::Generational);
    assert_eq!(collector("", false), CollectorKind::Generational);
}

proptest! {
    #[test]
    fn whatever_the_memory_contains_every_pause_is_written_once(
        bytes in vec(vec(prop_oneof![0..4_u8, any::<u8>()], 0..60), 0..200),
        kinds in vec(1..20_u8, 200),
    ) {
        let decoded: Vec<Raw> = decoded(&bytes, kinds);
        let expected = decoded.iter().filter(|raw| matches!(raw, Raw::Pause { .. })).count();
        let stats = ring_events(&mut PythonRing::new(7, (0, 0)), &mut FrameTree::default(), &decoded);
        let pauses = stats.iter().filter(|one| matches!(one, RingEvent::Record(Record::Pause(_))));
        prop_assert_eq!(pauses.count(), expected);
        for one in &stats {
            if let RingEvent::Record(Record::Pause(pause)) = one {
                prop_assert!(pause.end_ns >= pause.start_ns);
            }
        }
    }
}

/// Both sources report a stack that was cut off in the same way.
#[test]
fn frames_that_were_not_recorded_have_one_name() {
    assert_eq!(gctrace_ring::OUTER_FRAMES, gctrace_event::Frame::OUTER);
}

#[test]
fn every_note_of_a_hook_is_one_line() {
    use HookState::*;
    let noted = [
        Restored,
        GivenUp,
        Bypassed,
        Failed,
        NotWatchingFunction,
        NotExaminingGarbage,
        NotCountingAllocations,
        NotMeasuringLayers,
    ];
    for state in noted {
        let change = Raw::Hook { at_ns: 3, state, interpreter: 0, detail: 0, count: 6 };
        let mut ring = PythonRing::new(7, (0, 0));
        let events = ring_events(&mut ring, &mut FrameTree::default(), &[change]);
        let note = events.iter().find_map(|event| match event {
            RingEvent::Notice(notice) => Some(&notice.text),
            _ => None,
        });
        let text = note.unwrap_or_else(|| panic!("{state:?}"));
        assert!(!text.contains('\n') && !text.contains("  "), "{state:?}: {text:?}");
    }
}
