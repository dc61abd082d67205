//! Arbitrary bytes as a summary: refused, or items that can be reported. No panic, termination, and
//! little memory: fuzz.sh limits it. The first byte chooses whether the rest is the file, its body with a
//! header that fits, the content of the body's only part, or that in short, so that few bytes can be a
//! part of millions of items; anything else is a trace, of which the summary has the items.

#![no_main]

use flate2::Compression;
use flate2::write::ZlibEncoder;
use gctrace_analysis::Analysis;
use gctrace_event::read::{DecodedItem, EventReader, TraceCompletion, TraceInput, TraceReader};
use gctrace_event::summary::{
    SummaryError, SummaryHeader, SummaryReader, SummarySource, SummaryWriter,
};
use libfuzzer_sys::fuzz_target;
use std::io::{Cursor, Write};

/// The body with a header of this gctrace.
fn file_of(body: &[u8]) -> Vec<u8> {
    let source = SummarySource::of("fuzz", body).expect("it is in memory");
    let writer = SummaryWriter::default();
    let empty = writer.finish(TraceCompletion::default(), source.clone(), None);
    let empty = SummaryReader::new("empty", Cursor::new(empty)).expect("it was written");
    let header = SummaryHeader {
        body_bytes: source.bytes,
        body_sha256: source.sha256,
        ..empty.header().clone()
    };
    let mut file = serde_json::to_vec(&header).expect("a header is JSON");
    file.push(b'\n');
    file.extend(body);
    file
}

/// A body of one part.
fn body_of(content: &[u8], level: Compression) -> Vec<u8> {
    let mut packed = ZlibEncoder::new(Vec::new(), level);
    packed.write_all(content).expect("it is in memory");
    let mut packed = packed.finish().expect("it is in memory");
    // A reader refuses parts that are packed smaller.
    packed.resize(packed.len().max(content.len().div_ceil(32)), 0);
    let mut body = (packed.len() as u64).to_le_bytes().to_vec();
    body.extend(packed);
    body
}

/// The content that these bytes are short for: up to 127 stand for as many bytes as follow, larger ones
/// for up to 2^26 times the byte that follows. It ends at 64 MiB, as long as a part can be.
fn content_of(mut short: &[u8]) -> Vec<u8> {
    const LONGEST: usize = 1 << 26;
    let mut content = Vec::new();
    while let [length, rest @ ..] = short
        && content.len() < LONGEST
    {
        let length = usize::from(*length);
        if length < 128 {
            let (literal, after) = rest.split_at(length.min(rest.len()));
            content.extend(literal);
            short = after;
        } else {
            let (byte, after) = rest.split_first().unwrap_or((&0, &[]));
            let times = (1 << (length % 27)).min(LONGEST - content.len());
            content.resize(content.len() + times, *byte);
            short = after;
        }
    }
    content
}

fn read(file: &[u8]) -> Result<(), SummaryError> {
    let mut reader = SummaryReader::new("fuzz", Cursor::new(file))?;
    let mut analysis = Analysis::default();
    analysis.begin_trace("fuzz");
    while let Some(item) = reader.next_item()? {
        analysis.add(item);
    }
    analysis.end_trace(reader.finish(), None);
    analysis.settle();
    serde_json::to_string(&analysis.report()).expect("a report is JSON");
    Ok(())
}

/// The items of a trace that a summary has, as text.
fn trace(bytes: &[u8]) -> Option<()> {
    let input = TraceInput::new("fuzz", Cursor::new(bytes.to_vec())).ok()?;
    let mut reader = TraceReader::new(EventReader::new(input));
    let (mut writer, mut items) = (SummaryWriter::default(), Vec::new());
    while let Ok(Some(item)) = reader.next_item() {
        if !matches!(item, DecodedItem::Other(_) | DecodedItem::Unusable) {
            items.push(format!("{item:?}"));
        }
        writer.add(item);
    }
    let source = SummarySource::of("fuzz", bytes).expect("it is in memory");
    let ending = reader.finish();
    let file = writer.finish(ending.clone(), source, None);
    let mut reader = SummaryReader::new("fuzz", Cursor::new(file)).expect("it was written");
    let mut restored = Vec::new();
    while let Some(item) = reader.next_item().expect("it was written") {
        if !matches!(item, DecodedItem::Work { .. }) {
            restored.push(format!("{item:?}"));
        }
    }
    assert_eq!(restored, items);
    assert_eq!(reader.finish(), ending);
    Some(())
}

fuzz_target!(|bytes: &[u8]| {
    // It may be refused.
    match bytes.split_first() {
        Some((0, file)) => drop(read(file)),
        Some((1, body)) => drop(read(&file_of(body))),
        Some((2, content)) => drop(read(&file_of(&body_of(content, Compression::none())))),
        Some((3, short)) => {
            drop(read(&file_of(&body_of(&content_of(short), Compression::best()))));
        }
        Some(_) => drop(trace(bytes)),
        None => {}
    }
});
