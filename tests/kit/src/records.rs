//! Small traces for the tests of this crate.

use gctrace_event::{
    FORMAT, Frame, GcReason, Pause, Record, TraceCompression, TraceEnd, TraceFile, TraceHeader,
};
use std::io::{Read as _, Seek as _};

/// A header that names the format.
pub fn header() -> TraceHeader {
    TraceHeader {
        format: FORMAT.to_owned(),
        gctrace: "0.1.0".to_owned(),
        command: vec!["python".to_owned(), "train.py".to_owned()],
        started_ns: 1_000_000_000,
        started_unix_ns: 1_700_000_000_000_000_000,
        ..TraceHeader::default()
    }
}

/// The n-th of a series of pauses, one each millisecond.
pub fn pause(n: u64) -> Record {
    Record::Pause(Pause {
        pid: 100,
        tid: 100,
        start_ns: 1_000_000_000 + n * 1_000_000,
        end_ns: 1_000_000_000 + n * 1_000_000 + 12_345,
        generation: 0,
        reason: GcReason::Automatic,
        collected: Some(n),
        uncollectable: Some(0),
        interpreter: Some(0),
        cpu_ns: Some(12_000),
        oldest_objects: Some(1_000),
        ..Pause::default()
    })
}

/// A frame that calls others or, with a parent, is called.
pub fn frame(id: u32, parent: Option<u32>) -> Record {
    Record::Frame(Frame {
        id,
        parent,
        function: format!("Model.<locals>.step{}", id % 97),
        file: format!("/srv/training/site-packages/model{}.py", id % 13),
        line: Some(id),
    })
}

/// A pause in a frame.
pub fn pause_in(n: u64, stack: u32) -> Record {
    match pause(n) {
        Record::Pause(pause) => Record::Pause(Pause { stack: Some(stack), ..pause }),
        other => other,
    }
}

/// An end with a reason.
pub fn end(why: &str) -> TraceEnd {
    TraceEnd { ended_ns: 9_000_000_000, why: why.to_owned(), ..TraceEnd::default() }
}

/// The text of a trace with these records.
pub fn written(header: &TraceHeader, records: &[Record], end: &TraceEnd) -> Vec<u8> {
    let mut file = tempfile::tempfile().unwrap();
    let writer = file.try_clone().unwrap();
    let mut trace =
        TraceFile::create(writer, "trace.json".as_ref(), TraceCompression::None, header).unwrap();
    for record in records {
        trace.write(record).unwrap();
    }
    trace.finish(end).unwrap();
    let mut text = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut text).unwrap();
    text
}
