//! A trace on disk, while it is written and afterwards.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use crate::strategies;
use gctrace_event::read::{DecodedItem, TraceReader};
use gctrace_event::{Counter, Kind, Pressure, Record, TraceCompression, TraceFile};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::records::{end, frame, header, pause, pause_in, written};
use test_kit::schema;

#[test]
fn one_event_per_line_and_valid_json() {
    let bytes = written(&header(), &[pause(0)], &end("the command ended"));
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
        TraceFile::create(File::create(&path).unwrap(), &path, TraceCompression::None, &header())
            .unwrap();
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
    let [gzip, zstd] = ["trace.json.gz", "trace.json.zst"].map(|name| dir.path().join(name));
    for path in [&plain, &gzip, &zstd] {
        let compression = TraceCompression::by_name(path);
        let mut trace =
            TraceFile::create(File::create(path).unwrap(), path, compression, &header()).unwrap();
        (0..5000).for_each(|n| trace.write(&pause(n)).unwrap());
        trace.finish(&end("the command ended")).unwrap();
    }
    let text = std::fs::read_to_string(&plain).unwrap();
    for (program, path) in [("gzip", &gzip), ("zstd", &zstd)] {
        let unpacked = Command::new(program).arg("-dc").arg(path).output_in_time();
        let Ok(unpacked) = unpacked.inspect_err(|error| eprintln!("skipped: {program}: {error}"))
        else {
            continue;
        };
        assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
        assert!(text.as_bytes() == unpacked.stdout, "{program}");
    }

    let (mut from, to) = std::io::pipe().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).map(|_| text)
    });
    let file = File::from(std::os::fd::OwnedFd::from(to));
    let mut trace =
        TraceFile::create(file, "pipe".as_ref(), TraceCompression::None, &header()).unwrap();
    (0..5000).for_each(|n| trace.write(&pause(n)).unwrap());
    trace.finish(&end("the command ended")).unwrap();
    assert!(text == reader.join().unwrap().unwrap());
}

#[test]
fn a_compressed_trace_is_readable_up_to_the_last_flush() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["trace.json.gz", "trace.json.zst"] {
        let path = dir.path().join(name);
        let compression = TraceCompression::by_name(&path);
        let mut trace =
            TraceFile::create(File::create(&path).unwrap(), &path, compression, &header()).unwrap();
        (0..100).for_each(|n| trace.write(&pause(n)).unwrap());
        trace.flush().unwrap();
        let mut bytes = Vec::new();
        let error = unpacker(&path).read_to_end(&mut bytes).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.matches(r#""cat":"gc""#).count(), 100);
        assert!(text.ends_with("}}"));
    }
}

/// What the libraries themselves unpack.
fn unpacker(path: &Path) -> Box<dyn Read> {
    let file = File::open(path).unwrap();
    match TraceCompression::by_name(path) {
        TraceCompression::None => Box::new(file),
        TraceCompression::Gzip => Box::new(flate2::read::GzDecoder::new(file)),
        TraceCompression::Zstd => Box::new(zstd::Decoder::new(file).unwrap()),
    }
}

/// A compressed trace that is cut anywhere is read up to the last flush before the cut.
#[test]
fn a_compressed_trace_that_is_cut_is_readable_up_to_the_flush_before() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["trace.json.gz", "trace.json.zst"] {
        let path = dir.path().join(name);
        let compression = TraceCompression::by_name(&path);
        let mut trace =
            TraceFile::create(File::create(&path).unwrap(), &path, compression, &header()).unwrap();
        // Bytes of the file, and pauses in them, after each flush; intervals of 1 to 49 pauses.
        let mut flushes = vec![(trace.bytes(), 0)];
        let mut count = 0;
        for interval in 1..50 {
            (0..interval)
                .for_each(|n| trace.write(&pause_in((count + n) * 7919 % 100_003, 1)).unwrap());
            count += interval;
            trace.flush().unwrap();
            flushes.push((trace.bytes(), count));
        }
        let size = trace.finish(&end("the command ended")).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, size);
        let boundaries = flushes.iter().flat_map(|(at, _)| [*at, at + 1, at - 1]);
        let anywhere = (0..200).map(|n| flushes[0].0 + n * (size - flushes[0].0) / 200);
        for cut in boundaries.chain(anywhere) {
            let cut = cut.max(flushes[0].0);
            let flushed =
                flushes.iter().filter(|(at, _)| *at <= cut).map(|(_, count)| *count).max();
            std::fs::write(&path, &bytes[..cut.try_into().unwrap()]).unwrap();
            let mut reader = TraceReader::open(&path).unwrap();
            let mut read = 0;
            while let Some(item) = reader.next_item().unwrap() {
                read += u64::from(matches!(item, DecodedItem::Record(Record::Pause(_))));
            }
            assert!(reader.finish().cut.is_some(), "{name} at {cut}");
            assert!(Some(read) >= flushed, "{name} at {cut}: {read} of {flushed:?}");
        }
    }
}

