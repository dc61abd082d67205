//! Texts, in pieces that fit a record.

use crate::RingRecord;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The [`TextId`](crate::TextId) that stands for no text; texts' ids start at 1.
pub const NO_TEXT: u32 = 0;

/// Function of the frame that stands for those beyond the requested depth of stacks; it has no file
/// and no line.
pub const OUTER_FRAMES: &str = "[outer frames not recorded]";

/// Number of text bytes per record.
pub const TEXT_BYTES: usize = 40;

/// Maximum length of a text in bytes: names of templated kernels can be kilobytes long.
const LONGEST: usize = 2000;

/// Part of a text in UTF-8. Pieces of a text are in order in the ring, with other records in
/// between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct TextPiece {
    /// Number of the text, from 1; used once in a ring.
    pub id: u32,
    /// Offset of the piece in the text, in bytes.
    pub offset: u16,
    /// Length of the whole text in bytes.
    pub total: u16,
    /// The bytes; those beyond `total` are meaningless.
    pub bytes: [u8; TEXT_BYTES],
}

/// The records of a text. One that is too long is cut at a character boundary.
pub fn pieces(id: u32, text: &str) -> impl Iterator<Item = RingRecord> {
    let end = (0..=text.len().min(LONGEST)).rfind(|end| text.is_char_boundary(*end));
    let text = text.get(..end.unwrap_or(0)).unwrap_or_default();
    let total = text.len() as u16;
    // An empty text is a piece as well.
    let count = text.len().div_ceil(TEXT_BYTES).max(1);
    (0..count).map(move |piece| {
        let offset = piece * TEXT_BYTES;
        let rest = text.as_bytes().get(offset..).unwrap_or_default();
        let mut bytes = [0; TEXT_BYTES];
        for (to, from) in bytes.iter_mut().zip(rest) {
            *to = *from;
        }
        RingRecord::Text(TextPiece { id, offset: offset as u16, total, bytes })
    })
}

impl TextPiece {
    /// The bytes that belong to the text.
    #[must_use]
    pub fn used(&self) -> &[u8] {
        let length = usize::from(self.total.saturating_sub(self.offset)).min(TEXT_BYTES);
        self.bytes.get(..length).unwrap_or_default()
    }

    /// Whether [`pieces`] would have made it.
    pub(super) fn is_valid(&self) -> bool {
        usize::from(self.offset) % TEXT_BYTES == 0
            && usize::from(self.total) <= LONGEST
            && (self.offset < self.total || self.total == 0)
    }
}
