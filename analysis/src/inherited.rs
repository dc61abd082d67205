//! Whether the collections of a forked process traverse objects of its parent.
//!
//! An interpreter does not know which objects it inherited. Its first full collection shows it: that one traverses what
//! is alive, and the process has allocated no more than its collections counted. Frozen objects are not traversed.

use crate::growth::traversed;
use crate::time::{add_to, beyond, sum};
use gctrace_event::{GcReason, Pause};

/// A heap that lost fewer than one in this many of its objects is the same.
const LOST: u64 = 10;

/// The pauses of the main interpreter up to the first full one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InheritedHeap {
    /// Net containers that it allocated before that.
    allocated: u64,
    /// Some of these were not counted, as in-process: a collector that was off meanwhile may have missed any number.
    is_uncounted: bool,
    /// Objects that its collections freed.
    freed: u64,
    /// What the last full collection before the fork left, as the process inherits that number; 0 if unknown.
    left_before: u64,
    first: Option<FirstFull>,
}

/// The first full collection.
#[derive(Clone, Copy, Debug)]
struct FirstFull {
    traversed: u64,
    is_automatic: bool,
}

impl InheritedHeap {
    /// Adds a pause; `full`: whether it went through the whole heap.
    pub(crate) fn add(&mut self, pause: &Pause, full: bool) {
        let is_main = matches!(pause.interpreter, None | Some(0));
        if !is_main
            || pause.unfinished
            || pause.reason == GcReason::Shutdown
            || self.first.is_some()
        {
            return;
        }
        match pause.young_count {
            Some(count) => add_to(&mut self.allocated, count),
            None => self.is_uncounted = true,
        }
        if !full {
            gctrace_units::add_if_known(&mut self.freed, pause.collected);
            self.left_before = self.left_before.max(pause.oldest_objects.unwrap_or(0));
        } else if let Some(traversed) = traversed(pause) {
            let is_automatic = pause.reason != GcReason::Manual;
            self.first = Some(FirstFull { traversed, is_automatic });
        }
    }

    /// The inherited objects that its collections traverse, at least; `None` if unknown, as before its first full
    /// collection. `parents`: what a full collection of its parent traversed before the fork.
    pub(crate) fn objects(&self, parents: Option<u64>) -> Option<u64> {
        let first = self.first?;
        let counted = match self.is_uncounted {
            false => Some(beyond(sum([first.traversed, self.freed]), self.allocated)),
            true => None,
        };
        // Objects that die by their references count as allocated: after many collections the count says little. But
        // an automatic full collection comes as soon as a quarter is new.
        let before = self.left_before.max(parents.unwrap_or(0));
        match first.traversed >= before - before / LOST {
            true if first.is_automatic && before > 0 => counted.max(Some(before)),
            true => counted,
            false => counted.or(Some(0)),
        }
    }
}
