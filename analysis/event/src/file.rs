//! A trace on disk: buffering, compression, full disks.
//!
//! Owns where bytes go and what happens when they do not fit. Does not own the text of a line
//! (`line.rs`).
//!
//! Two measures keep a trace readable. A plain trace is closed JSON after every flush: each flush
//! overwrites the previous closing brackets, so a recorder killed in between leaves a file that any
//! JSON reader opens. And disk space is reserved (`fallocate`) before records are buffered, so a
//! disk that fills up is noticed while there is still room for every buffered record and for the
//! last line.
//!
//! The section of frames after the events only repeats them for viewers. It is written last, if the disk has room for
//! all of it; not into zstd: no viewer opens it.

mod encoder;

use crate::line::{RecordEncoder, WrittenFrames};
use crate::sink::TraceSink;
use crate::{Record, TraceCompression, TraceEnd, TraceHeader, line};
use encoder::TraceEncoder;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::fs::File;
use std::io;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Records are handed to the disk when this many bytes of text are waiting.
const BUFFER_BYTES: usize = 64 * 1024;

/// Why a trace could not be written. Earlier records remain readable.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// No space, or a quota.
    #[error(
        "{}: no space left on the disk{}; {}. Free some space or record elsewhere: gctrace -o \
         /OTHER/DISK/trace.json.zst -- COMMAND",
        path.display(), after(*bytes), remains(*bytes)
    )]
    DiskFull {
        /// Path of the trace.
        path: PathBuf,
        /// Bytes of it on disk.
        bytes: u64,
    },
    /// A limit on the size of files, or the largest file of the file system.
    #[error(
        "{}: the file size limit ({}) is reached{}; {}. A trace needs at least 128 KiB: ulimit -f \
         unlimited",
        path.display(), limit_in_words(), after(*bytes), remains(*bytes)
    )]
    SizeLimit {
        /// Path of the trace.
        path: PathBuf,
        /// Bytes of it on disk.
        bytes: u64,
    },
    /// Any other error of the kernel.
    #[error(
        "{}: writing the trace failed{}: {cause}; {}. Record to another place: gctrace -o OTHER.json -- COMMAND",
        path.display(), after(*bytes), remains(*bytes)
    )]
    Io {
        /// Path of the trace.
        path: PathBuf,
        /// Bytes of it on disk.
        bytes: u64,
        /// The kernel's error.
        cause: io::Error,
    },
    /// A record after an earlier error; it was not taken.
    #[error("{}: recording stopped after an earlier error", path.display())]
    Stopped {
        /// Path of the trace.
        path: PathBuf,
    },
}

impl WriteError {
    /// The cause in a few words: `no space left on the disk`.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::DiskFull { .. } => "no space left on the disk".to_owned(),
            Self::SizeLimit { .. } => "file size limit".to_owned(),
            Self::Io { cause, .. } => cause.to_string(),
            Self::Stopped { .. } => "an earlier error".to_owned(),
        }
    }
}

fn after(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        bytes => format!(" after {bytes} bytes"),
    }
}

fn remains(bytes: u64) -> &'static str {
    match bytes {
        0 => "nothing was recorded",
        _ => "the trace is readable up to there",
    }
}

/// The limit of this process: `ulimit -f`, in the units of bash.
fn limit_in_words() -> String {
    match getrlimit(Resource::RLIMIT_FSIZE) {
        Ok((soft, _)) if soft != RLIM_INFINITY => format!("ulimit -f: {} KiB", soft / 1024),
        _ => "file system".to_owned(),
    }
}

/// A trace that is written to an open file.
///
/// Call [`TraceFile::flush`] a few times a second: flushed records survive the end of this process.
/// Dropped without [`TraceFile::finish`], it flushes its buffer.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    sink: TraceSink,
    /// Text not yet handed to the sink or the encoder.
    pending: Vec<u8>,
    lines: RecordEncoder,
    encoder: Option<TraceEncoder>,
    /// Records taken since everything was handed over last.
    waiting: u64,
    /// Records that were taken and could not be written.
    lost: u64,
    /// Bytes of text of all that were taken.
    text: u64,
    stopped: bool,
}

impl TraceFile {
    /// Starts a trace in `file`. The file must be writable and not opened for appending; a regular file is truncated.
    /// `path` is for messages. The header reaches the disk at once.
    ///
    /// # Errors
    /// [`WriteError::DiskFull`] if there is no room for the first ~100 KiB, otherwise
    /// [`WriteError::Io`].
    pub fn create(
        file: File,
        path: &Path,
        compression: TraceCompression,
        header: &TraceHeader,
    ) -> Result<Self, WriteError> {
        let footer: &[u8] = match compression {
            TraceCompression::None => line::FOOTER,
            TraceCompression::Gzip | TraceCompression::Zstd => b"",
        };
        let sink = TraceSink::new(file, footer).map_err(|source| error(path, 0, source))?;
        Self::begin(sink, path, compression, header)
    }

