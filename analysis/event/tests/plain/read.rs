//! Files of other tools and files that are no traces.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_event::read::{
    DecodedItem, EventReader, ReadError, TraceCompletion, TraceInput, TraceReader,
};
use gctrace_event::{Counter, Frame, FrameId, GcReason, Pause, Record};
use std::io::{Cursor, Write};

/// The collections of a trace, the number of other items, and how it ended.
fn collections(text: &[u8]) -> Result<(Vec<Pause>, usize, TraceCompletion), ReadError> {
    let input = TraceInput::new("t.json", Cursor::new(text.to_vec()))?;
    let mut reader = TraceReader::new(EventReader::with_buffer(input, 32));
    let mut pauses = Vec::new();
    let mut others = 0;
    while let Some(item) = reader.next_item()? {
        match item {
            DecodedItem::Record(Record::Pause(pause)) => pauses.push(pause),
            _ => others += 1,
        }
    }
    Ok((pauses, others, reader.finish()))
}

fn error(text: &[u8]) -> String {
    collections(text).unwrap_err().to_string()
}

#[test]
fn array_form_pretty_printed_in_any_order() {
    let text = br#"
    [
      { "args": {"collected": 7}, "dur": "2.5", "ts": 10,
        "tid": 2, "pid": 1, "name": "gc gen1", "cat": "gc", "ph": "X" },
      {"ph":"B","name":"work","pid":1,"tid":1,"ts":1},
      {"ph":"X","cat":"gc","name":"gc","pid":1,"tid":1,"ts":1e3,"dur":0}
    ]"#;
    let (pauses, others, ending) = collections(text).unwrap();
    assert_eq!(others, 1);
    assert_eq!(pauses.len(), 2);
    assert_eq!((pauses[0].start_ns, pauses[0].end_ns), (10_000, 12_500));
    assert_eq!(pauses[0].generation, 1);
    assert_eq!(pauses[0].collected, Some(7));
    assert_eq!(pauses[0].reason, GcReason::Unknown);
    assert_eq!(pauses[1].generation, Pause::UNKNOWN_GENERATION);
    assert_eq!(pauses[1].start_ns, 1_000_000);
    assert_eq!(ending.cut, None);
    assert_eq!(ending.anomalies.count, 0);
}

#[test]
fn array_form_may_lack_its_closing_bracket() {
    let (pauses, _, ending) =
        collections(br#"[{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":1,"dur":1},"#).unwrap();
    assert_eq!(pauses.len(), 1);
    assert_eq!(ending.cut, None);
}

#[test]
fn pytorch_profiler_with_large_other_sections() {
    let section = format!(r#"{{"a":[{}"x\"]}}"]}}"#, r#"{"b":"]}"},"#.repeat(10_000));
    let text = format!(
        r#"{{"schemaVersion":1,"deviceProperties":{section},"with_stack":1,"traceName":"a,b",
        "traceEvents":[
        {{"ph":"X","cat":"python_function","name":"Python GC","pid":7,"tid":7,
          "ts":6217342000.123,"dur":12.001,"args":{{"Python id":1,"Python parent id":null}}}},
        {{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1.0,"dur":2.0,"args":{section}}},
        {{"name":"process_name","ph":"M","ts":0,"pid":"Spans","tid":0,"args":{{"name":"x"}}}}
        ],"more":{section},"x":NaN}}"#
    );
    let (pauses, others, ending) = collections(text.as_bytes()).unwrap();
    assert_eq!(pauses.len(), 1);
    assert_eq!(pauses[0].start_ns, 6_217_342_000_123);
    assert_eq!(others, 2);
    assert_eq!(ending, TraceCompletion { events: 3, ..TraceCompletion::default() });
}

