//! Texts of one ring, assembled from their pieces. Pure.

use gctrace_ring::{NO_TEXT, TextId, TextPiece};
use std::collections::HashMap;

/// Stands for a text whose pieces were lost.
pub(super) const NAME_LOST: &str = "[name lost]";

/// Maximum size of the texts of a ring, in bytes: the kernel names of the largest frameworks take
/// some megabytes.
const MAX_BYTES: usize = 32 << 20;
/// Incomplete texts kept: one for each thread that is writing.
const MAX_PARTS: usize = 4096;

/// The texts of a ring, joined from the pieces in which they were sent.
#[derive(Debug, Default)]
pub(super) struct RingTexts {
    whole: HashMap<TextId, Box<str>>,
    parts: HashMap<TextId, Vec<u8>>,
    bytes: usize,
}

impl RingTexts {
    /// Adds a piece. A piece that does not continue its text was preceded by a lost one: the text
    /// is lost.
    pub(super) fn take(&mut self, piece: &TextPiece) {
        let mut text = self.parts.remove(&piece.id).unwrap_or_default();
        if text.len() != usize::from(piece.offset) {
            return;
        }
        text.extend_from_slice(piece.used());
        if text.len() < usize::from(piece.total) {
            if self.parts.len() < MAX_PARTS {
                self.parts.insert(piece.id, text);
            }
            return;
        }
        if self.bytes + text.len() <= MAX_BYTES {
            self.bytes += text.len();
            let text = String::from_utf8_lossy(&text).into();
            self.whole.insert(piece.id, text);
        }
    }

    /// A text; `None` for none, [`NAME_LOST`] for one that did not come.
    pub(super) fn get(&self, id: TextId) -> Option<&str> {
        (id != NO_TEXT).then(|| self.whole.get(&id).map_or(NAME_LOST, |text| text))
    }

    /// A text, or the empty string.
    pub(super) fn or_empty(&self, id: TextId) -> &str {
        self.get(id).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_ring::RingRecord;
    use proptest::prelude::*;

    fn pieces(id: u32, text: &str) -> Vec<TextPiece> {
        let records = gctrace_ring::pieces(id, text);
        let piece = |record| match record {
            RingRecord::Text(piece) => Some(piece),
            _ => None,
        };
        records.filter_map(piece).collect()
    }

    proptest! {
        #[test]
        fn texts_of_several_threads_are_kept_apart(first in ".{0,200}", second in ".{0,200}") {
            let (one, two) = (pieces(1, &first), pieces(2, &second));
            let mut texts = RingTexts::default();
            for index in 0..one.len().max(two.len()) {
                one.get(index).iter().for_each(|piece| texts.take(piece));
                two.get(index).iter().for_each(|piece| texts.take(piece));
            }
            prop_assert_eq!(texts.get(1), Some(first.as_str()));
            prop_assert_eq!(texts.get(2), Some(second.as_str()));
        }
    }

    #[test]
    fn a_text_that_lacks_a_piece_is_lost() {
        let long = "x".repeat(100);
        let mut texts = RingTexts::default();
        for (index, piece) in pieces(1, &long).iter().enumerate() {
            if index != 1 {
                texts.take(piece);
            }
        }
        assert_eq!(texts.get(1), Some(NAME_LOST));
        assert_eq!(texts.get(NO_TEXT), None);
        assert_eq!(texts.get(9), Some(NAME_LOST));
    }

    /// A process may send names without end.
    #[test]
    fn texts_beyond_their_memory_are_lost() {
        let long = pieces(0, &"x".repeat(2_000));
        let mut texts = RingTexts::default();
        for id in 1..17_000 {
            long.iter().for_each(|piece| texts.take(&TextPiece { id, ..*piece }));
        }
        assert!(texts.bytes <= MAX_BYTES && texts.bytes > MAX_BYTES - 2_000, "{}", texts.bytes);
        assert_eq!(texts.get(16_999), Some(NAME_LOST));
        for id in 20_000..30_000 {
            texts.take(&TextPiece { id, ..long[0] });
        }
        assert_eq!(texts.parts.len(), MAX_PARTS);
    }
}
