//! Bytes of a trace: opened, unpacked if compressed, counted.
//!
//! Whether a file is compressed is seen in its first bytes, never in its name.

use super::error::ReadError;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

/// The first two bytes of a gzip file (RFC 1952, 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// An open trace, compressed or not.
pub struct TraceInput {
    name: String,
    reader: Box<dyn Read + Send>,
    compressed: bool,
    size: Option<u64>,
    consumed: Arc<AtomicU64>,
}

impl TraceInput {
    /// Opens a file; `-` is standard input.
    ///
    /// # Errors
    /// [`ReadError::Open`], [`ReadError::Directory`], [`ReadError::Io`].
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        if path == Path::new("-") {
            return Self::new("standard input", io::stdin());
        }
        let name = path.display().to_string();
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = match opened {
            Ok(opened) => opened,
            Err(source) => return Err(ReadError::Open { file: name, source }),
        };
        if metadata.is_dir() {
            return Err(ReadError::Directory { file: name });
        }
        let mut input = Self::new(&name, file)?;
        input.size = metadata.is_file().then_some(metadata.len());
        Ok(input)
    }

    /// Reads from anything; `name` is for messages.
    ///
    /// # Errors
    /// [`ReadError::Io`] when not even the first bytes can be read.
    pub fn new(name: &str, reader: impl Read + Send + 'static) -> Result<Self, ReadError> {
        let consumed = Arc::new(AtomicU64::new(0));
        let mut counted = CountingReader {
            reader,
            consumed: Arc::clone(&consumed),
        };
        let mut first = Vec::new();
        let start = counted
            .by_ref()
            .take(GZIP_MAGIC.len() as u64)
            .read_to_end(&mut first);
        if let Err(source) = start {
            let file = name.to_owned();
            return Err(ReadError::Io {
                file,
                byte: 0,
                source,
            });
        }
        let compressed = first == GZIP_MAGIC;
        let whole = io::Cursor::new(first).chain(counted);
        Ok(Self {
            name: name.to_owned(),
            reader: if compressed {
                Box::new(MultiGzDecoder::new(whole))
            } else {
                Box::new(whole)
            },
            compressed,
            size: None,
            consumed,
        })
    }

    /// Name of the input in messages: its path, or what was passed to [`TraceInput::new`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the bytes are unpacked on the way.
    #[must_use]
    pub fn compressed(&self) -> bool {
        self.compressed
    }

    /// Size of the file in bytes, where it is a file.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// Bytes of the file read so far (compressed ones if it is compressed), for a progress bar.
    #[must_use]
    pub fn consumed(&self) -> u64 {
        self.consumed.load(Ordering::Relaxed)
    }
}

impl Read for TraceInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

struct CountingReader<R> {
    reader: R,
    consumed: Arc<AtomicU64>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.consumed.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