/// gctrace joins the records of both sources while it records; one that came too late stands alone.
#[test]
fn two_records_of_one_pause_are_read_once() {
    let header =
        r#"{"ph":"M","name":"gctrace_header","args":{"format":"gctrace.trace/1","mode":"MODE"}}"#;
    let pause = |tid: u32, start: u32, length: u32, args: &str| {
        format!(
            r#"{{"ph":"X","cat":"gc","name":"gc gen0","pid":1,"tid":{tid},"ts":{start},"dur":{length},"args":{{{args}}}}}"#
        )
    };
    let injected = r#""source":"injected""#;
    let events = [
        pause(1, 10, 5, ""),
        pause(1, 30, 5, ""),
        pause(1, 9, 7, injected),
        // Of another thread, of another interpreter, and before all others.
        pause(2, 29, 7, injected),
        pause(1, 29, 7, r#""source":"injected","interpreter":4"#),
        pause(1, 1, 7, injected),
        // The probes' record comes second.
        pause(2, 30, 5, r#""interpreter":0"#),
    ];
    let read = |mode: &str| {
        let lines = [&[header.replace("MODE", mode)][..], &events].concat();
        let text = format!(r#"{{"traceEvents":[{}]}}"#, lines.join(",\n"));
        let (pauses, _, ending) = collections(text.as_bytes()).unwrap();
        let starts: Vec<u64> = pauses.iter().map(|pause| pause.start_ns / 1000).collect();
        (starts, ending.recorded_twice)
    };
    // An interpreter that is unknown may be any: the record of 4 is the probes' at 30.
    assert_eq!(read("both"), (vec![10, 30, 29, 1], 3));
    assert_eq!(read("ebpf"), (vec![10, 30, 9, 29, 29, 1, 30], 0));
}

/// The two records may be in two parts of one recording.
#[test]
fn a_pause_is_read_once_across_parts_of_a_recording() {
    let part = |source: &str| {
        let text = format!(
            r#"{{"traceEvents":[
{{"ph":"M","name":"gctrace_header","args":{{"format":"gctrace.trace/1","mode":"both"}}}},
{{"ph":"X","cat":"gc","name":"gc gen0","pid":1,"tid":1,"ts":10,"dur":5,"args":{{{source}}}}},
{{"ph":"M","name":"gctrace_frame","args":{{"id":1,"function":"f","file":"/tmp/ipykernel_7/1{}.py"}}}}]}}"#,
            source.len()
        );
        let input = TraceInput::new("part", Cursor::new(text.into_bytes()));
        TraceReader::new(EventReader::new(input.unwrap()))
    };
    let mut pauses = 0;
    let mut files = Vec::new();
    let mut read = |reader: &mut TraceReader| {
        while let Some(item) = reader.next_item().unwrap() {
            match item {
                DecodedItem::Record(Record::Pause(_)) => pauses += 1,
                DecodedItem::Record(Record::Frame(frame)) => files.push(frame.file),
                _ => {}
            }
        }
    };
    let (mut first, mut second) = (part(""), part(r#""source":"injected""#));
    read(&mut first);
    second.go_on_after(&mut first);
    read(&mut second);
    assert_eq!((pauses, second.finish().recorded_twice), (1, 1));
    assert_eq!(files, ["In [?]", "In [?] #2"]);
}

#[test]
fn wrong_types_and_absurd_numbers_are_reported_with_their_place() {
    let text = br#"{"traceEvents":[
{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":-5,"dur":1},
{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":5,"dur":1e300},
{"ph":"X","cat":"gc","pid":"one","tid":1,"ts":5,"dur":1},
{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":5,"dur":1,"args":{"collected":"many","generation":9}},
7,
{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":5}
]}"#;
    let (pauses, others, ending) = collections(text).unwrap();
    assert_eq!(pauses.len(), 1);
    assert_eq!(pauses[0].collected, None);
    assert_eq!(others, 4);
    let lines: Vec<u64> =
        ending.anomalies.first.iter().map(|anomaly| anomaly.position.line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 5, 6, 7]);
    assert_eq!(ending.anomalies.count, 7);
    assert_eq!(ending.anomalies.first[0].position.byte, 17);
}

#[test]
fn cut_off_files_are_read_up_to_the_cut() {
    let text = br#"{"traceEvents":[
{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":5,"dur":1},
{"ph":"X","cat":"gc","pid":1,"tid"#;
    let (pauses, _, ending) = collections(text).unwrap();
    assert_eq!(pauses.len(), 1);
    assert_eq!(ending.cut.unwrap().line, 3);
    let mut crashed = text.to_vec();
    crashed.extend([0; 5000]);
    let (pauses, _, ending) = collections(&crashed).unwrap();
    assert_eq!(pauses.len(), 1);
    assert_eq!(ending.cut.unwrap().line, 3);
}

#[test]
fn zeros_in_the_middle_are_damage() {
    let pause = r#"{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":5,"dur":1}"#;
    let text = [pause.as_bytes(), &[0; 100], pause.as_bytes()].concat();
    let text = [b"[", &text[..], b"]"].concat();
    let place = format!("line 1, byte {}: expected text, found zero bytes", pause.len() + 1);
    assert!(error(&text).contains(&place), "{}", error(&text));
}

#[test]
fn files_that_are_no_traces() {
    assert!(matches!(collections(b""), Err(ReadError::Empty { .. })));
    for (text, needle) in [
        (&b" \n "[..], "t.json: line 2, byte 3: not a trace: it contains only whitespace"),
        (b"hello", r#"line 1, byte 0: not a trace: it starts with "hello""#),
        (b"\x7fELF\x02", "not a trace: it starts with an executable"),
        (b"\x00\x01\x02", "it starts with 00 01 02"),
        (b"\x80\x04\x95\x01", "it starts with a pickle; a memory snapshot of PyTorch"),
        (b"\xfb)\x03\xfa", "it starts with statistics of cProfile"),
        (b"\n\x82\x01\x08", "it starts with a profile in protocol buffers"),
        (
            br#"{"$schema": "https://www.speedscope.app/file-format-schema.json", "profiles": []}"#,
            "a profile of speedscope; it opens at www.speedscope.app",
        ),
        (b"{}", "line 1, byte 1: not a trace: a JSON object without \"traceEvents\""),
        (b"{\"a\":1", "without \"traceEvents\""),
        (b"{\"traceEvents\":7}", "\"traceEvents\" is not an array"),
        (b"{\"traceEvents\"  ]", "line 1, byte 16: expected ':', found \"]\""),
        (b"{'traceEvents':[]}", "line 1, byte 1: expected a key in quotes"),
    ] {
        let error = error(text);
        assert!(error.contains(needle), "{error}");
    }
}

#[test]
fn damage_in_the_middle_has_a_place() {
    let text = b"[{\"ph\":\"X\"},\n{\"ph\":\"X\",,},\n{\"ph\":\"X\"}]";
    let error = error(text);
    assert!(
        error.contains("t.json: line 2, byte 23: expected a key in quotes, found \",},"),
        "{error}"
    );
    assert!(error.contains("(events read before that: 1)"), "{error}");
}

#[test]
fn gzip_is_seen_in_the_content() {
    let text = br#"[{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":5,"dur":1}]"#;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text).unwrap();
    let packed = packed.finish().unwrap();
    assert_eq!(collections(&packed).unwrap().0.len(), 1);
    // Several members one after the other are one file.
    let twice = [packed.clone(), packed].concat();
    let (pauses, _, ending) = collections(&twice).unwrap();
    assert_eq!(pauses.len(), 1);
    assert_eq!(ending.anomalies.first[0].problem, "text after the end of the trace");
}

#[test]
fn gzip_of_garbage() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"garbage").unwrap();
    assert!(error(&packed.finish().unwrap()).contains("starts with \"garbage\""));
    let broken = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3][..], &[0xff; 100]].concat();
    assert!(matches!(collections(&broken), Err(ReadError::Unpack { format: "gzip", .. })));
    assert!(error(b"\x1f\x8bgarbage").contains("not a trace: compressed data without text"));
    assert!(error(b"\x1f\x8b").contains("not a trace"), "{}", error(b"\x1f\x8b"));
}

#[test]
fn zstd_is_seen_in_the_content() {
    let text = br#"[{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":5,"dur":1}]"#;
    let packed = zstd::encode_all(&text[..], 3).unwrap();
    assert_eq!(collections(&packed).unwrap().0.len(), 1);
    // As pzstd begins: a frame to skip, of four bytes.
    let skipped = [b"\x50\x2a\x4d\x18\x04\0\0\0size", &packed[..]].concat();
    assert_eq!(collections(&skipped).unwrap().0.len(), 1);
    // Several frames one after the other are one file.
    let (first, second) = text.split_at(20);
    let halves = [first, second].map(|half| zstd::encode_all(half, 3).unwrap()).concat();
    assert_eq!(collections(&halves).unwrap().0.len(), 1);
}

#[test]
fn zstd_of_garbage() {
    assert!(
        error(&zstd::encode_all(&b"garbage"[..], 3).unwrap()).contains("starts with \"garbage\"")
    );
    let broken = [&b"\x28\xb5\x2f\xfd"[..], &[0xff; 100]].concat();
    assert!(matches!(collections(&broken), Err(ReadError::Unpack { format: "zstd", .. })));
    assert!(error(&broken).contains("zstd -t t.json"), "{}", error(&broken));
    let empty = error(b"\x28\xb5\x2f\xfd");
    assert!(empty.contains("not a trace: compressed data without text"), "{empty}");
    // Its last byte wrong: the checksum.
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(br#"[{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":5,"dur":1},"#).unwrap();
    let mut packed = encoder.finish().unwrap();
    *packed.last_mut().unwrap() ^= 1;
    assert!(matches!(collections(&packed), Err(ReadError::Unpack { format: "zstd", .. })));
}

/// The header of a frame says how much memory its reader needs (RFC 8878, 3.1.1.1.2): 128 MiB is the most that
/// is given, and 3.75 TiB the most that can be asked for.
#[test]
fn zstd_that_asks_for_much_memory_is_refused() {
    let frame = |exponent: u8, mantissa: u8| {
        let header = [0x28, 0xb5, 0x2f, 0xfd, 0, exponent << 3 | mantissa];
        // One block, the last, of two bytes as they are.
        [&header[..], &[0b1_0001, 0, 0], b"[]"].concat()
    };
    assert_eq!(collections(&frame(17, 0)).unwrap().0, []);
    for (exponent, mantissa) in [(17, 1), (18, 0), (21, 0), (31, 7)] {
        let refused = collections(&frame(exponent, mantissa));
        assert!(matches!(refused, Err(ReadError::Unpack { .. })), "{exponent} {mantissa}");
    }
}

/// 64 MiB of spaces in less than 16 KiB are passed over, and are not in memory as a whole: the window would not
/// grow so far for an event.
#[test]
fn zstd_that_unpacks_to_much_is_read() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(b"[").unwrap();
    let spaces = vec![b' '; 1 << 20];
    (0..64).for_each(|_| encoder.write_all(&spaces).unwrap());
    encoder.write_all(br#"{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":5,"dur":1}]"#).unwrap();
    let packed = encoder.finish().unwrap();
    assert!(packed.len() < 1 << 14, "{}", packed.len());
    assert_eq!(collections(&packed).unwrap().0.len(), 1);
}

#[test]
fn traces_of_the_future_are_refused() {
    let text = br#"{"traceEvents":[{"ph":"M","name":"gctrace_header","ts":0,"args":{"format":"gctrace.trace/9"}}]}"#;
    assert!(error(text).contains("gctrace.trace/9"));
}

#[test]
fn a_directory_and_a_file_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let error = TraceInput::open(dir.path()).err().unwrap();
    assert!(matches!(error, ReadError::Directory { .. }));
    let error = TraceInput::open(&dir.path().join("no.json")).err().unwrap();
    assert!(matches!(error, ReadError::Open { .. }));
}

#[test]
fn nesting_does_not_exhaust_the_stack() {
    let deep = format!("[{{\"args\":{}}}]", "[".repeat(1_000_000));
    assert!(error(deep.as_bytes()).contains("less deeply nested"));
    let deep = format!("{{\"x\":{},\"traceEvents\":[]}}", "[".repeat(1_000_000));
    assert!(error(deep.as_bytes()).contains("without"));
}

/// Frames and the stacks of pauses in the order of the file.
fn stacks(text: &str) -> (Vec<Frame>, Vec<Option<FrameId>>, TraceCompletion) {
    let input = TraceInput::new("t.json", Cursor::new(text.as_bytes().to_vec())).unwrap();
    let mut reader = TraceReader::new(EventReader::with_buffer(input, 32));
    let (mut frames, mut stacks) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            DecodedItem::Record(Record::Frame(frame)) => frames.push(frame),
            DecodedItem::Record(Record::Pause(pause)) => stacks.push(pause.stack),
            _ => {}
        }
    }
    (frames, stacks, reader.finish())
}

