//! Compresses the text of a trace piece by piece, so that flushed text can be read alone.

use crate::TraceCompression;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::{fmt, io};

/// Of 1 to 22: the highest that costs about as much CPU time as gzip (docs/evidence.md, "Reports,
/// summaries, tables"). The default, 3, costs a quarter of it and makes files as large as gzip's.
const ZSTD_LEVEL: i32 = 6;

/// A compressor, and its compressed bytes that were not taken yet.
pub(super) enum TraceEncoder {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::Encoder<'static, Vec<u8>>),
}

impl TraceEncoder {
    /// None where nothing is compressed.
    pub(super) fn new(compression: TraceCompression) -> io::Result<Option<Self>> {
        Ok(match compression {
            TraceCompression::None => None,
            TraceCompression::Gzip => {
                Some(Self::Gzip(GzEncoder::new(Vec::new(), Compression::default())))
            }
            TraceCompression::Zstd => {
                let mut encoder = zstd::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.include_checksum(true)?;
                Some(Self::Zstd(encoder))
            }
        })
    }

    /// Ends the stream.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.try_finish(),
            Self::Zstd(encoder) => encoder.do_finish(),
        }
    }

    /// Compressed bytes that were not taken yet: after a flush, all bytes of the text so far.
    pub(super) fn made(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
        }
    }
}

impl Write for TraceEncoder {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(encoder) => encoder.write(text),
            Self::Zstd(encoder) => encoder.write(text),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}

impl fmt::Debug for TraceEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip(_) => "Gzip",
            Self::Zstd(_) => "Zstd",
        })
    }
}
