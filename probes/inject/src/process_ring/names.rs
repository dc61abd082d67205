//! The numbers of texts, frames, kinds of objects and cycles in a ring: each is written to it once,
//! before it is first used.

use super::{ProcessRing, PythonRing};
use crate::names::{CycleKey, ObjectKindKey, RingNames};
use gctrace_ring::{Message, NO_TEXT, PythonMessage, TextId, sent_text};
use std::sync::TryLockError;

impl<M: Message> ProcessRing<M> {
    /// The number of a text. The text is written before its number is first used. [`NO_TEXT`] if there is no room in
    /// the ring (counted as lost) or among the names.
    pub(crate) fn text(&self, text: &str) -> TextId {
        let Some(mut names) = self.names() else { return NO_TEXT };
        if let Some(known) = names.text(text) {
            return known;
        }
        let Some(id) = names.next_text() else { return NO_TEXT };
        if !self.push(&M::text(id, sent_text(text).into())) {
            return NO_TEXT;
        }
        names.keep_text(text, id);
        id
    }

    /// Waits for another thread that writes a name: a few hundred nanoseconds.
    fn names(&self) -> Option<std::sync::MutexGuard<'_, RingNames>> {
        match self.names.try_lock() {
            Ok(names) => Some(names),
            Err(TryLockError::Poisoned(_)) => None,
            Err(TryLockError::WouldBlock) => self.names.lock().ok(),
        }
    }
}

impl PythonRing {
    /// As [`ProcessRing::text`], for the name of a kind of object: once there are too many kinds, only
    /// names that are known have a number.
    pub(crate) fn text_of_kind(&self, text: &str) -> TextId {
        // `text` locks the names itself.
        let has_room = self.names().is_some_and(|names| names.has_room_for_kind());
        if has_room {
            return self.text(text);
        }
        let known = self.names().and_then(|names| names.text(text));
        known.unwrap_or(NO_TEXT)
    }

    /// The number of a frame below a caller's (0: none); 0 if there is no room.
    pub(crate) fn frame(&self, parent: u32, function: TextId, file: TextId, line: u32) -> u32 {
        let Some(mut names) = self.names() else { return 0 };
        let node = (parent, function, file, line);
        if let Some(known) = names.frame(node) {
            return known;
        }
        let Some(id) = names.next_frame() else { return 0 };
        let record = PythonMessage::Frame { id, parent, function, file, line };
        if !self.push(&record) {
            return 0;
        }
        names.keep_frame(node, id);
        id
    }

    /// The number of a kind of object; 0 if there is no room. There is more room if `is_fixed`, for
    /// a type that lives for ever.
    pub(crate) fn kind(&self, key: ObjectKindKey, is_fixed: bool) -> u32 {
        let Some(mut names) = self.names() else { return 0 };
        if let Some(known) = names.kind(key) {
            return known;
        }
        let Some(id) = names.next_kind(is_fixed) else { return 0 };
        let (type_name, function, file, line) = key;
        let record = PythonMessage::ObjectKind { id, type_name, function, file, line };
        if !self.push(&record) {
            return 0;
        }
        names.keep_kind(key, id);
        id
    }

    /// The number of a cycle; 0 if there is no room.
    pub(crate) fn cycle(&self, key: &CycleKey) -> u32 {
        let Some(mut names) = self.names() else { return 0 };
        if let Some(known) = names.cycle(key) {
            return known;
        }
        let Some(id) = names.next_cycle() else { return 0 };
        if !self.push(&PythonMessage::Cycle { id, edges: key.to_vec() }) {
            return 0;
        }
        names.keep_cycle(key, id);
        id
    }
}