#[test]
fn stacks_of_other_tools_before_and_behind_the_events() {
    let events = r#""traceEvents":[
        {"ph":"X","cat":"gc","pid":1,"tid":1,"ts":5,"dur":1,"sf":7},
        {"ph":"X","cat":"gc","pid":1,"tid":1,"ts":9,"dur":1,"sf":"0x9f"}]"#;
    let section = r#""stackFrames" : { "7":{"category":"x","name":"main"} ,
        "0x9f": {"name":"step (train.py:12)","parent":7}, "8":{"name":"\u0066","parent":"0x9f"}}"#;
    let named = FrameId::MAX;
    let frame = |id, parent, function: &str, file: &str, line| Frame {
        id,
        parent,
        function: function.to_owned(),
        file: file.to_owned(),
        line,
    };
    let expected = [
        frame(7, None, "main", "", None),
        frame(named, Some(7), "step", "train.py", Some(12)),
        frame(8, Some(named), "f", "", None),
    ];
    for text in
        [format!("{{{events},{section},\"x\":1}}"), format!("{{\"x\":[],{section},{events}}}")]
    {
        let (frames, pauses, ending) = stacks(&text);
        assert_eq!(frames, expected);
        assert_eq!(pauses, [Some(7), Some(named)]);
        assert_eq!(ending.events, 2);
        assert_eq!(ending.anomalies.count, 0);
        assert_eq!(ending.cut, None);
    }
}

