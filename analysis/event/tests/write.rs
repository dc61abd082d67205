//! What a trace on disk looks like while it is written and afterwards.

mod common;

use common::end;
use common::header;
use common::pause;
use gctrace_event::TraceFile;
use gctrace_event::TraceWriter;
use std::fs::File;
use std::io::Read;

#[test]
fn one_event_per_line_and_valid_json() {
    let mut writer = TraceWriter::new(Vec::new(), &header()).unwrap();
    writer.write(&pause(0)).unwrap();
    let bytes = writer.finish(&end("the command ended")).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].contains(r#""name":"gctrace_header""#));
    assert_eq!(
        lines[1],
        concat!(
            r#"{"ph":"X","cat":"gc","name":"gc gen0","pid":100,"tid":100,"ts":1000000.000,"dur":12.345,"#,
            r#""args":{"reason":"automatic","generation":0,"collected":0,"uncollectable":0,"#,
            r#""interpreter":0,"cpu_ns":12000,"oldest_objects":1000}},"#
        )
    );
    assert!(lines[2].contains(r#""name":"gctrace_end""#));
    assert_eq!(lines[3], "]}");
    serde_json::from_str::<serde_json::Value>(&text).unwrap();
}

#[test]
fn a_plain_trace_is_valid_json_after_every_flush() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let mut trace =
        TraceFile::create(File::create(&path).unwrap(), &path, false, &header()).unwrap();
    for n in 0..20 {
        trace.write(&pause(n)).unwrap();
        trace.flush().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["traceEvents"].as_array().unwrap().len() as u64, n + 2);
        assert_eq!(text.len() as u64, trace.bytes());
    }
    let size = trace.finish(&end("interrupted")).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.len() as u64, size);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["traceEvents"].as_array().unwrap().len(), 22);
}

#[test]
fn the_same_text_plain_compressed_and_through_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("trace.json");
    let compressed = dir.path().join("trace.json.gz");
    for (path, gz) in [(&plain, false), (&compressed, true)] {
        let mut trace =
            TraceFile::create(File::create(path).unwrap(), path, gz, &header()).unwrap();
        (0..5000).for_each(|n| trace.write(&pause(n)).unwrap());
        trace.finish(&end("the command ended")).unwrap();
    }
    let text = std::fs::read_to_string(&plain).unwrap();
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(File::open(&compressed).unwrap())
        .read_to_string(&mut unpacked)
        .unwrap();
    assert!(text == unpacked);

    let (mut from, to) = std::io::pipe().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).map(|_| text)
    });
    let file = File::from(std::os::fd::OwnedFd::from(to));
    let mut trace = TraceFile::create(file, "pipe".as_ref(), false, &header()).unwrap();
    (0..5000).for_each(|n| trace.write(&pause(n)).unwrap());
    trace.finish(&end("the command ended")).unwrap();
    assert!(text == reader.join().unwrap().unwrap());
}

#[test]
fn a_compressed_trace_is_readable_up_to_the_last_flush() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json.gz");
    let mut trace =
        TraceFile::create(File::create(&path).unwrap(), &path, true, &header()).unwrap();
    (0..100).for_each(|n| trace.write(&pause(n)).unwrap());
    trace.flush().unwrap();
    let mut bytes = Vec::new();
    let error = flate2::read::GzDecoder::new(File::open(&path).unwrap())
        .read_to_end(&mut bytes)
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.matches(r#""cat":"gc""#).count(), 100);
    assert!(text.ends_with("}}"));
}
