//! Counts of loops' turns beyond the bytes of a day.

use super::{SECOND_NS, Simulated, keeping, reasons};
use crate::args::KeepConfig;
use crate::files::segments::segments_in;
use gctrace_event::read::{DecodedItem, TraceReader};
use gctrace_event::{LoopPlace, Record, TraceEnd, Turn, Turns};
use std::path::Path;
use std::time::Duration;

/// Turns of each record of a segment.
fn counts(path: &Path) -> Vec<u64> {
    let mut reader = TraceReader::open(path).unwrap();
    let mut counts = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        if let DecodedItem::Record(Record::Turns(turns)) = item {
            counts.push(turns.turns);
        }
    }
    counts
}

/// Counts of a loop come each second; a record of each would take more than all other records may.
#[test]
fn turns_of_a_minute_are_one_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let mut recorder = Simulated::start(&path, &keeping(None, Some(1_000_000)));
    let seconds = 150;
    for second in 0..seconds {
        let at_ns = recorder.now.monotonic_ns;
        let lengths = vec![(64, second + 1)];
        let (turns, until_ns) = (second + 1, at_ns + SECOND_NS);
        let turns = Turns { pid: 7, tid: 7, at_ns, until_ns, turns, lengths, ..Turns::default() };
        recorder.trace.write(&Record::Turns(turns));
        recorder.pass(SECOND_NS);
    }
    let ended_ns = recorder.now.monotonic_ns;
    recorder.trace.finish(TraceEnd { ended_ns, ..TraceEnd::default() }).unwrap();
    let records: Vec<u64> = segments_in(&path).iter().flat_map(|(_, part)| counts(part)).collect();
    assert_eq!(records.iter().sum::<u64>(), seconds * (seconds + 1) / 2, "none is lost");
    assert!((2..=4).contains(&records.len()), "{records:?}");
}

/// A long turn of a loop keeps a folder; who waits for one answer has no loop.
#[test]
fn a_long_turn_keeps_the_segments() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let limit = Some(Duration::from_millis(200));
    let keep = KeepConfig { on_turn: limit, ..keeping(Some(600), None) };
    let mut recorder = Simulated::start(&path, &keep);
    for (call, length_ms) in [("epoll_wait", 199), ("recvfrom", 900), ("epoll_wait", 350)] {
        let start_ns = recorder.now.monotonic_ns;
        let place = LoopPlace { call: call.to_owned(), argument: 3 };
        let end_ns = start_ns + length_ms * 1_000_000;
        let turn = Turn { pid: 7, tid: 7, start_ns, end_ns, place, ..Turn::default() };
        recorder.pass(SECOND_NS);
        recorder.trace.write(&Record::Turn(turn));
    }
    recorder.pass(SECOND_NS);
    let reasons = reasons(&path);
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].ends_with(": a turn of 350 ms in process 7\n"), "{reasons:?}");
}
