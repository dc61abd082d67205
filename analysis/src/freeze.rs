//! Whether a process froze its heap, and what its collector still frees.
//!
//! Nothing in an interpreter counts frozen objects: a freeze is inferred from full collections that
//! traverse much less than the previous one left.

use crate::figure::Basis;
use crate::growth::traversed;
use crate::time::{beyond, duration_ns};
use gctrace_event::{GcReason, Pause};
use serde::Serialize;

/// Objects still freed after `gc.freeze()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AfterFreeze {
    /// Always inferred: a full collection went through less than half of what the one before left.
    pub basis: Basis,
    /// Time of that collection, in ns after the start of the recording; the freeze was before.
    pub after_start_ns: u64,
    /// Objects that were left before and not gone through since: frozen, or freed by their
    /// references meanwhile. Cycles among frozen objects are never freed.
    pub frozen_objects: u64,
    /// Automatic collections since.
    pub collections: u64,
    /// Objects that these freed.
    pub freed: u64,
}

/// A full collection shows a freeze if it traversed less than one in this many of the objects that
/// the previous one left: programs seldom free so much at once by references alone.
const FROZEN: u64 = 2;
/// A heap of fewer objects shows none: an import or a model is larger.
const SMALLEST: u64 = 10_000;

/// The pauses of the main interpreter, in the order of their ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FreezeWatch {
    /// Objects that the last full collection left.
    left: Option<u64>,
    /// With its time on the clock of the trace.
    after: Option<AfterFreeze>,
}

impl FreezeWatch {
    /// Adds a pause; `full`: whether it went through the whole heap. Other interpreters have heaps
    /// of their own and are ignored, and so is the end of the interpreter.
    pub(crate) fn add(&mut self, pause: &Pause, full: bool) {
        let is_main = matches!(pause.interpreter, None | Some(0));
        if !is_main || pause.unfinished || pause.reason == GcReason::Shutdown {
            return;
        }
        if full && let Some(traversed) = traversed(pause) {
            let freed = pause.collected;
            let left = if let Some(freed) = freed { beyond(traversed, freed) } else { traversed };
            let before = self.left.replace(left);
            if self.after.is_none()
                && let Some(before) = before
                && before >= SMALLEST
                && traversed < before / FROZEN
            {
                self.after = Some(AfterFreeze {
                    basis: Basis::Inferred,
                    after_start_ns: pause.start_ns,
                    frozen_objects: before - traversed,
                    collections: 0,
                    freed: 0,
                });
            }
        }
        if pause.reason != GcReason::Manual
            && let Some(after) = self.after.as_mut()
        {
            after.collections += 1;
            gctrace_units::add_if_known(&mut after.freed, pause.collected);
        }
    }

    /// When the freeze was seen.
    pub(crate) fn at_ns(&self) -> Option<u64> {
        Some(self.after?.after_start_ns)
    }

    /// `None` unless a freeze was seen.
    pub(crate) fn report(&self, started_ns: u64) -> Option<AfterFreeze> {
        let after = self.after?;
        Some(AfterFreeze { after_start_ns: duration_ns(started_ns, after.after_start_ns), ..after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(start_ns: u64, left: u64, collected: u64, reason: GcReason) -> Pause {
        Pause {
            start_ns,
            end_ns: start_ns + 1,
            generation: 2,
            reason,
            collected: Some(collected),
            oldest_objects: Some(left),
            ..Pause::default()
        }
    }

    #[test]
    fn a_heap_that_is_left_out_was_frozen() {
        let mut watch = FreezeWatch::default();
        watch.add(&full(5, 40_000, 1_000, GcReason::Automatic), true);
        watch.add(&full(10, 50_000, 0, GcReason::Manual), true);
        assert_eq!(watch.report(0), None);
        watch.add(&full(20, 900, 100, GcReason::Automatic), true);
        let young = Pause { generation: 0, ..full(30, 900, 7, GcReason::Automatic) };
        watch.add(&young, false);
        watch.add(&full(40, 900, 7, GcReason::Manual), true);
        watch.add(&full(50, 0, 70_000, GcReason::Shutdown), true);
        let after = watch.report(15).unwrap();
        assert_eq!((after.after_start_ns, after.frozen_objects), (5, 49_000));
        assert_eq!((after.collections, after.freed), (2, 107));
    }

    #[test]
    fn what_the_collector_frees_is_no_freeze() {
        let mut watch = FreezeWatch::default();
        watch.add(&full(10, 50_000, 0, GcReason::Automatic), true);
        watch.add(&full(20, 900, 49_100, GcReason::Automatic), true);
        let mut other = full(30, 10, 0, GcReason::Automatic);
        other.interpreter = Some(3);
        watch.add(&other, true);
        assert_eq!(watch.report(0), None);
    }
}
