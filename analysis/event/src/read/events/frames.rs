//! The section `stackFrames`.
//!
//! Owns the parsing of its entries; their meaning is in `trace/frames.rs`.

use super::scan::ObjectMember;
use super::{EventReader, ReaderState, scan};
use crate::read::error::{ReadError, TracePlace};
use crate::read::value::JsonValue;

/// A member of the section `stackFrames`.
#[derive(Debug, Clone, Copy)]
pub struct StackFrameEntry<'a> {
    /// Its key: events name it as `sf` and other frames as `parent`; escapes as they are.
    pub key: &'a [u8],
    /// The object that describes the frame: function, file and key of the parent. Unchecked.
    pub value: JsonValue<'a>,
    /// Place of the key in the trace.
    pub place: TracePlace<'a>,
}

impl EventReader {
    pub(super) fn take_frame(&mut self, member: ObjectMember) -> StackFrameEntry<'_> {
        let (text, place) = self.window.take(member.value.end);
        StackFrameEntry {
            key: gctrace_units::part(text, member.key),
            value: JsonValue(gctrace_units::part(text, member.value)),
            place,
        }
    }

    /// The next member of the object of stack frames, if there is one.
    pub(super) fn frame(&mut self) -> Result<Option<ObjectMember>, ReadError> {
        match self.window.peek()? {
            Some(b'"') => {}
            Some(b',') => {
                self.window.advance(1);
                return Ok(None);
            }
            Some(b'}') => {
                self.window.advance(1);
                self.state = ReaderState::Members;
                return Ok(None);
            }
            Some(_) => return Err(self.syntax(0, "a key in quotes")),
            None => return self.end_early().map(|()| None),
        }
        match self.scanned(scan::member)? {
            Some(member) => Ok(Some(member)),
            None if self.window.ended() => self.end_early().map(|()| None),
            None => self.skip_frame().map(|()| None),
        }
    }

    /// Passes over key and value of a frame.
    fn skip_frame(&mut self) -> Result<(), ReadError> {
        self.skip_noting("a stack frame over 16 MiB")?;
        if self.window.peek()? == Some(b':') {
            self.window.advance(1);
        }
        match self.window.peek()? {
            Some(_) => self.pass_over(),
            None => self.end_early(),
        }
    }
}
