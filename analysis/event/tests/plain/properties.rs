//! Properties of every trace: what was written is read back, and every prefix of it is readable.

#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use crate::strategies;

use gctrace_event::read::{DecodedItem, EventReader, ReadError, TraceInput, TraceReader};
use gctrace_event::summary::{SummaryHeader, SummaryReader, SummarySource, SummaryWriter};
use gctrace_event::{FORMAT, Head, Record, TraceEnd, TraceHeader};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use std::collections::HashSet;
use std::io::{Cursor, Write as _};
use strategies::{end, frame, header, pause, record};
use test_kit::records::written;

struct Contents {
    header: Option<TraceHeader>,
    records: Vec<Record>,
    cut: bool,
    anomalies: u64,
}

/// All items of a trace; the small buffer makes the reader refill within events.
fn read(bytes: &[u8]) -> Contents {
    let input = TraceInput::new("test", Cursor::new(bytes.to_vec())).unwrap();
    let mut reader = TraceReader::new(EventReader::with_buffer(input, 64));
    let mut contents = Contents { header: None, records: Vec::new(), cut: false, anomalies: 0 };
    loop {
        match reader.next_item().unwrap() {
            Some(DecodedItem::Header(header)) => contents.header = Some(*header),
            Some(DecodedItem::Record(record)) => contents.records.push(record),
            Some(DecodedItem::ProcessName { .. }) => {}
            Some(DecodedItem::Other(event)) if event.phase.raw_text() == Some(b"C") => {}
            Some(item) => panic!("not written by us: {item:?}"),
            None => break,
        }
    }
    let ending = reader.finish();
    contents.cut = ending.cut.is_some();
    contents.anomalies = ending.anomalies.count;
    contents
}

/// Number of items read.
fn tried(bytes: Vec<u8>) -> Result<usize, ReadError> {
    let input = TraceInput::new("test", Cursor::new(bytes)).unwrap();
    let mut reader = TraceReader::new(EventReader::new(input));
    let mut count = 0;
    while reader.next_item()?.is_some() {
        count += 1;
    }
    Ok(count)
}

proptest! {
    /// What a record says of itself is what its own members say, whatever its kind.
    #[test]
    fn a_head_is_of_its_record(record in record()) {
        let head = record.head();
        prop_assert!(head.stack.is_none_or(|stack| record.stacks().contains(&stack)));
        let mut moved = record.clone();
        let tid = moved.tid_mut().map(|tid| {
            *tid = tid.wrapping_add(1);
            *tid
        });
        prop_assert_eq!(tid, head.tid.map(|tid| tid.wrapping_add(1)));
        prop_assert_eq!(moved.head(), Head { tid, ..head });
    }
}

