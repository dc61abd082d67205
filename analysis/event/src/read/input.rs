//! The text of a trace: opened, unpacked if compressed, and the part of it that is in memory.
//!
//! Owns the buffer: reading, growing, counting lines. Does not interpret the text. How a file is
//! compressed is seen in its first bytes, never in its name.

use super::error::{ReadError, TracePlace, TracePosition, line_ends};
use super::scan;
use crate::TraceCompression;
use flate2::read::MultiGzDecoder;
use gctrace_units::part;
use std::fs::{File, FileType};
use std::io;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Binary logarithm of the most bytes of text that a zstd file may refer back to: 128 MiB, the most that `zstd -d`
/// takes by default. These bytes are kept in memory while the file is read. gctrace's traces refer back to 2 MiB.
const ZSTD_WINDOW_LOG: u32 = 27;

/// An open trace, compressed or not.
pub struct TraceInput {
    name: String,
    reader: Box<dyn Read + Send>,
    compression: TraceCompression,
    size: Option<u64>,
    consumed: Arc<AtomicU64>,
}

impl TraceInput {
    /// Opens a file or a FIFO; `-` is standard input.
    ///
    /// # Errors
    /// [`ReadError::Open`], [`ReadError::Directory`], [`ReadError::Device`], [`ReadError::Io`].
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        if path == Path::new("-") {
            return Self::new("standard input", io::stdin());
        }
        let name = path.display().to_string();
        let failed = |source| ReadError::Open { file: name.clone(), source };
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if metadata.is_dir() {
            return Err(ReadError::Directory { file: name });
        }
        if is_device(metadata.file_type()) {
            return Err(ReadError::Device { file: name });
        }
        let file = File::open(path).map_err(failed)?;
        let mut input = Self::new(&name, file)?;
        input.size = if metadata.is_file() { Some(metadata.len()) } else { None };
        Ok(input)
    }

    /// Reads from anything; `name` is for messages.
    ///
    /// # Errors
    /// [`ReadError::Io`] when not even the first bytes can be read.
    pub fn new(name: &str, reader: impl Read + Send + 'static) -> Result<Self, ReadError> {
        let consumed = Arc::new(AtomicU64::new(0));
        let mut counted = CountingReader { reader, consumed: Arc::clone(&consumed) };
        let mut first = Vec::new();
        let start =
            counted.by_ref().take(TraceCompression::MAGIC_BYTES as u64).read_to_end(&mut first);
        let failed = |source| ReadError::Io { file: name.to_owned(), byte: 0, source };
        start.map_err(failed)?;
        let compression = TraceCompression::by_content(&first);
        let whole = io::Cursor::new(first).chain(counted);
        Ok(Self {
            name: name.to_owned(),
            reader: unpacked(whole, compression).map_err(failed)?,
            compression,
            size: None,
            consumed,
        })
    }

    /// After this many bytes of text, or at this time, reading fails with [`io::ErrorKind::FileTooLarge`]: for what
    /// may be endless.
    #[must_use]
    pub fn bounded(mut self, bytes: u64, until: Instant) -> Self {
        self.reader = Box::new(BoundedReader { reader: self.reader, left: bytes, until });
        self
    }

    /// Name of the input in messages: its path, or the name passed to [`TraceInput::new`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the bytes are unpacked on the way.
    #[must_use]
    pub fn compression(&self) -> TraceCompression {
        self.compression
    }

    /// Whether the bytes are unpacked on the way.
    #[must_use]
    pub fn compressed(&self) -> bool {
        self.compression != TraceCompression::None
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

/// The unpacked text from `reader`.
fn unpacked(
    reader: impl Read + Send + 'static,
    compression: TraceCompression,
) -> io::Result<Box<dyn Read + Send>> {
    Ok(match compression {
        TraceCompression::None => Box::new(reader),
        TraceCompression::Gzip => Box::new(MultiGzDecoder::new(reader)),
        TraceCompression::Zstd => {
            let mut decoder = zstd::Decoder::new(reader)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            Box::new(ZstdReader(decoder))
        }
    })
}

/// Tells damaged data from a failed read: the decoder's own errors have no kind.
struct ZstdReader<R: Read>(zstd::Decoder<'static, io::BufReader<R>>);

impl<R: Read> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::Other if error.raw_os_error().is_none() => {
                io::Error::new(io::ErrorKind::InvalidData, error)
            }
            _ => error,
        })
    }
}