    /// Reserves the space that [`TraceFile::create`] needs, in an empty file; it stays empty.
    ///
    /// # Errors
    /// As [`TraceFile::create`].
    pub fn reserve(file: &File, path: &Path) -> Result<(), WriteError> {
        let reserved = file.try_clone().and_then(|file| TraceSink::new(file, b""));
        reserved.map(drop).map_err(|source| error(path, 0, source))
    }

    /// As [`TraceFile::create`], but only appends: it does not touch the file's earlier content. Bytes that its reader
    /// (of a pipe) does not take yet wait in memory, up to 16 MiB.
    ///
    /// # Errors
    /// [`WriteError`], where not even the first line can be written.
    pub fn stream(
        file: File,
        path: &Path,
        compression: TraceCompression,
        header: &TraceHeader,
    ) -> Result<Self, WriteError> {
        Self::begin(TraceSink::stream(file), path, compression, header)
    }

    fn begin(
        sink: TraceSink,
        path: &Path,
        compression: TraceCompression,
        header: &TraceHeader,
    ) -> Result<Self, WriteError> {
        let encoder = TraceEncoder::new(compression).map_err(|source| error(path, 0, source))?;
        let mut trace = Self {
            path: path.to_owned(),
            sink,
            pending: Vec::with_capacity(BUFFER_BYTES),
            lines: RecordEncoder::default(),
            encoder,
            waiting: 0,
            lost: 0,
            text: 0,
            stopped: false,
        };
        line::push_header(&mut trace.pending, header).map_err(|source| error(path, 0, source))?;
        trace.text = trace.pending.len() as u64;
        trace.flush()?;
        Ok(trace)
    }

