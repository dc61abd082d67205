//! How a trace is compressed: seen in its first bytes, or wanted by its name.

use std::path::Path;

/// The first two bytes of a gzip file (RFC 1952, 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// The first four bytes of a zstd frame (RFC 8878, 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The last three of a frame that readers skip, as parallel writers put first; its first byte is 0x50 to 0x5f
/// (RFC 8878, 3.1.2).
const SKIPPED_MAGIC: [u8; 3] = [0x2a, 0x4d, 0x18];

/// How the text of a trace is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceCompression {
    /// Not at all.
    None,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
}

impl TraceCompression {
    /// Number of bytes that [`TraceCompression::by_content`] looks at.
    pub const MAGIC_BYTES: usize = ZSTD_MAGIC.len();

    /// How a trace of this name is to be written: `.gz`, `.zst`.
    #[must_use]
    pub fn by_name(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Self::Gzip,
            Some("zst") => Self::Zstd,
            _ => Self::None,
        }
    }

    /// How a file is compressed that starts with these bytes.
    #[must_use]
    pub fn by_content(first: &[u8]) -> Self {
        match first {
            _ if first.starts_with(&GZIP_MAGIC) => Self::Gzip,
            _ if first.starts_with(&ZSTD_MAGIC) => Self::Zstd,
            [0x50..=0x5f, rest @ ..] if rest.starts_with(&SKIPPED_MAGIC) => Self::Zstd,
            _ => Self::None,
        }
    }

    /// Name of the format and of its program, for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}
