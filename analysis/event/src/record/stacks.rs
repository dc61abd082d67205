//! Which stack frames a record refers to.

use super::{FrameId, Record};

impl Record {
    /// The frames that it names: the innermost one of each stack, the caller of a frame.
    pub fn stacks(&self) -> impl Iterator<Item = FrameId> + '_ {
        let mut alive = None;
        let (one, many) = match self {
            Self::Pause(pause) => (pause.stack, None),
            Self::Frame(frame) => (frame.parent, None),
            Self::Settings(settings) => (settings.stack, None),
            Self::Called(called) => (called.stack, None),
            Self::CpuSamples(samples) => (samples.stack, None),
            Self::OffCpu(off) => (off.stack, None),
            Self::EmptyCache(call) => (call.stack, None),
            Self::Allocations(allocations) => (None, Some(&allocations.stacks)),
            Self::AliveLines(of) => {
                alive = Some(&of.lines);
                (None, None)
            }
            _ => (None, None),
        };
        let many = many.into_iter().flatten().map(|(frame, _)| *frame);
        one.into_iter().chain(many).chain(alive.into_iter().flatten().map(|(frame, ..)| *frame))
    }
}
