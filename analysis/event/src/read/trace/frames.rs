//! Frames of stacks in the section `stackFrames` of other tools.
//!
//! Owns how frames are named. Chrome's format lets any text name a frame; in our traces it is a
//! number.

use super::{DecodedItem, JsonValue, Problem};
use crate::read::StackFrameEntry;
use crate::{Frame, FrameId, Record};
use std::collections::HashMap;

/// Maximum number of frames with a key that is not a number; others are ignored.
const MAX_NAMES: usize = 1 << 20;
/// Longest such name, in bytes. A name is usually a hash or an address.
const MAX_NAME_BYTES: usize = 256;

/// Numbers for the frames that are not named by one.
#[derive(Debug, Default)]
pub(crate) struct FrameNumbers(HashMap<Box<[u8]>, FrameId>);

impl FrameNumbers {
    /// The frame of this name.
    pub(super) fn id(
        &mut self,
        name: JsonValue<'_>,
        report: &mut impl FnMut(Problem),
    ) -> Option<FrameId> {
        if let Some(Ok(id)) = name.unsigned().map(FrameId::try_from) {
            return Some(id);
        }
        let is_number = name.unsigned().is_some();
        match name.raw_text() {
            Some(text) => self.text_id(text, report),
            None if is_number => self.text_id(name.json(), report),
            None => {
                report("a stack frame id is neither a number nor a string");
                None
            }
        }
    }

    /// As [`FrameNumbers::id`], of a key.
    fn key_id(&mut self, key: &[u8], report: &mut impl FnMut(Problem)) -> Option<FrameId> {
        match JsonValue(key).unsigned().map(FrameId::try_from) {
            Some(Ok(id)) => Some(id),
            _ => self.text_id(key, report),
        }
    }

    /// Counted from the largest number down, so that numbers and texts can be mixed.
    fn text_id(&mut self, text: &[u8], report: &mut impl FnMut(Problem)) -> Option<FrameId> {
        if let Some(id) = self.0.get(text) {
            return Some(*id);
        }
        if self.0.len() >= MAX_NAMES || text.len() > MAX_NAME_BYTES {
            report("the name of a stack frame is too long, or there are too many");
            return None;
        }
        let id = FrameId::MAX - FrameId::try_from(self.0.len()).ok()?;
        self.0.insert(text.into(), id);
        Some(id)
    }
}

/// A frame of the section `stackFrames`.
pub(crate) fn stack_frame<'a>(
    frame: &StackFrameEntry<'_>,
    names: &mut FrameNumbers,
    mut report: impl FnMut(Problem),
) -> DecodedItem<'a> {
    let Some(name) = frame.value.member("name").text() else {
        report("a stack frame has no \"name\"");
        return DecodedItem::Unusable;
    };
    let Some(id) = names.key_id(frame.key, &mut report) else {
        return DecodedItem::Unusable;
    };
    let parent = frame.value.member("parent");
    let (function, file, line) = parts(&name);
    DecodedItem::Record(Record::Frame(Frame {
        id,
        parent: if parent.is_missing() || parent.json() == b"null" {
            None
        } else {
            names.id(parent, &mut report)
        },
        function: function.to_owned(),
        file: file.to_owned(),
        line,
    }))
}

/// Function, file and line of a name as we write it, `function (file:line)`; any other is all
/// function.
fn parts(name: &str) -> (&str, &str, Option<u32>) {
    let place = || {
        let (function, place) = name.strip_suffix(')')?.rsplit_once(" (")?;
        Some((function, place.rsplit_once(':')?))
    };
    match place() {
        Some((function, (file, line))) if !file.is_empty() => match line.parse() {
            Ok(line) => (function, file, Some(line)),
            Err(_) => (name, "", None),
        },
        _ => (name, "", None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_tools() {
        assert_eq!(parts("step (a b.py:12)"), ("step", "a b.py", Some(12)));
        for name in ["step", "step (a.py)", "f(int) (x:y)", "(:1)", "", ")"] {
            assert_eq!(parts(name), (name, "", None));
        }
    }

    #[test]
    fn long_names_and_too_many_are_left_out() {
        let (mut names, mut problems) = (FrameNumbers::default(), 0);
        let mut report = |_: Problem| problems += 1;
        assert_eq!(names.text_id(&[b'x'; MAX_NAME_BYTES + 1], &mut report), None);
        for number in 0..MAX_NAMES {
            assert!(names.text_id(&number.to_ne_bytes(), &mut report).is_some());
        }
        assert_eq!(names.text_id(b"one more", &mut report), None);
        assert!(names.text_id(&0_usize.to_ne_bytes(), &mut report).is_some());
        assert_eq!(problems, 2);
    }

    #[test]
    fn numbers_name_themselves_and_texts_get_one() {
        let mut names = FrameNumbers::default();
        let mut reports = 0;
        let mut id = |text: &str| names.id(JsonValue(text.as_bytes()), &mut |_| reports += 1);
        assert_eq!(id("5"), Some(5));
        assert_eq!(id("\"5\""), Some(5));
        assert_eq!(id("\"0x7f\""), Some(FrameId::MAX));
        assert_eq!(id("94000000000000"), Some(FrameId::MAX - 1));
        assert_eq!(id("\"94000000000000\""), Some(FrameId::MAX - 1));
        assert_eq!(id("\"0x7f\""), Some(FrameId::MAX));
        assert_eq!(id("[1]"), None);
        assert_eq!(id("-1"), None);
        assert_eq!(id(&format!("\"{}\"", "x".repeat(300))), None);
        assert_eq!(reports, 3);
    }
}
