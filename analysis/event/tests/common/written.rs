//! A trace as text.

use gctrace_event::Record;
use gctrace_event::TraceEnd;
use gctrace_event::TraceFile;
use gctrace_event::TraceHeader;
use std::io::Read as _;
use std::io::Seek as _;

/// The text of a trace with these records.
pub(crate) fn written(header: &TraceHeader, records: &[Record], end: &TraceEnd) -> Vec<u8> {
    let mut file = tempfile::tempfile().unwrap();
    let writer = file.try_clone().unwrap();
    let mut trace = TraceFile::create(writer, "trace.json".as_ref(), false, header).unwrap();
    for record in records {
        trace.write(record).unwrap();
    }
    trace.finish(end).unwrap();
    let mut text = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut text).unwrap();
    text
}
