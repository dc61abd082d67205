//! Summaries: the data that a report needs from one trace, in a file of a few percent of its size.
//!
//! Owns the file: a header of one line of JSON, then its body. The body is complete if its size and hash are as in the
//! header. `summary/chunk.rs` has the parts of a body and their bounds, `summary/items.rs` the encoding of records,
//! `summary/possible.rs` the checks of possible records. A summary is read as its trace would be: item by item, the
//! same ones in the same order, but for events of no interest: only their first and last time stay.

mod chunk;
mod items;
mod possible;

use crate::read::{DecodedItem, TraceCompletion, TraceProperty};
use chunk::{CHUNK_ITEMS, CHUNK_NAME_BYTES, Chunk};
use indexmap::IndexMap;
use items::{ItemCodec, StoredItem};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::io;
use std::io::{BufRead as _, BufReader, Read, Seek, SeekFrom};

/// Name and version of the format, the value of `schema` in a header.
pub const SCHEMA: &str = "gctrace.summary/13";
/// End of the name of a summary.
pub const EXTENSION: &str = "gcsum";

/// First bytes of every summary, of other versions too.
const FIRST_BYTES: &[u8] = br#"{"schema":"gctrace.summary/"#;
/// Longest header, in bytes: some hundred, and names of ranks.
const HEADER_BYTES: u64 = 4 << 20;
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
    /// Why the trace could not be read to its end; everything before that is in the summary.
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
            hash.update(gctrace_units::part(&buffer, ..count));
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
        /// The problem with it.
        problem: &'static str,
    },
}

/// Whether a file that starts like this is a summary, if not a valid one.
#[must_use]
pub fn is_summary(first: &[u8]) -> bool {
    first.starts_with(FIRST_BYTES)
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
        std::mem::take(&mut self.chunk).write(&mut self.body);
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

/// Reads a summary that is complete: item by item as [`crate::read::TraceReader`] reads its trace. In
/// memory are the names so far, and the items of one chunk.
pub struct SummaryReader<R> {
    name: String,
    header: SummaryHeader,
    /// The file from the next chunk on.
    input: BufReader<R>,
    /// Bytes of the body that are left.
    left: u64,
    codec: ItemCodec,
    items: std::vec::IntoIter<StoredItem>,
    end: Option<TraceCompletion>,
}

impl<R: Read + Seek> SummaryReader<R> {
    /// Reads the file to its end and checks that nothing is missing or changed. `name` is for
    /// messages.
    ///
    /// # Errors
    /// It is damaged, of another gctrace, or cannot be read.
    pub fn new(name: &str, file: R) -> Result<Self, SummaryError> {
        let damaged = |problem| SummaryError::Damaged { file: name.to_owned(), problem };
        let failed = |source| SummaryError::Io { file: name.to_owned(), source };
        let mut input = BufReader::new(file);
        let mut line = Vec::new();
        let mut first = input.by_ref().take(HEADER_BYTES);
        first.read_until(b'\n', &mut line).map_err(failed)?;
        if line.last() != Some(&b'\n') {
            return Err(damaged("its first line has no end"));
        }
        /// The part of the header that all versions have.
        #[derive(Deserialize)]
        struct Version {
            schema: String,
            gctrace: String,
        }
        let version: Version =
            serde_json::from_slice(&line).map_err(|_| damaged("its first line is no header"))?;
        if version.schema != SCHEMA || version.gctrace != env!("CARGO_PKG_VERSION") {
            return Err(SummaryError::Version {
                file: name.to_owned(),
                schema: version.schema,
                gctrace: version.gctrace,
            });
        }
        let header: SummaryHeader =
            serde_json::from_slice(&line).map_err(|_| damaged("its first line is no header"))?;
        let size = input.seek(SeekFrom::End(0)).map_err(failed)?;
        let body = line.len() as u64;
        if size.checked_sub(body) != Some(header.body_bytes) {
            return Err(damaged("its size differs from its header's"));
        }
        input.seek(SeekFrom::Start(body)).map_err(failed)?;
        let found = SummarySource::of(name, input.by_ref()).map_err(failed)?;
        if header.body_sha256 != found.sha256 {
            return Err(damaged("its bytes do not have the hash of its header"));
        }
        input.seek(SeekFrom::Start(body)).map_err(failed)?;
        Ok(Self {
            name: name.to_owned(),
            left: header.body_bytes,
            header,
            input,
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
                return if possible::is_possible(&item) {
                    Ok(Some(item))
                } else {
                    Err(self.damaged("an item that no trace can have"))
                };
            }
            if self.end.is_some() {
                return Ok(None);
            }
            let chunk = Chunk::read(&mut self.input, &mut self.left);
            let chunk = chunk.map_err(|problem| self.damaged(problem))?;
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

    fn damaged(&self, problem: &'static str) -> SummaryError {
        SummaryError::Damaged { file: self.name.clone(), problem }
    }
}

fn hash(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}