#[test]
fn stacks_and_counters_in_a_line() {
    let Record::Pause(mut pause) = pause_in(0, 2) else { unreachable!() };
    pause.young_count = Some(701);
    pause.counters.set(Counter::PageFaults, 3);
    pause.counters.set(Counter::Cycles, 40_000);
    pause.counters.migrated = true;
    let records = [frame(1, None), frame(2, Some(1)), Record::Pause(pause)];
    let text = String::from_utf8(written(&header(), &records, &end("interrupted"))).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[2],
        concat!(
            r#"{"ph":"M","name":"gctrace_frame","pid":0,"tid":0,"args":{"id":2,"parent":1,"#,
            r#""function":"Model.<locals>.step2","#,
            r#""file":"/srv/training/site-packages/model2.py","line":2}},"#
        )
    );
    assert!(lines[3].contains(r#""dur":12.345,"sf":2,"args":{"#), "{text}");
    let counters =
        r#""young_count":701,"counters":{"cycles":40000,"page-faults":3,"migrated":true}}},"#;
    assert!(lines[3].ends_with(counters), "{text}");
    let section = concat!(
        "\n],\n\"stackFrames\":{\n",
        r#""1":{"name":"Model.<locals>.step1 (/srv/training/site-packages/model1.py:1)","#,
        r#""category":"python"},"#,
        "\n",
        r#""2":{"name":"Model.<locals>.step2 (/srv/training/site-packages/model2.py:2)","#,
        r#""category":"python","parent":"1"}"#,
        "\n}}\n"
    );
    assert!(text.ends_with(section), "{text}");
}

/// The text that gctrace has written since format 1 for a record of each kind, with all its members
/// and with none, is read and written again byte for byte. A new kind gets its lines as docs are made.
#[test]
fn the_text_of_every_record_stays() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/every-record.json"));
    let mut reader = TraceReader::open(path).unwrap();
    let (mut header, mut records) = (None, Vec::new());
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            DecodedItem::Header(read) => header = Some(read),
            DecodedItem::Record(record) => records.push(record),
            _ => {}
        }
    }
    assert_eq!(reader.finish().anomalies.count, 0);
    let is_there = |kind: &Kind| records.iter().any(|record| record.kind() == kind);
    let new = Record::KINDS.iter().filter(|(_, _, kind)| !is_there(kind));
    let new: Vec<_> = new.flat_map(|(_, _, kind)| strategies::examples(kind.name)).collect();
    let Some(Record::End(end)) = records.pop() else { unreachable!() };
    records.extend(new);
    let text = String::from_utf8(written(&header.unwrap(), &records, &end)).unwrap();
    schema::assert_made(path, &text, "-p gctrace-event --test plain the_text_of_every_record");
}

/// Writes pauses in a tree of `frames` stacks, each written when first needed.
fn write_stacks(trace: &mut TraceFile, frames: u32) {
    for id in 1..=frames {
        let parent = Some(id / 2).filter(|parent| *parent > 0);
        trace.write(&frame(id, parent)).unwrap();
        trace.write(&pause_in(id.into(), id)).unwrap();
    }
}

/// Whether a Python on the path finds every stack whole.
fn python_agrees(path: &Path, pauses: u32) -> bool {
    const CHECK: &str = r#"
import gzip, json, sys
opened = gzip.open if sys.argv[1].endswith(".gz") else open
with opened(sys.argv[1], "rt", encoding="utf-8") as file:
    trace = json.load(file)
frames = trace["stackFrames"]
events = {e["args"]["id"]: e["args"] for e in trace["traceEvents"] if e["name"] == "gctrace_frame"}
assert {str(id) for id in events} == set(frames)
pauses = [e for e in trace["traceEvents"] if e.get("cat") == "gc"]
assert len(pauses) == int(sys.argv[2]), len(pauses)
for pause in pauses:
    seen, id = set(), str(pause["sf"])
    while id is not None:
        assert id not in seen, "a circle"
        seen.add(id)
        frame, event = frames[id], events[int(id)]
        assert frame["category"] == "python"
        assert frame["name"] == f"{event['function']} ({event['file']}:{event['line']})"
        id = frame.get("parent")
        assert id == (str(event["parent"]) if "parent" in event else None)
    assert len(seen) == pause["sf"].bit_length(), "as deep as the tree is"
"#;
    match Command::new("python3")
        .args(["-c", CHECK])
        .arg(path)
        .arg(pauses.to_string())
        .output_in_time()
    {
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{error}");
            true
        }
        Err(error) => {
            eprintln!("skipped: no python3 to read the trace with: {error}");
            false
        }
    }
}

#[test]
fn python_reads_whole_stacks() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["trace.json", "trace.json.gz"] {
        let path = dir.path().join(name);
        let compression = TraceCompression::by_name(&path);
        let file = File::create(&path).unwrap();
        let mut trace = TraceFile::create(file, &path, compression, &header()).unwrap();
        write_stacks(&mut trace, 5000);
        let size = trace.finish(&end("the command ended")).unwrap();
        assert_eq!(size, path.metadata().unwrap().len());
        if !python_agrees(&path, 5000) {
            return;
        }
    }
}

