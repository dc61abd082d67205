//! Arbitrary bytes as a trace, next to one of gctrace's: no panic, termination, and the same result
//! for every buffer size.

#![no_main]

use gctrace_analysis::Analysis;
use gctrace_event::read::{EventReader, TraceInput, TraceReader};
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;

/// A trace of process 8, of the time of `seeds/read/gctrace-and-waits.json`.
const OURS: &str = r#"{"traceEvents":[
{"ph":"M","name":"gctrace_header","ts":0,"args":{"format":"gctrace.trace/1","started_unix_ns":1700000000000000000}},
{"ph":"X","cat":"gc","name":"gc gen2","pid":8,"tid":8,"ts":1500000,"dur":500,"args":{"generation":2}},
{"ph":"X","cat":"gc","name":"gc gen0","pid":8,"tid":9,"ts":1510000,"dur":500,"args":{"generation":0}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":8,"tid":8,"ts":1500600,"dur":0},
{"ph":"M","name":"gctrace_end","ts":9000000,"args":{}}]}"#;

fn add_ours(analysis: &mut Analysis) {
    let input = TraceInput::new("ours", Cursor::new(OURS.as_bytes())).expect("it is in memory");
    let mut reader = TraceReader::new(EventReader::new(input));
    analysis.begin_trace("ours");
    while let Ok(Some(item)) = reader.next_item() {
        analysis.add(item);
    }
    analysis.end_trace(reader.finish(), None);
}

/// The report as JSON, and the error if there was one.
fn analyze(bytes: &[u8], buffer: usize) -> (String, Option<String>) {
    let Ok(input) = TraceInput::new("fuzz", Cursor::new(bytes.to_vec())) else {
        return (String::new(), None);
    };
    let mut reader = TraceReader::new(EventReader::with_buffer(input, buffer));
    let mut analysis = Analysis::default();
    add_ours(&mut analysis);
    analysis.begin_trace("fuzz");
    let error = loop {
        match reader.next_item() {
            Ok(Some(item)) => analysis.add(item),
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    analysis.end_trace(reader.finish(), None);
    analysis.settle();
    let report = serde_json::to_string(&analysis.report()).expect("a report is JSON");
    // How much text a message can show depends on the buffer.
    let error = error.map(|error| {
        let shown = error.split(", found").next().unwrap_or_default();
        shown.split("it starts with").next().unwrap_or_default().to_owned()
    });
    (report, error)
}

fuzz_target!(|bytes: &[u8]| {
    let (report, error) = analyze(bytes, 16);
    let (same_report, same_error) = analyze(bytes, 64 * 1024);
    // The decompressor gives what precedes damage, or not, by the size of the buffer.
    if bytes.starts_with(b"\x1f\x8b") {
        return;
    }
    assert_eq!(error, same_error);
    if error.is_none() {
        assert_eq!(report, same_report);
    }
});
