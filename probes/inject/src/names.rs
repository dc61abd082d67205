//! Numbers of the texts, frames and kinds of objects of a ring. Bounded: a program that keeps creating new names, or
//! recurses endlessly, costs memory only up to this bound.

use crate::memory::Map;
use gctrace_ring::{RingCycleEdge, TextId};

/// Maximum number of texts per ring; some hundred bytes each.
const MAX_TEXTS: u32 = 1 << 16;
/// Maximum number of frames per ring; some 40 bytes each.
const MAX_FRAMES: u32 = 1 << 17;

/// Maximum number of kinds of objects per ring; some 50 bytes each. A program that keeps making
/// classes keeps making kinds: their texts, three at most, must leave room for others'.
const MAX_KINDS: u32 = 1 << 13;
/// As many more for types that live for ever.
const MAX_FIXED_KINDS: u32 = 1 << 10;

/// Key of a kind of object: type, function, file, line.
pub(crate) type ObjectKindKey = (TextId, TextId, TextId, u32);

/// Maximum number of signatures of cycles per ring; some hundred bytes each.
const MAX_CYCLES: u32 = 1 << 11;

/// Key of a signature: its edges.
pub(crate) type CycleKey = [RingCycleEdge];

/// Key of a frame: caller's frame, function, file, line.
pub(crate) type FrameKey = (u32, TextId, TextId, u32);

/// Numbers in a ring, by text, frame, kind and so on.
#[derive(Default)]
pub(crate) struct RingNames {
    texts: Map<Box<str>, TextId>,
    frames: Map<FrameKey, u32>,
    kinds: Map<ObjectKindKey, u32>,
    cycles: Map<Box<CycleKey>, u32>,
    last_text: TextId,
    last_frame: u32,
    last_kind: u32,
    last_cycle: u32,
}

impl RingNames {
    pub(crate) fn text(&self, text: &str) -> Option<TextId> {
        self.texts.get(text).copied()
    }

    /// A fresh number; `None` once there are too many.
    pub(crate) fn next_text(&mut self) -> Option<TextId> {
        next(&mut self.last_text, MAX_TEXTS)
    }

    pub(crate) fn keep_text(&mut self, text: &str, id: TextId) {
        self.texts.insert(text.into(), id);
    }

    pub(crate) fn frame(&self, node: FrameKey) -> Option<u32> {
        self.frames.get(&node).copied()
    }

    /// As [`RingNames::next_text`].
    pub(crate) fn next_frame(&mut self) -> Option<u32> {
        next(&mut self.last_frame, MAX_FRAMES)
    }

    pub(crate) fn kind(&self, key: ObjectKindKey) -> Option<u32> {
        self.kinds.get(&key).copied()
    }

    /// Whether there is a fresh number for a kind.
    pub(crate) fn has_room_for_kind(&self) -> bool {
        self.last_kind < MAX_KINDS
    }

    /// As [`RingNames::next_text`]. `is_fixed`: for a type that lives for ever.
    pub(crate) fn next_kind(&mut self, is_fixed: bool) -> Option<u32> {
        let more = if is_fixed { MAX_FIXED_KINDS } else { 0 };
        next(&mut self.last_kind, MAX_KINDS + more)
    }

    pub(crate) fn keep_kind(&mut self, key: ObjectKindKey, id: u32) {
        self.kinds.insert(key, id);
    }

    pub(crate) fn cycle(&self, key: &CycleKey) -> Option<u32> {
        self.cycles.get(key).copied()
    }

    /// As [`RingNames::next_text`].
    pub(crate) fn next_cycle(&mut self) -> Option<u32> {
        next(&mut self.last_cycle, MAX_CYCLES)
    }

    pub(crate) fn keep_cycle(&mut self, key: &CycleKey, id: u32) {
        self.cycles.insert(key.into(), id);
    }

    pub(crate) fn keep_frame(&mut self, node: FrameKey, id: u32) {
        self.frames.insert(node, id);
    }
}

fn next(last: &mut u32, most: u32) -> Option<u32> {
    if *last >= most {
        return None;
    }
    *last += 1;
    Some(*last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_once_and_end() {
        let mut names = RingNames::default();
        assert_eq!(names.next_text(), Some(1));
        // A text that could not be written is not kept, and its number is not reused.
        let second = names.next_text().unwrap();
        names.keep_text("a", second);
        assert_eq!((names.text("a"), names.text("b")), (Some(2), None));
        let frames = std::iter::from_fn(|| names.next_frame()).count();
        assert_eq!(frames, MAX_FRAMES as usize);
    }
}
