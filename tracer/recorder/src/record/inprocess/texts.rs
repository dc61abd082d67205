//! Texts of one ring. Pure.

use gctrace_ring::{NO_TEXT, TextId};
use std::collections::HashMap;

/// Stands for a text that was lost.
pub(super) const NAME_LOST: &str = "[name lost]";

/// Maximum size of the texts of a ring, in bytes: the kernel names of the largest frameworks take
/// some megabytes.
const MAX_BYTES: usize = 32 << 20;

/// Size of a text beside its bytes: an empty one is not free.
const ENTRY_BYTES: usize = 2 * size_of::<(TextId, Box<str>)>();

/// The texts of a ring, by their numbers.
#[derive(Debug, Default)]
pub(super) struct RingTexts {
    texts: HashMap<TextId, Box<str>>,
    bytes: usize,
}

impl RingTexts {
    /// Adds a text.
    pub(super) fn take(&mut self, id: TextId, text: Box<str>) {
        // A process may send texts without end.
        let bytes = self.bytes + text.len() + ENTRY_BYTES;
        if bytes <= MAX_BYTES {
            self.bytes = bytes;
            self.texts.insert(id, text);
        }
    }

    /// A text; `None` for none, [`NAME_LOST`] for a text that did not come.
    pub(super) fn get(&self, id: TextId) -> Option<&str> {
        if id != NO_TEXT { Some(self.texts.get(&id).map_or(NAME_LOST, |text| text)) } else { None }
    }

    /// The same, owned.
    pub(super) fn owned(&self, id: TextId) -> Option<String> {
        self.get(id).map(str::to_owned)
    }

    /// A text, or the empty string.
    pub(super) fn or_empty(&self, id: TextId) -> &str {
        self.get(id).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_beyond_their_memory_are_lost() {
        let mut texts = RingTexts::default();
        for id in 1..17_000 {
            texts.take(id, "x".repeat(2_000).into());
        }
        assert!(texts.bytes <= MAX_BYTES && texts.bytes > MAX_BYTES - 2_100, "{}", texts.bytes);
        assert_eq!(texts.get(1).map(str::len), Some(2_000));
        assert_eq!(texts.get(16_999), Some(NAME_LOST));
        assert_eq!(texts.get(NO_TEXT), None);
    }

    #[test]
    fn empty_texts_are_not_kept_without_end() {
        let mut texts = RingTexts::default();
        (1..2_000_000).for_each(|id| texts.take(id, "".into()));
        assert!(texts.texts.len() < 1_000_000, "{}", texts.texts.len());
    }
}
