//! A trace on disk: buffering, compression, full disks.
//!
//! Owns where bytes go and what happens when they do not fit. Does not own what a line says
//! (`line.rs`).
//!
//! Two measures keep a trace whole. A plain trace is closed JSON after every flush: each flush
//! overwrites the closing brackets of the one before, so a recorder killed in between leaves a
//! file that any JSON reader opens. And space on disk is reserved (`fallocate`) before records are
//! taken into memory, so a disk that fills up is noticed while there is still room for every
//! record already taken and for the last line.

use crate::End;
use crate::Header;
use crate::Record;
use crate::line;
use crate::sink::Sink;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;

/// Records are handed to the disk when this many bytes of text are waiting.
const BUFFER_BYTES: usize = 64 * 1024;

/// Why a trace could not be written. What was written before stays readable.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// No space, a quota, or a limit on the file's size.
    #[error(
        "{}: no space left after {bytes} bytes ({source}); the trace is complete up to there. \
         Free some space, or record elsewhere: gctrace -o /OTHER/DISK/trace.json.gz -- COMMAND",
        path.display()
    )]
    DiskFull {
        /// The trace.
        path: PathBuf,
        /// Bytes of it on disk.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// Anything else the kernel refused.
    #[error(
        "{}: writing the trace failed after {bytes} bytes: {source}. Record to another place: \
         gctrace -o OTHER.json -- COMMAND",
        path.display()
    )]
    Io {
        /// The trace.
        path: PathBuf,
        /// Bytes of it on disk.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// A record after an earlier error; it was not taken.
    #[error("{}: nothing is recorded any more since an earlier error", path.display())]
    Stopped {
        /// The trace.
        path: PathBuf,
    },
}

/// Whether a trace of this name is compressed (`.gz`).
#[must_use]
pub fn compressed_by_name(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// A trace being written to an opened file.
///
/// Call [`TraceFile::flush`] a few times a second: what was flushed survives the end of this
/// process. Dropped without [`TraceFile::finish`], it flushes what it holds.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    sink: Sink,
    /// Lines not yet handed to the sink or the encoder.
    lines: Vec<u8>,
    encoder: Option<GzEncoder<Vec<u8>>>,
    stopped: bool,
}

impl TraceFile {
    /// Begins a trace in `file`, which must be writable and not opened for appending; a regular
    /// file is emptied. `path` is for messages. The header reaches the disk at once.
    ///
    /// # Errors
    /// [`WriteError::DiskFull`] where not even the first ~100 KiB can be had, otherwise
    /// [`WriteError::Io`].
    pub fn create(
        file: File,
        path: &Path,
        compressed: bool,
        header: &Header,
    ) -> Result<Self, WriteError> {
        let footer: &[u8] = if compressed { b"" } else { line::FOOTER };
        let sink = Sink::new(file, footer).map_err(|source| error(path, 0, source))?;
        let mut trace = Self {
            path: path.to_owned(),
            sink,
            lines: Vec::with_capacity(BUFFER_BYTES),
            encoder: compressed.then(|| GzEncoder::new(Vec::new(), Compression::default())),
            stopped: false,
        };
        line::push_header(&mut trace.lines, header).map_err(|source| error(path, 0, source))?;
        trace.flush()?;
        Ok(trace)
    }

    /// Takes one record. It is on disk after the next [`TraceFile::flush`].
    ///
    /// # Errors
    /// As [`TraceFile::flush`], which is called when the buffer is full: the record was taken
    /// nevertheless. [`WriteError::Stopped`]: it was not taken, because of an earlier error.
    pub fn write(&mut self, record: &Record) -> Result<(), WriteError> {
        if self.stopped {
            return Err(WriteError::Stopped {
                path: self.path.clone(),
            });
        }
        let taken = self.lines.len();
        if let Err(source) = line::push_record(&mut self.lines, record) {
            self.lines.truncate(taken);
            return Err(error(&self.path, self.sink.bytes(), source));
        }
        if self.lines.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Hands everything taken so far to the kernel.
    ///
    /// # Errors
    /// [`WriteError::DiskFull`] or [`WriteError::Io`]. The records taken are on disk or, where
    /// that was not possible, tried again by [`TraceFile::finish`]; no more are taken.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if self.stopped {
            return Ok(());
        }
        let result = self.hand_over().and_then(|()| self.sink.reserve());
        self.checked(result)
    }

    /// Bytes of the trace on disk.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sink.bytes()
    }

    /// Writes the last line and closes the trace; also after an error, with the space that was
    /// reserved for it. Returns the size of the file in bytes.
    ///
    /// # Errors
    /// As [`TraceFile::flush`]; the trace then lacks its last line, or is cut.
    pub fn finish(mut self, end: &End) -> Result<u64, WriteError> {
        let result = self.close(end);
        self.stopped = true;
        self.checked(result)?;
        Ok(self.sink.bytes())
    }

    fn close(&mut self, end: &End) -> io::Result<()> {
        line::push_record(&mut self.lines, &Record::End(end.clone()))?;
        if self.encoder.is_some() || !self.sink.overwrites() {
            self.lines.extend_from_slice(line::FOOTER);
        }
        if let Some(encoder) = &mut self.encoder {
            encoder.write_all(&self.lines)?;
            encoder.try_finish()?;
            self.lines.clear();
        }
        self.write_pending()?;
        self.sink.release()
    }

    /// Lines through the encoder, if there is one, to the sink.
    fn hand_over(&mut self) -> io::Result<()> {
        if let Some(encoder) = &mut self.encoder
            && !self.lines.is_empty()
        {
            encoder.write_all(&self.lines)?;
            self.lines.clear();
            encoder.flush()?;
        }
        self.write_pending()
    }

    fn write_pending(&mut self) -> io::Result<()> {
        match &mut self.encoder {
            Some(encoder) => self.sink.write(encoder.get_mut()),
            None => self.sink.write(&mut self.lines),
        }
    }

    fn checked(&mut self, result: io::Result<()>) -> Result<(), WriteError> {
        result.map_err(|source| {
            self.stopped = true;
            error(&self.path, self.sink.bytes(), source)
        })
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        if !self.stopped {
            // Nobody is left to hear of an error; what is on disk is readable as it is.
            let _ = self.hand_over();
        }
    }
}

fn error(path: &Path, bytes: u64, source: io::Error) -> WriteError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            WriteError::DiskFull {
                path,
                bytes,
                source,
            }
        }
        _ => WriteError::Io {
            path,
            bytes,
            source,
        },
    }
}
