use super::*;
use crate::read::DecodedItem;
use crate::record::StoredRecord;
use crate::summary::{SummaryError, SummaryHeader, SummaryReader, SummarySource, SummaryWriter};
use crate::{Annotation, Note, Process, Record};
use std::io;
use std::io::Cursor;
use std::process::Command;

fn written(items: &[Record]) -> Vec<u8> {
    let mut writer = SummaryWriter::default();
    for item in items {
        writer.add(DecodedItem::Record(item.clone()));
    }
    let source = SummarySource::of("t.json", &b""[..]).unwrap();
    writer.finish(TraceCompletion::default(), source, None)
}

fn body(file: &[u8]) -> &[u8] {
    let end = file.iter().position(|byte| *byte == b'\n').unwrap();
    &file[end + 1..]
}

/// The file with another body.
fn with_body(body: &[u8]) -> Vec<u8> {
    let whole = written(&[]);
    let mut header: SummaryHeader =
        serde_json::from_slice(whole.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    let source = SummarySource::of("", body).unwrap();
    (header.body_bytes, header.body_sha256) = (source.bytes, source.sha256);
    [&serde_json::to_vec(&header).unwrap(), b"\n".as_slice(), body].concat()
}

/// A file of one chunk, packed as small as it can be, and padded to a share of its size.
fn with_chunk(text: &[u8], share: usize) -> Vec<u8> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    packed.write_all(text).unwrap();
    let mut packed = packed.finish().unwrap();
    packed.resize(packed.len().max(text.len().div_ceil(share)), 0);
    with_body(&[&(packed.len() as u64).to_le_bytes(), packed.as_slice()].concat())
}

fn records(file: &[u8]) -> Result<Vec<Record>, SummaryError> {
    let mut reader = SummaryReader::new("t.gcsum", Cursor::new(file))?;
    let mut records = Vec::new();
    while let Some(item) = reader.next_item()? {
        if let DecodedItem::Record(record) = item {
            records.push(record);
        }
    }
    Ok(records)
}

/// Bytes of each chunk in the file, and unpacked.
fn sizes(file: &[u8]) -> Vec<(usize, usize)> {
    let (mut rest, mut sizes) = (body(file), Vec::new());
    while let Some((size, after)) = rest.split_first_chunk() {
        let (packed, after) = after.split_at(u64::from_le_bytes(*size) as usize);
        let unpacked = io::copy(&mut ZlibDecoder::new(packed), &mut io::sink());
        sizes.push((packed.len(), unpacked.unwrap() as usize));
        rest = after;
    }
    sizes
}

fn note(message: String) -> Record {
    Record::Note(Note { pid: None, at_ns: 1, message })
}

fn named(name: String) -> Record {
    Record::Annotation(Annotation { pid: 1, tid: 1, name, start_ns: 1, end_ns: 2 })
}

#[test]
fn chunks_of_large_items_are_divided() {
    let text = |byte: u8, length: usize| char::from(byte).to_string().repeat(length);
    let third = LARGEST_BYTES / 3;
    let large = (b'a'..b'c').map(|byte| note(text(byte, third)));
    let large = large.chain((b'a'..b'c').map(|byte| named(text(byte, third))));
    let small = (b'a'..=b'z').map(|byte| note(text(byte, CHUNK_BYTES / 3)));
    let small = small.chain((b'a'..=b'z').map(|byte| named(text(byte, CHUNK_BYTES / 3))));
    let many = (0..3 * CHUNK_ITEMS).map(|number| named(number.to_string()));
    let items: Vec<Record> = large.chain(small).chain(many).collect();
    let file = written(&items);
    assert!(records(&file).unwrap() == items, "other items");
    let sizes = sizes(&file);
    let is_stored = |(packed, unpacked): &&(usize, usize)| *unpacked >= third && packed >= unpacked;
    assert_eq!(sizes.iter().filter(is_stored).count(), 4, "{sizes:?}");
    for (packed, unpacked) in &sizes {
        let most = CHUNK_BYTES.min(EXPANSION * packed).max(*packed);
        assert!(*unpacked <= most, "{sizes:?}");
    }
}

