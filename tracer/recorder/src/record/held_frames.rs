//! Holds stack frames back until a record refers to them. Short pauses and waits are not written: without this, a trace
//! of an import would mostly consist of their frames.

use gctrace_event::{Frame, FrameId, Record};
use std::collections::HashMap;

/// Most frames held, of some 200 bytes each; others are written at once.
const MAX_HELD: usize = 200_000;

/// Frames that no record referred to yet.
#[derive(Default)]
pub(super) struct HeldFrames(HashMap<FrameId, Frame>);

impl HeldFrames {
    /// Whether this frame is to be written later, if at all.
    pub(super) fn hold(&mut self, frame: &Frame) -> bool {
        let holds = self.0.len() < MAX_HELD;
        if holds {
            self.0.insert(frame.id, frame.clone());
        }
        holds
    }

    /// The frames that are to be written before `record`, callers first.
    pub(super) fn needed_by(&mut self, record: &Record) -> Vec<Frame> {
        let mut needed = Vec::new();
        for innermost in record.stacks() {
            let before = needed.len();
            let mut next = Some(innermost);
            while let Some(frame) = next.and_then(|id| self.0.remove(&id)) {
                next = frame.parent;
                needed.push(frame);
            }
            if let Some(stack) = needed.get_mut(before..) {
                stack.reverse();
            }
        }
        needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_event::Pause;

    fn frame(id: FrameId, parent: Option<FrameId>) -> Frame {
        Frame { id, parent, ..Frame::default() }
    }

    fn pause(stack: Option<FrameId>) -> Record {
        Record::Pause(Pause { stack, ..Pause::default() })
    }

    #[test]
    fn frames_are_needed_once_and_callers_first() {
        let mut held = HeldFrames::default();
        for (id, parent) in [(1, None), (2, Some(1)), (3, Some(2)), (4, Some(1)), (5, Some(3))] {
            assert!(held.hold(&frame(id, parent)));
        }
        let mut ids = |record: Record| -> Vec<FrameId> {
            held.needed_by(&record).iter().map(|frame| frame.id).collect()
        };
        assert!(ids(pause(None)).is_empty());
        assert_eq!(ids(pause(Some(3))), [1, 2, 3]);
        assert_eq!(ids(pause(Some(4))), [4]);
        assert!(ids(pause(Some(3))).is_empty(), "written before");
        assert!(ids(pause(Some(9))).is_empty(), "never seen");
        // A frame that is not held needs its caller.
        assert_eq!(ids(Record::Frame(frame(6, Some(5)))), [5]);
    }

    #[test]
    fn beyond_a_number_frames_are_written_at_once() {
        let mut held = HeldFrames::default();
        assert!((1..=MAX_HELD as FrameId).all(|id| held.hold(&frame(id, None))));
        assert!(!held.hold(&frame(FrameId::MAX, None)));
        held.needed_by(&pause(Some(1)));
        assert!(held.hold(&frame(FrameId::MAX, None)));
    }
}
