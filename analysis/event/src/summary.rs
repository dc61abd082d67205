//! Summaries: what a report needs of one trace, in a file of a few percent of its size.
//!
//! Owns the file: a header of one line of JSON, then its body, which is complete if its size and hash
//! are those of the header. `summary/items.rs` has the encoding of records, `summary/possible.rs` which
//! of them there can be. A summary is read as its trace would be: item by item, the same ones in the
//! same order, but for events of no interest, of which the first and the last time stay.

mod items;
mod possible;

use crate::read::{DecodedItem, TraceCompletion, TraceProperty};
use bitcode::{Decode, Encode};
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use indexmap::IndexMap;
use items::{ItemCodec, StoredItem};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::io;
use std::io::{Read, Write as _};

/// Name and version of the format, the value of `schema` in a header.
pub const SCHEMA: &str = "gctrace.summary/1";
/// End of the name of a summary.
pub const EXTENSION: &str = "gcsum";

/// First bytes of every summary, of other versions too.
const FIRST_BYTES: &[u8] = br#"{"schema":"gctrace.summary/"#;
/// Longest header, in bytes: some hundred, and names of ranks.
const HEADER_BYTES: u64 = 4 << 20;
/// Most items of a chunk: what is in memory at a time, some MB.
const CHUNK_ITEMS: usize = 1 << 14;
/// Names of a chunk end it when they have this many bytes.
const CHUNK_NAME_BYTES: usize = 1 << 23;
/// Largest chunk when unpacked, in bytes: four times the largest event that is read, whose names may
/// triple (U+FFFD in place of a byte). Readers refuse more: 64 kB can be packed such that they unpack
/// to this.
const CHUNK_BYTES: usize = 1 << 26;

/// The first line of a summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryHeader {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the gctrace that wrote it. No other reads it: the body follows its records.
    pub gctrace: String,
    /// The trace.
    pub source: SummarySource,
    /// Ranks of the job; `None` if the trace does not contain it.
    pub world_size: Option<u32>,
    /// Events of the trace that were read.
    pub events: u64,
    /// Where the trace ends in the middle of something.
    pub cut: Option<String>,
    /// Why the trace could not be read to its end; what came before is in the summary.
    pub damage: Option<String>,
    /// Size of the body in bytes.
    pub body_bytes: u64,
    /// SHA-256 of the body in hexadecimal.
    pub body_sha256: String,
}

/// A trace, as it was when it was summarized.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummarySource {
    /// Its path as given, its name in reports.
    pub file: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal, as `sha256sum` prints it.
    pub sha256: String,
}

impl SummarySource {
    /// The trace that `bytes` has, read to its end.
    ///
    /// # Errors
    /// A read fails.
    pub fn of(file: &str, mut bytes: impl Read) -> io::Result<Self> {
        let mut hash = Sha256::new();
        let mut size = 0;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = match bytes.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            hash.update(buffer.get(..count).unwrap_or_default());
            size += count as u64;
        }
        Ok(Self { file: file.to_owned(), bytes: size, sha256: format!("{:x}", hash.finalize()) })
    }
}

