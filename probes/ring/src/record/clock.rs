//! Records on another clock than that of the process that wrote them.

use super::{RingRecord, TimeInterval};

/// A timestamp on a clock that is `ahead_ns` behind its own; 0 stands for an unknown one.
pub(crate) fn moved(at_ns: u64, ahead_ns: i64) -> u64 {
    match at_ns {
        0 => 0,
        at_ns => at_ns.saturating_add_signed(ahead_ns.saturating_neg()),
    }
}

impl TimeInterval {
    fn shift(&mut self, ahead_ns: i64) {
        self.start_ns = moved(self.start_ns, ahead_ns);
        self.end_ns = moved(self.end_ns, ahead_ns);
    }
}

impl RingRecord {
    /// The record on a clock that is `ahead_ns` behind that of its process.
    #[must_use]
    pub fn on_clock(mut self, ahead_ns: i64) -> Self {
        if ahead_ns == 0 {
            return self;
        }
        match &mut self {
            Self::Interpreter { at_ns, .. }
            | Self::Settings { at_ns, .. }
            | Self::PauseStart { at_ns, .. }
            | Self::Hook { at_ns, .. }
            | Self::Fork { at_ns, .. }
            | Self::Cupti { at_ns, .. }
            | Self::Dropped { at_ns, .. }
            | Self::Flushed { at_ns } => *at_ns = moved(*at_ns, ahead_ns),
            Self::StepMark { at_ns, end_ns, .. } => {
                *at_ns = moved(*at_ns, ahead_ns);
                *end_ns = moved(*end_ns, ahead_ns);
            }
            Self::Called(called) => called.at_ns = moved(called.at_ns, ahead_ns),
            Self::Garbage(garbage) => garbage.at_ns = moved(garbage.at_ns, ahead_ns),
            Self::AliveLine(line) => line.at_ns = moved(line.at_ns, ahead_ns),
            Self::CacheMemory(memory) => memory.at_ns = moved(memory.at_ns, ahead_ns),
            Self::Layers(step) => step.at_ns = moved(step.at_ns, ahead_ns),
            Self::Pause(pause) => pause.interval.shift(ahead_ns),
            Self::EmptyCache(call) => call.interval.shift(ahead_ns),
            Self::PauseMemory(memory) => memory.interval.shift(ahead_ns),
            Self::Gpu(work) => work.interval.shift(ahead_ns),
            Self::Sync(wait) => wait.interval.shift(ahead_ns),
            Self::Api(call) => call.interval.shift(ahead_ns),
            Self::Overhead { interval, .. } => interval.shift(ahead_ns),
            Self::Text(_)
            | Self::Frame { .. }
            | Self::Layer(_)
            | Self::LayerFlow(_)
            | Self::LayersDevice(_)
            | Self::ObjectKind { .. }
            | Self::GarbageKinds { .. }
            | Self::CycleEdge { .. }
            | Self::GarbageCycles(_)
            | Self::GarbageBirth { .. }
            | Self::Event { .. } => {}
        }
        self
    }
}
