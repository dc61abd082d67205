//! Which collections the program asked for, where no record has their reason.

use gctrace_event::GcReason;

/// Collections of one interpreter, in order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExplicitCalls {
    threshold: i64,
    /// Collections of the middle generation since the last full one.
    middle: i64,
    previous: u8,
}

impl ExplicitCalls {
    pub(crate) fn under(thresholds: [i32; 3]) -> Self {
        let mut calls = Self::default();
        calls.set(thresholds);
        calls
    }

    /// The thresholds from now on.
    pub(crate) fn set(&mut self, [_, _, old]: [i32; 3]) {
        self.threshold = i64::from(old.max(0));
    }

    /// Whether the program asked for the next collection.
    pub(crate) fn is_explicit(&mut self, generation: u8, reason: GcReason) -> bool {
        let is_explicit = match reason {
            GcReason::Automatic => false,
            // CPython runs an automatic full collection at the first chance after one of the
            // middle generation by which threshold 2 is exceeded, and by which what is pending
            // grew (`gc.c`, `gc_select_generation`).
            GcReason::Unknown => {
                generation == 2 && !(self.middle > self.threshold && self.previous == 1)
            }
            GcReason::Manual | GcReason::Shutdown => true,
        };
        self.previous = generation;
        match generation {
            2 => self.middle = 0,
            1 => self.middle += 1,
            _ => {}
        }
        is_explicit
    }
}