/// A summary that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SummaryError {
    /// A read failed.
    #[error("{file}: cannot be read: {source}")]
    Io {
        /// Name of the summary.
        file: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// Another gctrace wrote it.
    #[error(
        "{file}: is a summary ({schema}) of gctrace {gctrace}, and gctrace {} reads only its own \
         ({SCHEMA}): summarize the trace again",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// Name of the summary.
        file: String,
        /// Its schema.
        schema: String,
        /// The gctrace that wrote it.
        gctrace: String,
    },
    /// Bytes are missing or changed.
    #[error("{file}: is no complete summary ({problem}): summarize the trace again")]
    Damaged {
        /// Name of the summary.
        file: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// Whether a file that starts like this is a summary, if not a valid one.
#[must_use]
pub fn is_summary(first: &[u8]) -> bool {
    first.starts_with(FIRST_BYTES)
}

/// Part of a body.
#[derive(Default, Encode, Decode)]
struct Chunk {
    /// Names that were not in earlier chunks.
    names: Vec<String>,
    items: Vec<StoredItem>,
    /// In the last chunk.
    end: Option<TraceCompletion>,
}

/// Makes the summary of one trace: [`SummaryWriter::add`] every item, then
/// [`SummaryWriter::finish`]. In memory are the items of one chunk, and the summary so far.
#[derive(Default)]
pub struct SummaryWriter {
    codec: ItemCodec,
    chunk: Chunk,
    /// Bytes of the chunk's names.
    name_bytes: usize,
    body: Vec<u8>,
    /// First and last time of events of no interest, by process.
    work: IndexMap<Option<u32>, (u64, u64)>,
    world_size: Option<u32>,
}

impl SummaryWriter {
    /// Adds one item of the trace.
    pub fn add(&mut self, item: DecodedItem<'_>) {
        match &item {
            DecodedItem::Property(TraceProperty::WorldSize(size)) => self.world_size = Some(*size),
            DecodedItem::Other(event) => {
                if let Some((pid, start_ns, end_ns)) = event.work() {
                    let (first, last) = self.work.entry(pid).or_insert((start_ns, end_ns));
                    *first = start_ns.min(*first);
                    *last = end_ns.max(*last);
                }
            }
            _ => {}
        }
        let names = self.chunk.names.len();
        if let Some(item) = self.codec.store(item, &mut self.chunk.names) {
            let new = self.chunk.names.iter().skip(names);
            self.name_bytes += new.map(String::len).sum::<usize>();
            self.push(item);
        }
    }

    fn push(&mut self, item: StoredItem) {
        self.chunk.items.push(item);
        if self.chunk.items.len() >= CHUNK_ITEMS || self.name_bytes >= CHUNK_NAME_BYTES {
            self.end_chunk();
        }
    }

    fn end_chunk(&mut self) {
        self.name_bytes = 0;
        let chunk = std::mem::take(&mut self.chunk);
        self.write(chunk);
    }

    /// Writes a chunk, or its halves if it is too large for readers.
    fn write(&mut self, mut chunk: Chunk) {
        let text = bitcode::encode(&chunk);
        if text.len() > CHUNK_BYTES && chunk.items.len() > 1 {
            let items = chunk.items.split_off(chunk.items.len() / 2);
            let end = chunk.end.take();
            self.write(chunk);
            let names = Vec::new();
            return self.write(Chunk { names, items, end });
        }
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
        // Writing to memory does not fail; if it did, the summary would be refused.
        let packed = packed.write_all(&text).and_then(|()| packed.finish());
        let packed = packed.unwrap_or_default();
        self.body.extend((packed.len() as u64).to_le_bytes());
        self.body.extend(packed);
    }

    /// The bytes of the file; the same for the same trace and gctrace. `damage`: why the trace could
    /// not be read to its end.
    #[must_use]
    pub fn finish(
        mut self,
        ending: TraceCompletion,
        source: SummarySource,
        damage: Option<String>,
    ) -> Vec<u8> {
        for (pid, (start_ns, end_ns)) in std::mem::take(&mut self.work) {
            self.push(StoredItem::Work { pid, start_ns, end_ns });
        }
        let (events, cut) = (ending.events, ending.cut);
        self.chunk.end = Some(ending);
        self.end_chunk();
        let header = SummaryHeader {
            schema: SCHEMA.to_owned(),
            gctrace: env!("CARGO_PKG_VERSION").to_owned(),
            source,
            world_size: self.world_size,
            events,
            cut: cut.map(|position| position.to_string()),
            damage,
            body_bytes: self.body.len() as u64,
            body_sha256: hash(&self.body),
        };
        // Text and numbers always serialize; an empty file would be refused.
        let mut file = serde_json::to_vec(&header).unwrap_or_default();
        file.push(b'\n');
        file.extend(self.body);
        file
    }
}

/// Reads a summary that is complete: item by item as [`crate::read::TraceReader`] reads its trace.
pub struct SummaryReader {
    name: String,
    header: SummaryHeader,
    body: Vec<u8>,
    /// Bytes of the body before the next chunk.
    at: usize,
    codec: ItemCodec,
    items: std::vec::IntoIter<StoredItem>,
    end: Option<TraceCompletion>,
}

impl SummaryReader {
    /// Reads the file into memory and checks that nothing is missing or changed. `name` is for
    /// messages.
    ///
    /// # Errors
    /// It is damaged, of another gctrace, or cannot be read.
    pub fn new(name: &str, mut file: impl Read) -> Result<Self, SummaryError> {
        let damaged = |problem| SummaryError::Damaged { file: name.to_owned(), problem };
        let failed = |source| SummaryError::Io { file: name.to_owned(), source };
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let head = text.get(..text.len().min(HEADER_BYTES as usize));
        let head = head.unwrap_or_default();
        let end =
            memchr::memchr(b'\n', head).ok_or_else(|| damaged("its first line has no end"))?;
        let body = text.split_off(end + 1);
        /// The part of the header that all versions have.
        #[derive(Deserialize)]
        struct Version {
            schema: String,
            gctrace: String,
        }
        let version: Version =
            serde_json::from_slice(&text).map_err(|_| damaged("its first line is no header"))?;
        if version.schema != SCHEMA || version.gctrace != env!("CARGO_PKG_VERSION") {
            return Err(SummaryError::Version {
                file: name.to_owned(),
                schema: version.schema,
                gctrace: version.gctrace,
            });
        }
        let header: SummaryHeader =
            serde_json::from_slice(&text).map_err(|_| damaged("its first line is no header"))?;
        if header.body_bytes != body.len() as u64 {
            return Err(damaged("its size is not that of its header"));
        }
        if header.body_sha256 != hash(&body) {
            return Err(damaged("its bytes do not have the hash of its header"));
        }
        Ok(Self {
            name: name.to_owned(),
            header,
            body,
            at: 0,
            codec: ItemCodec::default(),
            items: Vec::new().into_iter(),
            end: None,
        })
    }

    /// The first line.
    #[must_use]
    pub fn header(&self) -> &SummaryHeader {
        &self.header
    }

    /// The next item, or `None` at the end.
    ///
    /// # Errors
    /// [`SummaryError::Damaged`]
    pub fn next_item(&mut self) -> Result<Option<DecodedItem<'static>>, SummaryError> {
        loop {
            if let Some(item) = self.items.next() {
                let item = self.codec.restore(item);
                let item = item.ok_or_else(|| self.damaged("an unknown name"))?;
                return match possible::is_possible(&item) {
                    true => Ok(Some(item)),
                    false => Err(self.damaged("an item that no trace can have")),
                };
            }
            if self.end.is_some() {
                return Ok(None);
            }
            let chunk = self.chunk()?;
            self.codec.learn(chunk.names);
            self.items = chunk.items.into_iter();
            self.end = chunk.end;
        }
    }

    /// How the trace ended, once all items were read.
    #[must_use]
    pub fn finish(self) -> TraceCompletion {
        self.end.unwrap_or_default()
    }

    fn chunk(&mut self) -> Result<Chunk, SummaryError> {
        let packed = self.packed();
        let packed = packed.ok_or_else(|| self.damaged("its last part is missing"))?;
        let mut text = Vec::new();
        let mut unpacked = ZlibDecoder::new(packed).take(CHUNK_BYTES as u64 + 1);
        let read = unpacked.read_to_end(&mut text);
        read.map_err(|_| self.damaged("a part cannot be unpacked"))?;
        if text.len() > CHUNK_BYTES {
            return Err(self.damaged("a part is larger than gctrace writes them"));
        }
        self.at += size_of::<u64>() + packed.len();
        bitcode::decode(&text).map_err(|_| self.damaged("a part cannot be decoded"))
    }

    /// The next chunk as it is in the file: its size in front of it.
    fn packed(&self) -> Option<&[u8]> {
        let (size, rest) = self.body.get(self.at..)?.split_first_chunk()?;
        rest.get(..usize::try_from(u64::from_le_bytes(*size)).ok()?)
    }

    fn damaged(&self, problem: &'static str) -> SummaryError {
        SummaryError::Damaged { file: self.name.clone(), problem }
    }
}

