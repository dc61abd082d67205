//! Arbitrary bytes as records of the live view: figures at any time, no panic, no endless loop.

#![no_main]

use gctrace_analysis::live::{Live, SnapshotRequest};
use gctrace_event::read::{DecodedItem, EventReader, TraceInput, TraceReader};
use gctrace_event::{Record, TraceHeader};
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;

/// For records with a timestamp, figures are taken at that time, and at the smallest and largest
/// time.
fn timestamps(record: &Record) -> [u64; 3] {
    let at_ns = match record {
        Record::Pause(pause) => pause.end_ns,
        Record::ProcessExit(exit) => exit.at_ns,
        _ => 0,
    };
    [at_ns, at_ns.saturating_add(1_000_000_000), u64::MAX]
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(input) = TraceInput::new("fuzz", Cursor::new(bytes.to_vec())) else {
        return;
    };
    let mut reader = TraceReader::new(EventReader::new(input));
    let mut live = Live::new(TraceHeader::default(), 1_000_000);
    let mut asked = 0;
    while let Ok(Some(item)) = reader.next_item() {
        let DecodedItem::Record(record) = item else { continue };
        live.record(&record);
        // A snapshot walks everything: not after each of thousands of records.
        if asked < 16 {
            asked += 1;
            for (turn, now_ns) in timestamps(&record).into_iter().enumerate() {
                let detail = (turn > 0).then_some(8);
                let interval_ns = 100_000_000 << (turn * 8);
                let request = SnapshotRequest { now_ns, interval_ns, detail };
                serde_json::to_string(&live.snapshot(&request)).expect("a snapshot is JSON");
            }
        }
    }
});