proptest! {

    #[test]
    fn what_is_written_is_read(
        header in header(),
        mut records in vec(record(), 0..20),
        end in end(),
    ) {
        let bytes = written(&header, &records, &end);
        serde_json::from_slice::<serde_json::Value>(&bytes).unwrap();
        let contents = read(&bytes);
        prop_assert_eq!(contents.header, Some(header));
        records.push(Record::End(end));
        prop_assert_eq!(contents.records, records);
        prop_assert!(!contents.cut);
        prop_assert_eq!(contents.anomalies, 0);
    }

    /// Every frame that the text of a record names is one of its stacks, so frames are written before.
    #[test]
    fn the_stacks_of_a_record_are_those_in_its_text(record in record()) {
        let header = TraceHeader { format: FORMAT.to_owned(), ..TraceHeader::default() };
        let text = written(&header, std::slice::from_ref(&record), &TraceEnd::default());
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let mut named = Vec::new();
        for event in &json["traceEvents"].as_array().unwrap()[1..] {
            named.extend(event["sf"].as_u64());
            named.extend(event["args"]["parent"].as_u64().filter(|_| event["name"] == "gctrace_frame"));
            let stacks = event["args"]["stacks"].as_array().into_iter().flatten();
            named.extend(stacks.filter_map(|stack| stack[0].as_u64()));
            let alive = event["args"]["lines"].as_array().into_iter().flatten();
            named.extend(alive.filter_map(|line| line[0].as_u64()));
        }
        prop_assert_eq!(record.stacks().into_iter().map(u64::from).collect::<Vec<_>>(), named);
    }

    /// A summary gives what its trace gave, whole or cut.
    #[test]
    fn a_summary_is_read_as_its_trace(
        header in header(),
        records in vec(record(), 0..60),
        end in end(),
        cut in of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = written(&header, &records, &end);
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()).max(FIRST));
        }
        let summary = summarized(&bytes);
        let mut reader = SummaryReader::new("test", Cursor::new(&summary)).unwrap();
        let mut items = Vec::new();
        while let Some(item) = reader.next_item().unwrap() {
            if !matches!(item, DecodedItem::Work { .. }) {
                items.push(format!("{item:?}"));
            }
        }
        items.push(format!("{:?}", reader.finish()));
        let (mut expected, _) = read_with(&bytes, 1 << 16);
        expected.retain(|item| !item.starts_with("Other(") && item != "Unusable");
        prop_assert_eq!(items, expected);
        prop_assert!(summary == summarized(&bytes), "other bytes the second time");
    }

    /// Changed or missing bytes are noticed. With the hash of the changed body, which no accident
    /// gives it, they are an error or other items, never a panic.
    #[test]
    fn a_damaged_summary_is_refused(
        records in vec(record(), 1..20),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        any in vec(any::<u8>(), 0..200),
    ) {
        let header = TraceHeader { format: FORMAT.to_owned(), ..TraceHeader::default() };
        let whole = summarized(&written(&header, &records, &TraceEnd::default()));
        prop_assert!(SummaryReader::new("test", Cursor::new(&any)).is_err());
        let cut = cut.index(whole.len());
        prop_assert!(SummaryReader::new("test", Cursor::new(&whole[..cut])).is_err(), "cut at {}", cut);
        let body_at = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let mut body = whole[body_at..].to_vec();
        for (index, byte) in damage {
            *index.get_mut(&mut body) = byte;
        }
        let changed = [&whole[..body_at], &body].concat();
        let is_same = changed == whole;
        prop_assert_eq!(SummaryReader::new("test", Cursor::new(&changed)).is_ok(), is_same);
        let mut first: SummaryHeader = serde_json::from_slice(&whole[..body_at]).unwrap();
        first.body_sha256 = SummarySource::of("", body.as_slice()).unwrap().sha256;
        let mut forged = serde_json::to_vec(&first).unwrap();
        forged.push(b'\n');
        forged.extend(body);
        let mut reader = SummaryReader::new("test", Cursor::new(&forged)).unwrap();
        while let Ok(Some(_)) = reader.next_item() {}
        let _ = reader.finish();
    }

    /// Bytes changed anywhere: an error or a report, never a panic, never without end.
    #[test]
    fn damage_is_survived(
        records in vec(record(), 1..8),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let header = TraceHeader { format: FORMAT.to_owned(), ..TraceHeader::default() };
        let mut bytes = written(&header, &records, &TraceEnd::default());
        for (index, byte) in damage {
            *index.get_mut(&mut bytes) = byte;
        }
        let input = TraceInput::new("test", Cursor::new(bytes)).unwrap();
        let mut reader = TraceReader::new(EventReader::with_buffer(input, 64));
        while let Ok(Some(_)) = reader.next_item() {}
        let _ = reader.finish();
    }
}

/// Bytes that a cut trace has at least: those up to its list of events.
const FIRST: usize = 42;

fn summarized(bytes: &[u8]) -> Vec<u8> {
    let input = TraceInput::new("test", Cursor::new(bytes.to_vec())).unwrap();
    let mut reader = TraceReader::new(EventReader::new(input));
    let mut writer = SummaryWriter::default();
    while let Some(item) = reader.next_item().unwrap() {
        writer.add(item);
    }
    let source = SummarySource::of("trace.json", bytes).unwrap();
    writer.finish(reader.finish(), source, None)
}

fn frame_id(record: &Record) -> Option<u32> {
    match record {
        Record::Frame(frame) => Some(frame.id),
        _ => None,
    }
}