/// The reader's result: frames, pauses with a frame seen before, whether the file is cut off.
fn stacks_read(path: &Path) -> (usize, usize, bool) {
    let mut reader = TraceReader::open(path).unwrap();
    let mut frames = std::collections::HashSet::new();
    let mut pauses = 0;
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            DecodedItem::Record(Record::Frame(frame)) => {
                assert!(frame.parent.is_none_or(|parent| frames.contains(&parent)));
                assert!(frames.insert(frame.id), "frames are read once");
            }
            DecodedItem::Record(Record::Pause(pause)) => {
                assert!(frames.contains(&pause.stack.unwrap()));
                pauses += 1;
            }
            _ => {}
        }
    }
    let ending = reader.finish();
    assert_eq!(ending.anomalies.count, 0);
    (frames.len(), pauses, ending.cut.is_some())
}

#[test]
fn a_killed_recorder_leaves_its_stacks() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["trace.json", "trace.json.gz", "trace.json.zst"] {
        let path = dir.path().join(name);
        let compression = TraceCompression::by_name(&path);
        let cut = compression != TraceCompression::None;
        let file = File::create(&path).unwrap();
        let mut trace = TraceFile::create(file, &path, compression, &header()).unwrap();
        write_stacks(&mut trace, 3000);
        trace.flush().unwrap();
        // As killed: nothing of it runs any more.
        std::mem::forget(trace);
        assert_eq!(stacks_read(&path), (3000, 3000, cut));
        if !cut {
            let text = std::fs::read_to_string(&path).unwrap();
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert!(json["stackFrames"].is_null());
        }
    }
}

/// No viewer opens zstd, so the section that is theirs is not written.
#[test]
fn stacks_are_once_in_zstd() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json.zst");
    let file = File::create(&path).unwrap();
    let mut trace = TraceFile::create(file, &path, TraceCompression::Zstd, &header()).unwrap();
    write_stacks(&mut trace, 3000);
    let size = trace.finish(&end("the command ended")).unwrap();
    assert_eq!(size, path.metadata().unwrap().len());
    let mut text = String::new();
    unpacker(&path).read_to_string(&mut text).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(json["stackFrames"].is_null());
    assert_eq!(stacks_read(&path), (3000, 3000, false));
}

#[test]
fn stacks_are_the_same_through_a_pipe_and_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let mut trace =
        TraceFile::create(File::create(&path).unwrap(), &path, TraceCompression::None, &header())
            .unwrap();
    write_stacks(&mut trace, 2000);
    trace.finish(&end("the command ended")).unwrap();
    assert_eq!(stacks_read(&path), (2000, 2000, false));

    let (mut from, to) = std::io::pipe().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).map(|_| text)
    });
    let file = File::from(std::os::fd::OwnedFd::from(to));
    let mut trace =
        TraceFile::create(file, "pipe".as_ref(), TraceCompression::None, &header()).unwrap();
    write_stacks(&mut trace, 2000);
    trace.finish(&end("the command ended")).unwrap();
    let text = reader.join().unwrap().unwrap();
    assert!(text == std::fs::read_to_string(&path).unwrap());
}

#[test]
fn pressure_is_shown_on_timelines() {
    let pressure = Pressure {
        pid: 100,
        since_ns: 1_000_000_000,
        at_ns: 3_000_000_000,
        collections: 4,
        net_containers: 2800,
        counts: Some([12, 3, 1]),
        arenas_mapped: Some(6),
        arenas_unmapped: Some(2),
        ..Pressure::default()
    };
    let records = [Record::Pressure(pressure)];
    let text = String::from_utf8(written(&header(), &records, &end("interrupted"))).unwrap();
    let lines: Vec<&str> = text.lines().skip(1).take(4).collect();
    assert_eq!(
        lines,
        [
            concat!(
                r#"{"ph":"M","name":"gctrace_pressure","pid":100,"tid":100,"ts":3000000.000,"#,
                r#""args":{"since_ns":1000000000,"collections":4,"net_containers":2800,"#,
                r#""counts":[12,3,1],"arenas_mapped":6,"arenas_unmapped":2}},"#
            ),
            concat!(
                r#"{"ph":"C","cat":"gctrace","name":"allocation","pid":100,"tid":100,"#,
                r#""ts":1000000.000,"args":{"net containers per second":1400}},"#
            ),
            concat!(
                r#"{"ph":"C","cat":"gctrace","name":"gc count","pid":100,"tid":100,"#,
                r#""ts":3000000.000,"args":{"gen0":12,"gen1":3,"gen2":1}},"#
            ),
            concat!(
                r#"{"ph":"C","cat":"gctrace","name":"arenas","pid":100,"tid":100,"#,
                r#""ts":3000000.000,"args":{"mapped less unmapped":4}},"#
            ),
        ]
    );
}
