//! The rules of the schedule as properties, and cases that these do not cover.

use super::*;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

const TIMING: HardwareTiming = HardwareTiming { latency_ns: 50, gap_ns: 7 };

fn kernel(duration_ns: u64, launched_ns: u64) -> Operation {
    Operation::new(OperationKind::Kernel, Arc::from("k"), duration_ns, launched_ns)
}

fn machine(streams: u32) -> SimMachine {
    let mut machine = SimMachine::new(TIMING);
    for id in 0..streams {
        machine.add_stream(id, 0, StreamKind::NonBlocking);
    }
    machine
}

proptest! {
    #[test]
    fn streams_are_fifos_that_never_overlap_and_never_start_early(
        launches in prop::collection::vec((0_u32..4, 1_u64..1000, 0_u64..300), 1..200),
    ) {
        let mut machine = machine(4);
        let mut now = 1000;
        for (stream, duration, pause) in launches.clone() {
            now += pause;
            machine.launch(stream, vec![kernel(duration, now)]).expect("stream exists");
        }
        prop_assert!(machine.all_settled());
        let finished = machine.take_finished();
        prop_assert_eq!(finished.len(), launches.len());
        for stream in 0..4 {
            let ops: Vec<_> = finished.iter().filter(|op| op.stream == stream).collect();
            let mut free = 0;
            for op in &ops {
                let earliest = op.operation.launched_ns + TIMING.latency_ns;
                prop_assert_eq!(op.start_ns, earliest.max(free), "as early as permitted and no earlier");
                prop_assert_eq!(op.end_ns, op.start_ns + op.operation.duration_ns);
                free = op.end_ns + TIMING.gap_ns;
            }
            let expected = launches.iter().filter(|launch| launch.0 == stream).map(|launch| launch.1);
            prop_assert!(ops.iter().map(|op| op.operation.duration_ns).eq(expected), "in order");
        }
    }

    #[test]
    fn a_wait_holds_back_what_follows(first in 1_u64..5000, second in 1_u64..5000) {
        let mut machine = machine(2);
        let event = machine.launch(0, vec![kernel(first, 100), Operation::mark(OperationKind::Event, 100)]);
        let mut wait = Operation::mark(OperationKind::Wait, 101);
        wait.after = event.clone().into_iter().collect();
        machine.launch(1, vec![wait]);
        machine.launch(1, vec![kernel(second, 102)]);
        let finished = machine.take_finished();
        let last = finished.last().expect("four operations");
        let recorded = event.and_then(|event| event.end_ns()).expect("settled");
        prop_assert_eq!(recorded, 150 + first);
        prop_assert_eq!(last.start_ns, recorded.max(152));
    }
}

#[test]
fn the_queue_takes_1024_launches_and_empties_as_they_end() {
    let mut machine = machine(1);
    for _ in 0..QUEUE_LIMIT {
        assert!(machine.full(0, 100).is_none());
        machine.launch(0, vec![kernel(1000, 100)]);
    }
    let first = machine.full(0, 100).expect("full");
    let end = first.end_ns().expect("known");
    assert_eq!(end, 1150);
    assert!(machine.full(0, end - 1).is_some());
    assert!(machine.full(0, end).is_none());
}

#[test]
fn a_graph_takes_one_place() {
    let mut machine = machine(1);
    for _ in 0..QUEUE_LIMIT - 1 {
        machine.launch(0, (0..10).map(|_| kernel(1000, 100)).collect());
    }
    assert!(machine.full(0, 100).is_none());
}

#[test]
fn the_legacy_stream_joins_blocking_streams_only() {
    let mut machine = SimMachine::new(TIMING);
    machine.add_stream(0, 0, StreamKind::Legacy);
    machine.add_stream(1, 0, StreamKind::Blocking);
    machine.add_stream(2, 0, StreamKind::NonBlocking);
    machine.add_stream(3, 1, StreamKind::Legacy);
    let starts = |machine: &mut SimMachine, stream| {
        machine.launch(stream, vec![kernel(1000, 100)]).expect("exists");
        machine.take_finished().first().expect("settled").start_ns
    };
    assert_eq!(starts(&mut machine, 1), 150);
    assert_eq!(starts(&mut machine, 2), 150);
    assert_eq!(starts(&mut machine, 0), 1150, "after the blocking stream");
    assert_eq!(starts(&mut machine, 1), 2150, "after the legacy stream");
    assert_eq!(starts(&mut machine, 3), 150, "another device");
}

#[derive(Debug)]
struct Table {
    rank: usize,
    starts: Arc<Mutex<[Option<u64>; 2]>>,
}

impl Rendezvous for Table {
    fn arrive(&mut self, start_ns: u64) {
        self.starts.lock().expect("not poisoned")[self.rank] = Some(start_ns);
    }

    fn last_start_ns(&mut self) -> Option<u64> {
        let starts = self.starts.lock().expect("not poisoned");
        Some(starts[0]?.max(starts[1]?))
    }

    fn identity(&self) -> (Arc<str>, u64) {
        (Arc::from("table"), 0)
    }
}

#[test]
fn a_collective_ends_for_all_after_the_last_has_started() {
    let starts = Arc::new(Mutex::new([None; 2]));
    let collective = |rank, launched_ns| {
        let name = Arc::from("ncclDevKernel_AllReduce");
        let mut operation = Operation::new(OperationKind::Collective, name, 300, launched_ns);
        let starts = Arc::clone(&starts);
        operation.meeting = Some(Box::new(Table { rank, starts }));
        operation
    };
    let (mut early, mut late) = (machine(1), machine(1));
    let end = early.launch(0, vec![collective(0, 100)]).expect("stream");
    let next = early.launch(0, vec![kernel(10, 200)]).expect("stream");
    assert!(end.end_ns().is_none() && next.end_ns().is_none(), "the other rank is missing");
    assert_eq!(early.running_since(0), Some(150));
    late.launch(0, vec![collective(1, 4000)]);
    early.settle();
    assert_eq!(end.end_ns(), Some(4050 + 300));
    assert_eq!(next.end_ns(), Some(4350 + TIMING.gap_ns + 10));
    assert_eq!(late.take_finished().first().expect("settled").end_ns, 4350);
}