#[test]
fn stacks_that_make_no_sense_are_reported_with_their_place() {
    let text = r#"{"traceEvents":[
{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":5,"dur":1,"sf":[7]},
{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":5,"dur":1,"sf":-7}],"stackFrames":{
"1":7,
"2":{"parent":1},
"3":{"name":"f","parent":{}},
"4":{"name":"g"}}}"#;
    let (frames, pauses, ending) = stacks(text);
    let ids: Vec<_> = frames.iter().map(|frame| (frame.id, frame.parent)).collect();
    assert_eq!(ids, [(3, None), (4, None)]);
    assert_eq!(pauses, [None, None]);
    let lines = ending.anomalies.first.iter();
    let lines: Vec<u64> = lines.map(|anomaly| anomaly.position.line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6]);
}

#[test]
fn a_cut_section_of_stacks_and_one_that_is_none() {
    let text = r#"{"traceEvents":[],"stackFrames":{"4":{"name":"g"},"5":{"na"#;
    let (frames, _, ending) = stacks(text);
    assert_eq!(frames.len(), 1);
    assert!(ending.cut.is_some());
    let (frames, _, ending) = stacks(r#"{"stackFrames":[{"4":{"name":"g"}}],"traceEvents":[]}"#);
    assert!(frames.is_empty());
    assert_eq!(ending.cut, None);
    let damaged = error(br#"{"traceEvents":[],"stackFrames":{7:{}}}"#);
    assert!(damaged.contains("expected a key in quotes"), "{damaged}");
}

#[test]
fn counters_and_pressure_that_make_no_sense_are_reported_with_their_place() {
    let text = br#"{"traceEvents":[
{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":5,"dur":1,"args":{"counters":{"cycles":-1,"x":{},"page-faults":2,"scaled":true}}},
{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":5,"dur":1,"args":{"counters":7,"young_count":"x"}},
{"ph":"M","name":"gctrace_counters","pid":1,"ts":5,"args":{"since_ns":6000}},
{"ph":"M","name":"gctrace_pressure","pid":1,"ts":5,"args":{"since_ns":6000}},
{"ph":"M","name":"gctrace_pressure","pid":1,"ts":5,"args":{"since_ns":0,"counts":[1,2]}},
{"ph":"M","name":"gctrace_frame","args":{"id":"one","function":"f"}}
]}"#;
    let (pauses, others, ending) = collections(text).unwrap();
    assert_eq!(pauses[0].counters.get(Counter::Cycles), None);
    assert_eq!(pauses[0].counters.get(Counter::PageFaults), Some(2));
    assert!(pauses[0].counters.scaled && !pauses[0].counters.migrated);
    assert!(pauses[1].counters.is_empty());
    assert_eq!(others, 4);
    let lines = ending.anomalies.first.iter();
    let lines: Vec<u64> = lines.map(|anomaly| anomaly.position.line).collect();
    assert_eq!(lines, [2, 3, 3, 4, 5, 6, 7]);
}

/// Empty objects, with which some writers end a trace, are events of no interest.
#[test]
fn elements_that_are_no_events_are_counted_in_little_memory() {
    let pause = r#"{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":1,"dur":1}"#;
    let (empty, other) = ("{},".repeat(100_000), "1,[{}],\"x\",".repeat(100_000));
    let text = format!("[{empty}{pause},{other}{pause},{{}}, {{ }},{{}}]");
    for buffer in [16, 256 * 1024] {
        let input = TraceInput::new("t.json", Cursor::new(text.clone().into_bytes())).unwrap();
        let mut reader = TraceReader::new(EventReader::with_buffer(input, buffer));
        let mut pauses = 0;
        while let Some(item) = reader.next_item().unwrap() {
            pauses += u32::from(matches!(item, DecodedItem::Record(Record::Pause(_))));
        }
        assert_eq!(pauses, 2);
        let ending = reader.finish();
        assert_eq!((ending.cut, ending.events), (None, 100_005));
        assert_eq!(ending.anomalies.count, 300_000);
        assert_eq!(ending.anomalies.first.len(), 8);
    }
}

/// Its text is not kept while its end is looked for.
#[test]
fn an_event_of_more_than_16_mib_is_passed_over() {
    let pause = |ts: u32| format!(r#"{{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":{ts},"dur":1}}"#);
    let long = format!(r#"{{"ph":"X","cat":"gc","name":"{}"}}"#, "x".repeat(17 << 20));
    let text = format!("[{},{long},{}]", pause(1), pause(5));
    let input = TraceInput::new("t.json", Cursor::new(text.into_bytes())).unwrap();
    let mut reader = TraceReader::new(EventReader::new(input));
    let mut pauses = 0;
    while let Some(item) = reader.next_item().unwrap() {
        pauses += u32::from(matches!(item, DecodedItem::Record(Record::Pause(_))));
    }
    assert_eq!(pauses, 2);
    let ending = reader.finish();
    assert_eq!(ending.cut, None);
    assert_eq!(ending.anomalies.count, 1);
    assert!(ending.anomalies.first[0].problem.contains("over 16 MiB"));
}
