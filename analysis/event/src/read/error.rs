//! Why a file cannot be read, with its name and the position in it.

use bitcode::{Decode, Encode};
use std::{fmt, io};

/// A place in a trace; for a compressed trace, in the text inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct TracePosition {
    /// Number of bytes of the text before the position.
    pub byte: u64,
    /// Line number in the text, counted from 1.
    pub line: u64,
}

impl fmt::Display for TracePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, byte {}", self.line, self.byte)
    }
}

/// A place in the text that a reader keeps. Its line is counted when it is asked for, as nearly never.
#[derive(Clone, Copy)]
pub struct TracePlace<'a> {
    /// Number of bytes of the text before the place.
    pub(crate) byte: u64,
    /// Line ends before `uncounted`.
    pub(crate) lines: u64,
    /// The text before the place with line ends that are not counted yet.
    pub(crate) uncounted: &'a [u8],
}

impl TracePlace<'_> {
    /// The byte and the line.
    #[must_use]
    pub fn position(self) -> TracePosition {
        TracePosition { byte: self.byte, line: self.lines + line_ends(self.uncounted) + 1 }
    }
}

impl fmt::Debug for TracePlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.position(), f)
    }
}

/// Number of line ends in `text`.
pub(crate) fn line_ends(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}

/// How to get a trace that can be read; the end of most messages.
const RECORD: &str = "To record one: sudo gctrace -o trace.json -- python SCRIPT.py";

/// A trace that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("{file}: cannot be opened: {source}")]
    Open {
        /// Name of the file.
        file: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The name of a directory.
    #[error("{file}: is a directory; name the trace files in it: gctrace analyze {file}/*.json")]
    Directory {
        /// Name of the directory.
        file: String,
    },
    /// A disk, a terminal, or something without an end, such as /dev/zero.
    #[error("{file}: is a device; name a file, or - for standard input")]
    Device {
        /// Name of the device.
        file: String,
    },
    /// No byte in it.
    #[error("{file}: is empty (byte 0): nothing was recorded. {RECORD}")]
    Empty {
        /// Name of the file.
        file: String,
    },
    /// The file is not a trace.
    #[error("{file}: {position}: not a trace: {found}. {RECORD}")]
    NotATrace {
        /// Name of the file.
        file: String,
        /// Where that was seen.
        position: TracePosition,
        /// The actual kind of the file.
        found: String,
    },
    /// A trace of a gctrace that does not exist yet.
    #[error(
        "{file}: {position}: unknown trace format {format:?}; this gctrace reads {:?}. Analyze it \
         with the gctrace that recorded it",
        crate::FORMAT
    )]
    Format {
        /// Name of the file.
        file: String,
        /// Position of the header.
        position: TracePosition,
        /// The format it names.
        format: String,
    },
    /// Text that is not JSON in the middle of the file.
    #[error(
        "{file}: {position}: expected {expected}, found {found}. The file is damaged there \
         (events read before that: {events})"
    )]
    Syntax {
        /// Name of the file.
        file: String,
        /// Position of the error.
        position: TracePosition,
        /// The text that JSON requires there.
        expected: &'static str,
        /// An excerpt of the text there.
        found: String,
        /// Number of events read before it.
        events: u64,
    },
    /// Compressed data that does not unpack.
    #[error(
        "{file}: byte {byte} of the compressed file: {source}. The {format} file is incomplete or \
         damaged; test it with: {format} -t {file}"
    )]
    Unpack {
        /// Name of the file.
        file: String,
        /// Compressed bytes read before, rounded up to the size of a read.
        byte: u64,
        /// Name of the compression, and of its program.
        format: &'static str,
        /// The decompressor's error.
        source: io::Error,
    },
    /// A read failed.
    #[error("{file}: byte {byte}: cannot be read: {source}")]
    Io {
        /// Name of the file.
        file: String,
        /// Number of bytes read before.
        byte: u64,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A few bytes for a message: printable text in quotes, everything else in hexadecimal.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    /// Enough to recognize the type of a file.
    const LENGTH: usize = 24;
    let shown = bytes.get(..LENGTH).unwrap_or(bytes);
    match std::str::from_utf8(shown) {
        Ok(text) if !text.chars().any(|char| char.is_control() && char != '\n') => {
            format!("{text:?}")
        }
        _ => shown.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "),
    }
}

/// The file type according to the first bytes.
pub(crate) fn describe(bytes: &[u8]) -> String {
    const PICKLE: &str = "a pickle; a memory snapshot of PyTorch (_dump_snapshot) opens at \
         pytorch.org/memory_viz";
    const PSTATS: &str = "statistics of cProfile; they open with python -m pstats FILE";
    let known: [(&[u8], &str); 11] = [
        (b"\x80\x02", PICKLE),
        (b"\x80\x03", PICKLE),
        (b"\x80\x04", PICKLE),
        (b"\x80\x05", PICKLE),
        (b"{)", PSTATS),
        (b"\xfb)", PSTATS),
        // Protocol buffers with a message as the first field.
        (
            b"\n",
            "a profile in protocol buffers; open profiles of pprof with pprof, profiles of XLA (xplane.pb) with TensorBoard",
        ),
        (b"PK\x03\x04", "a zip archive; unpack it first"),
        (b"\xfd7zXZ", "xz data; unpack it first: xz -d"),
        (b"BZh", "bzip2 data; unpack it first: bzip2 -d"),
        (b"\x7fELF", "an executable"),
    ];
    match known.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        Some((_, what)) => (*what).to_owned(),
        None => excerpt(bytes),
    }
}