/// Whether it may have no end.
#[cfg(unix)]
fn is_device(kind: FileType) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    kind.is_char_device() || kind.is_block_device()
}

/// Devices are not files here.
#[cfg(not(unix))]
fn is_device(_: FileType) -> bool {
    false
}

struct BoundedReader<R> {
    reader: R,
    left: u64,
    until: Instant,
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 || Instant::now() >= self.until {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let count = self.reader.read(buffer)?;
        self.left = self.left.saturating_sub(count as u64);
        Ok(count)
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

/// So many bytes at the start of a file show its type. A window has room for them.
pub(crate) const FIRST_BYTES: usize = 16;

/// A window that moves over the text of a trace.
pub(crate) struct ReadWindow {
    input: TraceInput,
    buffer: Vec<u8>,
    /// The part of `buffer` not yet used.
    unused: Range<usize>,
    /// Bytes of the text before `buffer`.
    base: u64,
    /// Line ends are counted up to this index in `buffer`; and their number.
    counted: usize,
    lines: u64,
    ended: bool,
    /// Events taken, for messages.
    events: u64,
    /// An error that occurred after bytes that are still to be used.
    failure: Option<io::Error>,
}

impl ReadWindow {
    pub(crate) fn new(input: TraceInput, bytes: usize) -> Self {
        Self {
            input,
            buffer: vec![0; bytes.max(FIRST_BYTES)],
            unused: 0..0,
            base: 0,
            counted: 0,
            lines: 0,
            ended: false,
            events: 0,
            failure: None,
        }
    }

    pub(crate) fn input(&self) -> &TraceInput {
        &self.input
    }

    /// Whether the whole text has been read into the buffer.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Whether the text has no byte at all, once it has been read.
    pub(crate) fn is_empty_file(&self) -> bool {
        self.base == 0 && self.unused.end == 0
    }

    /// The bytes not yet used.
    pub(crate) fn rest(&self) -> &[u8] {
        part(&self.buffer, self.unused.clone())
    }

    /// Uses up `count` bytes.
    pub(crate) fn advance(&mut self, count: usize) {
        self.unused.start += count.min(self.unused.len());
    }

    /// Number of events taken so far.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// As [`ReadWindow::take`], of an event.
    pub(crate) fn take_event(&mut self, count: usize) -> (&[u8], TracePlace<'_>) {
        self.events += 1;
        self.take(count)
    }

    /// Consumes `count` bytes and returns them with the place of the first.
    pub(crate) fn take(&mut self, count: usize) -> (&[u8], TracePlace<'_>) {
        let start = self.unused.start;
        self.advance(count);
        let text = self.buffer.get(start..self.unused.start);
        (text.unwrap_or_default(), self.place(start))
    }

    /// The next byte that is not white space, or `None` at the end of the text.
    pub(crate) fn peek(&mut self) -> Result<Option<u8>, ReadError> {
        loop {
            self.advance(scan::space(self.rest(), 0));
            match self.rest().first().copied() {
                Some(0) if self.only_zeros_from(0)? => return Ok(None),
                Some(byte) => return Ok(Some(byte)),
                None if !self.fill()? => return Ok(None),
                None => {}
            }
        }
    }

    /// Reads until the buffer is full; the buffer grows if nothing in it is used yet. `false`: the text has ended.
    pub(crate) fn fill(&mut self) -> Result<bool, ReadError> {
        if let Some(error) = self.failure.take() {
            return self.failed(error);
        }
        if self.ended {
            return Ok(false);
        }
        self.make_room();
        let before = self.unused.end;
        while let Some(room) =
            self.buffer.get_mut(self.unused.end..).filter(|room| !room.is_empty())
        {
            match self.input.read(room) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(count) => self.unused.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.unused.end == before => return self.failed(error),
                Err(error) => {
                    self.failure = Some(error);
                    break;
                }
            }
        }
        Ok(self.unused.end > before)
    }

    fn make_room(&mut self) {
        self.count_lines(self.unused.start);
        self.counted = 0;
        self.base += self.unused.start as u64;
        self.buffer.copy_within(self.unused.clone(), 0);
        self.unused = 0..self.unused.len();
        if self.unused.end > self.buffer.len() / 2 {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
    }

    /// A compressed file that ends in the middle is cut off; everything else is an error.
    fn failed(&mut self, source: io::Error) -> Result<bool, ReadError> {
        self.ended = true;
        let file = self.input.name().to_owned();
        let byte = self.input.consumed();
        if !self.input.compressed() {
            return Err(ReadError::Io { file, byte, source });
        }
        match source.kind() {
            io::ErrorKind::UnexpectedEof => Ok(false),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                let format = self.input.compression().name();
                Err(ReadError::Unpack { file, byte, format, source })
            }
            _ => Err(ReadError::Io { file, byte, source }),
        }
    }

    fn count_lines(&mut self, to: usize) {
        let text = part(&self.buffer, self.counted..to);
        self.lines += line_ends(text);
        self.counted = to;
    }

    /// The place of the byte `ahead` of the first unused one.
    pub(crate) fn position(&self, ahead: usize) -> TracePosition {
        self.place(self.unused.start + ahead).position()
    }

    /// The position of the first unused byte. Each line end is counted once however often this is
    /// called.
    pub(crate) fn current_position(&mut self) -> TracePosition {
        self.count_lines(self.unused.start);
        self.position(0)
    }

    fn place(&self, index: usize) -> TracePlace<'_> {
        TracePlace {
            byte: self.base + index as u64,
            lines: self.lines,
            uncounted: part(&self.buffer, self.counted..index),
        }
    }