fn hash(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Annotation, Note, Record};

    fn written(items: &[Record]) -> Vec<u8> {
        let mut writer = SummaryWriter::default();
        for item in items {
            writer.add(DecodedItem::Record(item.clone()));
        }
        let source = SummarySource::of("t.json", &b""[..]).unwrap();
        writer.finish(TraceCompletion::default(), source, None)
    }

    /// The items, and the unpacked bytes of the largest chunk.
    fn read(file: &[u8]) -> Result<(Vec<Record>, usize), SummaryError> {
        let mut reader = SummaryReader::new("t.gcsum", file)?;
        let (mut items, mut largest, mut at) = (Vec::new(), 0, None);
        while let Some(item) = reader.next_item()? {
            if let DecodedItem::Record(record) = item {
                items.push(record);
            }
            if at != Some(reader.at) {
                let chunk = reader.body.get(at.unwrap_or(0)..reader.at);
                let packed = chunk.and_then(|chunk| chunk.get(8..)).unwrap_or_default();
                let unpacked = io::copy(&mut ZlibDecoder::new(packed), &mut io::sink());
                largest = largest.max(unpacked.unwrap() as usize);
                at = Some(reader.at);
            }
        }
        Ok((items, largest))
    }

    #[test]
    fn chunks_of_large_items_are_divided() {
        let note = |byte: u8| {
            Record::Note(Note {
                pid: None,
                at_ns: 1,
                message: char::from(byte).to_string().repeat(CHUNK_BYTES / 3),
            })
        };
        let named = |byte: u8| {
            Record::Annotation(Annotation {
                pid: 1,
                tid: 1,
                name: char::from(byte).to_string().repeat(CHUNK_BYTES / 6),
                start_ns: 1,
                end_ns: 2,
            })
        };
        let items: Vec<Record> = (b'a'..b'e').map(note).chain((b'a'..b'h').map(named)).collect();
        let (restored, largest) = read(&written(&items)).unwrap();
        assert!(restored == items, "other items");
        assert!((CHUNK_BYTES / 2..=CHUNK_BYTES).contains(&largest), "{largest}");
    }

    #[test]
    fn chunks_that_unpack_to_more_are_refused() {
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
        packed.write_all(&vec![0; CHUNK_BYTES + 1]).unwrap();
        let packed = packed.finish().unwrap();
        let body = [&(packed.len() as u64).to_le_bytes(), packed.as_slice()].concat();
        let whole = written(&[]);
        let mut header: SummaryHeader =
            serde_json::from_slice(whole.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
        (header.body_bytes, header.body_sha256) = (body.len() as u64, hash(&body));
        let first = serde_json::to_vec(&header).unwrap();
        let file = [first.as_slice(), b"\n", &body].concat();
        assert!(file.len() < 100_000, "{}", file.len());
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains("larger than gctrace writes"), "{error}");
    }
}
