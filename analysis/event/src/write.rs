//! Records into any `Write`, one event per line.
//!
//! Owns the order of lines and separators. Does not own files, compression or full disks
//! (`file.rs`).

use crate::Record;
use crate::TraceEnd;
use crate::TraceHeader;
use crate::line;
use crate::line::RecordEncoder;
use std::io;
use std::io::Write;

/// Writes a trace to `W` while it is recorded. After every call, what was written so far is
/// readable by [`crate::read`]; after [`TraceWriter::finish`] it is valid JSON.
///
/// For a trace on disk use [`crate::TraceFile`], which also compresses, reserves space and closes
/// the JSON if the disk is full.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    out: W,
    line: Vec<u8>,
    lines: RecordEncoder,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the header line.
    ///
    /// # Errors
    /// Those of `W`.
    pub fn new(out: W, header: &TraceHeader) -> io::Result<Self> {
        let mut writer = Self {
            out,
            line: Vec::new(),
            lines: RecordEncoder::default(),
        };
        line::push_header(&mut writer.line, header)?;
        writer.write_line()?;
        Ok(writer)
    }

    /// Writes one record.
    ///
    /// # Errors
    /// Those of `W`.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        self.lines.push(&mut self.line, record)?;
        self.write_line()
    }

    /// Writes the last line and the section of frames, closes the JSON, flushes and hands back `W`.
    ///
    /// # Errors
    /// Those of `W`.
    pub fn finish(mut self, end: &TraceEnd) -> io::Result<W> {
        self.write(&Record::End(end.clone()))?;
        match self.lines.into_frames() {
            frames if frames.is_empty() => self.out.write_all(line::FOOTER)?,
            frames => frames.write_section(&mut self.out)?,
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_line(&mut self) -> io::Result<()> {
        let written = self.out.write_all(&self.line);
        self.line.clear();
        written
    }
}