    /// Whether there is a zero byte at `at` and only zero bytes after it. A crashed file system leaves such a file; it
    /// is cut off there rather than invalid. Zeros before other text are an error.
    pub(crate) fn only_zeros_from(&mut self, at: usize) -> Result<bool, ReadError> {
        if self.rest().get(at) != Some(&0) {
            return Ok(false);
        }
        let position = self.position(at);
        let is_other = |text: &[u8]| text.iter().any(|byte| *byte != 0);
        while !self.rest().get(at..).is_some_and(is_other) {
            self.unused.end = self.unused.start + at;
            if !self.fill()? {
                return Ok(true);
            }
        }
        Err(ReadError::Syntax {
            file: self.input.name().to_owned(),
            position,
            expected: "text",
            found: "zero bytes".to_owned(),
            events: self.events,
        })
    }

    /// Passes over one value without keeping it, so that it may have any size. `false`: the text
    /// ended within it.
    pub(crate) fn pass_over(&mut self) -> Result<bool, ReadError> {
        let mut skip = ValueSkipper::default();
        loop {
            if let Some(used) = skip.feed(self.rest()) {
                self.advance(used);
                return Ok(true);
            }
            self.unused.start = self.unused.end;
            if !self.fill()? {
                return Ok(false);
            }
        }
    }
}

/// Finds the end of a value piece by piece, by counting brackets outside strings.
#[derive(Debug, Default)]
struct ValueSkipper {
    depth: u64,
    in_string: bool,
    escaped: bool,
    begun: bool,
}

impl ValueSkipper {
    /// Number of bytes of `piece` that belong to the value, or `None` if it continues after the
    /// piece.
    fn feed(&mut self, piece: &[u8]) -> Option<usize> {
        piece.iter().enumerate().find_map(|(index, byte)| self.step(index, *byte))
    }

    fn step(&mut self, index: usize, byte: u8) -> Option<usize> {
        let first = !std::mem::replace(&mut self.begun, true);
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return if !self.in_string && self.depth == 0 { Some(index + 1) } else { None };
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' if self.depth > 0 => {
                self.depth -= 1;
                return if self.depth == 0 { Some(index + 1) } else { None };
            }
            b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' if self.depth == 0 && !first => {
                return Some(index);
            }
            _ => {}
        }
        None
    }
}
