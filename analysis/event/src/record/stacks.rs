//! Which stack frames a record refers to.

use super::{FrameId, Record};

impl Record {
    /// The frames that it names: the innermost one of each stack, the caller of a frame.
    pub fn stacks(&self) -> impl Iterator<Item = FrameId> + '_ {
        let (many, alive) = match self {
            Self::Allocations(allocations) => (Some(&allocations.stacks), None),
            Self::AliveLines(of) => (None, Some(&of.lines)),
            _ => (None, None),
        };
        let many = many.into_iter().flatten().map(|(frame, _)| *frame);
        self.head()
            .stack
            .into_iter()
            .chain(many)
            .chain(alive.into_iter().flatten().map(|(frame, ..)| *frame))
    }
}