    /// Takes one record. It is on disk after the next [`TraceFile::flush`].
    ///
    /// # Errors
    /// As [`TraceFile::flush`], called when the buffer is full: the record was taken nevertheless.
    /// [`WriteError::Stopped`]: it was not taken, because of an earlier error.
    pub fn write(&mut self, record: &Record) -> Result<(), WriteError> {
        if self.stopped {
            return Err(WriteError::Stopped { path: self.path.clone() });
        }
        let taken = self.pending.len();
        if let Err(source) = self.lines.push(&mut self.pending, record) {
            self.pending.truncate(taken);
            return Err(error(&self.path, self.sink.bytes(), source));
        }
        self.waiting += 1;
        self.text += (self.pending.len() - taken) as u64;
        if self.pending.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Passes all buffered records to the kernel.
    ///
    /// # Errors
    /// [`WriteError::DiskFull`] or [`WriteError::Io`]. The records are on disk or, if that failed,
    /// retried by [`TraceFile::finish`]; later records are refused.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if self.stopped {
            return Ok(());
        }
        let result = self.hand_over().and_then(|()| self.sink.reserve());
        self.checked(result)
    }

    /// Like [`TraceFile::flush`], before the end: reserves no more space than the remaining records
    /// need. [`TraceFile::lost`] is final from here on.
    ///
    /// # Errors
    /// As [`TraceFile::flush`].
    pub fn settle(&mut self) -> Result<(), WriteError> {
        if self.stopped {
            return Ok(());
        }
        self.sink.wait_for_reader();
        let result = self.hand_over();
        self.checked(result)
    }

    /// Records that were taken and could not be written: of a compressed trace that many at most.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Bytes of the trace on disk.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sink.bytes()
    }

    /// Bytes of the text of the header and of all records that were taken, before they are compressed.
    #[must_use]
    pub fn text(&self) -> u64 {
        self.text
    }

    /// Writes the last line and, where there is room for it, the section of frames, and closes the
    /// trace; also after an error, with the space that was reserved for the last line. Returns the
    /// size of the file in bytes.
    ///
    /// # Errors
    /// As [`TraceFile::flush`]; the trace then lacks its last line, or is cut.
    pub fn finish(mut self, end: &TraceEnd) -> Result<u64, WriteError> {
        let result = self.close(end);
        self.stopped = true;
        self.checked(result)?;
        Ok(self.sink.bytes())
    }

    fn close(&mut self, end: &TraceEnd) -> io::Result<()> {
        if !self.stopped {
            self.sink.wait_for_reader();
        } else if self.encoder.is_none() {
            // Text that did not fit would leave no room for the last line either.
            self.pending.clear();
        }
        self.lines.push(&mut self.pending, &Record::End(end.clone()))?;
        let frames = std::mem::take(&mut self.lines).into_frames();
        if self.has_viewers() && !frames.is_empty() && !self.stopped {
            self.hand_over()?;
            if self.has_room(&frames)? {
                return self.write_section(&frames);
            }
        }
        self.write_footer()?;
        self.sink.release()
    }

    /// Whether there are programs that show files of this kind with the section of frames: none opens zstd.
    fn has_viewers(&self) -> bool {
        !matches!(self.encoder, Some(TraceEncoder::Zstd(_)))
    }

    /// Whether the section of frames fits on the disk. Compressed text that does not compress is
    /// longer by some bytes in each block of 16 KiB or more.
    fn has_room(&mut self, frames: &WrittenFrames) -> io::Result<bool> {
        let mut counted = ByteCounter(0);
        frames.write_section(&mut counted)?;
        let bytes = counted.0 + counted.0 / 1024 + 1024;
        Ok(self.sink.reserve_bytes(bytes).is_ok())
    }

    /// Closes the trace with the section of frames; without, if a plain file cannot take it.
    fn write_section(&mut self, frames: &WrittenFrames) -> io::Result<()> {
        let overwrites = self.sink.overwrites();
        let open = self.sink.open_end();
        match self.try_section(frames) {
            Err(_) if overwrites => {
                self.pending.clear();
                self.sink.close_at(open)
            }
            result => result.and_then(|()| self.sink.release()),
        }
    }

    fn try_section(&mut self, frames: &WrittenFrames) -> io::Result<()> {
        let mut section = BufWriter::with_capacity(BUFFER_BYTES, FrameSection(self));
        frames.write_section(&mut section)?;
        section.flush()?;
        drop(section);
        self.end_compression()?;
        self.write_pending()
    }

    fn write_footer(&mut self) -> io::Result<()> {
        if self.encoder.is_some() || !self.sink.overwrites() {
            self.pending.extend_from_slice(line::FOOTER);
        }
        self.end_compression()?;
        self.write_pending()
    }

    fn end_compression(&mut self) -> io::Result<()> {
        if let Some(encoder) = &mut self.encoder {
            encoder.write_all(&self.pending)?;
            encoder.finish()?;
            self.pending.clear();
        }
        Ok(())
    }

    /// Lines through the encoder, if there is one, to the sink.
    fn hand_over(&mut self) -> io::Result<()> {
        let handed = self.try_hand_over();
        if handed.is_err() {
            self.lost = match self.encoder {
                Some(_) => self.waiting,
                None => separators(&self.pending).min(self.waiting),
            };
        } else {
            self.waiting = 0;
        }
        handed
    }

    fn try_hand_over(&mut self) -> io::Result<()> {
        if let Some(encoder) = &mut self.encoder
            && !self.pending.is_empty()
        {
            encoder.write_all(&self.pending)?;
            self.pending.clear();
            encoder.flush()?;
        }
        self.write_pending()
    }

    fn write_pending(&mut self) -> io::Result<()> {
        match &mut self.encoder {
            Some(encoder) => self.sink.write(encoder.made()),
            None => self.sink.write(&mut self.pending),
        }
    }

    fn checked(&mut self, result: io::Result<()>) -> Result<(), WriteError> {
        result.map_err(|source| {
            self.stopped = true;
            error(&self.path, self.sink.bytes(), source)
        })
    }
}

/// The way of the section of frames, piece by piece, through the encoder, if there is one.
struct FrameSection<'a>(&'a mut TraceFile);

impl Write for FrameSection<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        match &mut self.0.encoder {
            Some(encoder) => encoder.write_all(piece)?,
            None => self.0.pending.extend_from_slice(piece),
        }
        self.0.write_pending()?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts the bytes written.
struct ByteCounter(i64);

impl Write for ByteCounter {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let length = gctrace_units::i64_or_most(piece.len());
        self.0 = self.0.saturating_add(length);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        if !self.stopped {
            // There is no caller left to report an error to; the part on disk is readable.
            let _ = self.hand_over();
        }
    }
}

fn error(path: &Path, bytes: u64, cause: io::Error) -> WriteError {
    let path = path.to_owned();
    match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            WriteError::DiskFull { path, bytes }
        }
        io::ErrorKind::FileTooLarge => WriteError::SizeLimit { path, bytes },
        _ => WriteError::Io { path, bytes, cause },
    }
}

/// Number of lines in this text, each preceded by a separator.
fn separators(lines: &[u8]) -> u64 {
    let separators = lines.windows(line::SEPARATOR.len());
    separators.filter(|two| *two == line::SEPARATOR).count() as u64
}