#[test]
fn a_chunk_that_stands_for_too_many_bytes_is_refused() {
    let items = |count| Chunk {
        items: (0..count)
            .map(|_| StoredItem::Record(StoredRecord::Pause(crate::Pause::default())))
            .collect(),
        end: Some(TraceCompletion::default()),
        ..Chunk::default()
    };
    let text = |count| bitcode::encode(&items(count));
    let refused = |text: &[u8], share| records(&with_chunk(text, share)).unwrap_err().to_string();
    const LARGER: &str = "larger than gctrace writes";
    let many = text(100_000);
    assert!(many.len() > CHUNK_BYTES, "{}", many.len());
    let file = with_chunk(&many, usize::MAX);
    assert!(file.len() < 10_000, "{}", file.len());
    for share in [usize::MAX, EXPANSION, 2] {
        let error = refused(&many, share);
        assert!(error.contains(LARGER), "{error}");
    }
    assert_eq!(records(&with_chunk(&many, 1)).unwrap().len(), 100_000);
    let fewer = text(10_000);
    assert!(fewer.len() <= CHUNK_BYTES, "{}", fewer.len());
    let error = refused(&fewer, usize::MAX);
    assert!(error.contains(LARGER), "{error}");
    assert_eq!(records(&with_chunk(&fewer, EXPANSION)).unwrap().len(), 10_000);
    let size = (4 * LARGEST_BYTES as u64).to_le_bytes();
    let error = records(&with_body(&size)).unwrap_err().to_string();
    assert!(error.contains("its last part is missing"), "{error}");
    let error = records(&with_chunk(&vec![0; LARGEST_BYTES + 1], 1));
    let error = error.unwrap_err().to_string();
    assert!(error.contains(LARGER), "{error}");
}

/// Those chunks of [`CHUNK_BYTES`] whose objects take the most memory.
fn costly_chunks() -> Vec<(&'static str, Vec<u8>)> {
    let bits = 8 * CHUNK_BYTES;
    let names = Chunk { names: vec![String::new(); bits - 100], ..Chunk::default() };
    let arguments = Chunk {
        items: vec![StoredItem::Record(StoredRecord::Process(Process {
            command: vec![String::new(); bits - 1000],
            ..Process::default()
        }))],
        ..Chunk::default()
    };
    let item = || StoredItem::ProcessName { pid: 0, name: String::new() };
    let items = Chunk { items: (0..bits / 6 - 100).map(|_| item()).collect(), ..Chunk::default() };
    let chunks = [("names", names), ("arguments", arguments), ("items", items)];
    chunks.map(|(name, chunk)| (name, bitcode::encode(&chunk))).into()
}

/// Each read by a process of its own, which does nothing else.
#[test]
fn the_objects_of_a_chunk_take_little_memory() {
    const FILE: &str = "GCTRACE_TEST_SUMMARY";
    let test = "summary::chunk::tests::the_objects_of_a_chunk_take_little_memory";
    if let Some(file) = std::env::var_os(FILE) {
        let file = std::fs::read(file).unwrap();
        let before = peak_bytes();
        // No trace has some of the items.
        drop(records(&file));
        println!("bytes: {}", peak_bytes() - before);
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    for (name, text) in costly_chunks() {
        let size = text.len();
        assert!((CHUNK_BYTES * 9 / 10..=CHUNK_BYTES).contains(&size), "{name}: {size}");
        std::fs::write(file.path(), with_chunk(&text, EXPANSION)).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "--nocapture", test]).env(FILE, file.path());
        let output = child.output().unwrap();
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, bytes) = output.split_once("bytes: ").expect(&output);
        let bytes: usize = bytes.lines().next().unwrap().parse().unwrap();
        println!("{name}: {} MiB", bytes >> 20);
        assert!(bytes < 100_000_000, "{name}: {bytes}");
    }
}

/// The most memory that this process has had.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kib.parse::<usize>().unwrap() * 1024
}