/// The result of reading with a buffer of this size: as text, and whether reading ended in an
/// error.
fn read_with(bytes: &[u8], buffer: usize) -> (Vec<String>, bool) {
    let input = TraceInput::new("test", Cursor::new(bytes.to_vec())).unwrap();
    let mut reader = TraceReader::new(EventReader::with_buffer(input, buffer));
    let mut items = Vec::new();
    let failed = loop {
        match reader.next_item() {
            Ok(Some(item)) => items.push(format!("{item:?}")),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    items.push(format!("{:?}", reader.finish()));
    (items, failed)
}

proptest! {

    /// Traces of other tools: frames come from the section after the events. Whole or damaged, the
    /// result does not depend on the buffer.
    #[test]
    fn the_buffer_makes_no_difference(
        records in vec(prop_oneof![frame(), pause()], 1..8),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let header = TraceHeader { format: FORMAT.to_owned(), ..TraceHeader::default() };
        let bytes = written(&header, &records, &TraceEnd::default());
        let text = String::from_utf8(bytes).unwrap();
        let mut bytes = text.replace("gctrace_header", "other").into_bytes();
        if damage.is_empty() {
            let ids: Vec<u32> = records.iter().filter_map(frame_id).collect();
            let in_section: HashSet<_> = ids.iter().collect();
            let contents = read_with(&bytes, 64).0;
            let read = contents.iter().filter(|item| item.starts_with("Record(Frame"));
            prop_assert_eq!(read.count(), ids.len() + in_section.len());
        }
        for (index, byte) in damage {
            *index.get_mut(&mut bytes) = byte;
        }
        let (small, large) = (read_with(&bytes, 16), read_with(&bytes, 1 << 16));
        prop_assert_eq!(small.1, large.1);
        prop_assert_eq!(small.0, large.0);
    }
}

proptest! {
    // Each case reads a trace many times.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(21)))]

    #[test]
    fn every_prefix_is_readable(records in vec(pause(), 1..5), end in end()) {
        let header = TraceHeader { format: FORMAT.to_owned(), ..TraceHeader::default() };
        let bytes = written(&header, &records, &end);
        let first = bytes.iter().position(|byte| *byte == b'[').unwrap() + 1;
        let mut seen = 0;
        for length in first..bytes.len() {
            let contents = read(&bytes[..length]);
            let pauses = contents.records.len().min(records.len());
            prop_assert_eq!(&contents.records[..pauses], &records[..pauses]);
            prop_assert!(contents.records.len() >= seen, "more text, fewer records");
            // All but the last byte, a line end, is needed.
            prop_assert_eq!(contents.cut, length < bytes.len() - 1);
            seen = contents.records.len();
        }
        prop_assert_eq!(seen, records.len() + 1);
    }

    #[test]
    fn every_cut_of_a_compressed_trace_is_readable(records in vec(pause(), 1..50), end in end()) {
        let header = TraceHeader { format: FORMAT.to_owned(), ..TraceHeader::default() };
        let bytes = written(&header, &records, &end);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&bytes).unwrap();
        for packed in [gzip.finish().unwrap(), zstd::encode_all(&*bytes, 1).unwrap()] {
            for length in (packed.len() / 2..packed.len()).step_by(41) {
                match tried(packed[..length].to_vec()) {
                    Ok(count) => prop_assert!(count <= records.len() + 2),
                    // There is no text before the cut; a cut is no damage.
                    Err(error) => {
                        let is_early = matches!(error, ReadError::NotATrace { .. });
                        prop_assert!(is_early, "{}", error);
                    }
                }
            }
            prop_assert_eq!(read(&packed).records.len(), records.len() + 1);
        }
    }

    /// Whatever is in it, it is read in little memory and without a panic; what was read before stays.
    #[test]
    fn damaged_zstd_is_read_or_refused(
        records in vec(pause(), 1..50), end in end(), damage in vec((any::<usize>(), any::<u8>()), 1..4),
    ) {
        let header = TraceHeader { format: FORMAT.to_owned(), ..TraceHeader::default() };
        let mut packed = zstd::encode_all(&*written(&header, &records, &end), 3).unwrap();
        for (at, byte) in damage {
            // The first four are the magic number.
            let at = 4 + at % (packed.len() - 4);
            packed[at] = byte;
        }
        let _ = tried(packed);
    }
}
