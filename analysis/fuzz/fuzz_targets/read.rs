//! Any bytes as a trace: no panic, an end, and the same result whatever the buffer's size.

#![no_main]

use gctrace_analysis::Analysis;
use gctrace_event::read::EventReader;
use gctrace_event::read::Input;
use gctrace_event::read::TraceReader;
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;

/// The report as JSON, and the error if there was one.
fn analyze(bytes: &[u8], buffer: usize) -> (String, Option<String>) {
    let Ok(input) = Input::new("fuzz", Cursor::new(bytes.to_vec())) else {
        return (String::new(), None);
    };
    let mut reader = TraceReader::new(EventReader::with_buffer(input, buffer));
    let mut analysis = Analysis::default();
    analysis.begin_trace("fuzz");
    let error = loop {
        match reader.next_item() {
            Ok(Some(item)) => analysis.add(item),
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    analysis.end_trace(reader.finish(), None);
    let report = serde_json::to_string(&analysis.report()).expect("a report is JSON");
    // How much text a message can show depends on the buffer.
    let error = error.map(|error| {
        let shown = error.split(", found").next().unwrap_or_default();
        shown
            .split("it begins with")
            .next()
            .unwrap_or_default()
            .to_owned()
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
