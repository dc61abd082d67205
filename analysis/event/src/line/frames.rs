//! The frames of a trace as Chrome's own section `stackFrames`.
//!
//! Remembers the frames until the trace ends, in a compact form. Does not own whether there is room for the section
//! (`file.rs`).

use crate::{Frame, FrameId};
use indexmap::IndexSet;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::io::Write;
use std::num::NonZero;

/// Maximum memory for names and files, each stored once; together with [`MAX_FRAMES`] some 60 MB. Beyond either the
/// section is left out.
const MAX_NAME_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of frames; one takes about 40 bytes.
const MAX_FRAMES: usize = 1_000_000;

/// Closes the array of events if the section of frames follows.
const BEFORE: &[u8] = b"\n],\n\"stackFrames\":{\n";
/// Behind the last frame: closes the section and the object.
const BEHIND: &[u8] = b"\n}}\n";

/// The frames written so far, by id.
#[derive(Debug, Default)]
pub(crate) struct WrittenFrames {
    frames: BTreeMap<FrameId, WrittenFrame>,
    /// Functions and files; frames name them by index.
    names: IndexSet<Box<str>>,
    name_bytes: usize,
    /// There were too many: the section would not be whole.
    given_up: bool,
}

/// 16 bytes: there can be many.
#[derive(Debug)]
struct WrittenFrame {
    parent: Option<NonZero<FrameId>>,
    function: u32,
    file: u32,
    line: Option<NonZero<u32>>,
}

/// An entry of the section. Viewers look names up as keys of an object, hence `parent` as text.
#[derive(Serialize)]
struct FrameSectionEntry<'a> {
    name: &'a str,
    category: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
}

impl WrittenFrames {
    /// Keeps a frame for the section. A frame with an unknown parent becomes an outermost one, and
    /// the first frame of an id wins: `chrome://tracing` refuses a whole trace if a parent is
    /// missing, and a cycle would never end.
    pub(super) fn add(&mut self, frame: &Frame) {
        if self.given_up || self.frames.contains_key(&frame.id) {
            return;
        }
        if self.frames.len() >= MAX_FRAMES || self.name_bytes >= MAX_NAME_BYTES {
            *self = Self { given_up: true, ..Self::default() };
            return;
        }
        let entry = WrittenFrame {
            parent: frame
                .parent
                .filter(|parent| self.frames.contains_key(parent))
                .and_then(NonZero::new),
            function: self.name(&frame.function),
            file: self.name(&frame.file),
            line: frame.line.and_then(NonZero::new),
        };
        self.frames.insert(frame.id, entry);
    }

    /// The index of a name; there are at most two names a frame, so it fits.
    fn name(&mut self, name: &str) -> u32 {
        let index = self.names.get_index_of(name).unwrap_or_else(|| {
            self.name_bytes += name.len();
            self.names.insert_full(name.into()).0
        });
        gctrace_units::u32_or_most(index)
    }

    fn name_at(&self, index: u32) -> &str {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if let Some(name) = self.names.get_index(index) { name } else { "" }
    }

    /// No section is needed, or it would not be whole.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Writes the section, from the end of the last event to the end of the file.
    pub(crate) fn write_section(&self, out: &mut impl Write) -> io::Result<()> {
        let mut before = BEFORE;
        for (id, entry) in &self.frames {
            out.write_all(before)?;
            before = super::SEPARATOR;
            write!(out, "\"{id}\":")?;
            let section = FrameSectionEntry {
                name: &self.display_name(entry),
                category: "python",
                parent: entry.parent.map(|parent| parent.to_string()),
            };
            serde_json::to_writer(&mut *out, &section)?;
        }
        out.write_all(BEHIND)
    }

    /// `function (file:line)`, as far as they are known.
    fn display_name(&self, entry: &WrittenFrame) -> String {
        let (function, file) = (self.name_at(entry.function), self.name_at(entry.file));
        match (function, file, entry.line) {
            (function, "", _) => function.to_owned(),
            (function, file, None) => format!("{function} ({file})"),
            (function, file, Some(line)) => format!("{function} ({file}:{line})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(id: FrameId, parent: Option<FrameId>) -> Frame {
        Frame {
            id,
            parent,
            function: "step".to_owned(),
            file: "train.py".to_owned(),
            line: Some(id),
        }
    }

    fn section(frames: &WrittenFrames) -> serde_json::Value {
        let mut text = b"{\"traceEvents\":[".to_vec();
        frames.write_section(&mut text).unwrap();
        serde_json::from_slice::<serde_json::Value>(&text).unwrap()["stackFrames"].take()
    }

    #[test]
    fn every_parent_is_there_and_there_are_no_circles() {
        let mut frames = WrittenFrames::default();
        frames.add(&frame(1, Some(1)));
        frames.add(&frame(2, Some(9)));
        frames.add(&frame(3, Some(2)));
        frames.add(&frame(2, Some(3)));
        let expected = serde_json::json!({
            "1": {"name": "step (train.py:1)", "category": "python"},
            "2": {"name": "step (train.py:2)", "category": "python"},
            "3": {"name": "step (train.py:3)", "category": "python", "parent": "2"},
        });
        assert_eq!(section(&frames), expected);
    }

    #[test]
    fn too_many_frames_are_no_section() {
        let mut frames = WrittenFrames::default();
        (1..=MAX_FRAMES as FrameId).for_each(|id| frames.add(&frame(id, None)));
        assert!(!frames.is_empty());
        frames.add(&frame(FrameId::MAX, None));
        assert!(frames.is_empty());
        frames.add(&frame(1, None));
        assert!(frames.is_empty(), "half a section is worse than none");
    }
}
