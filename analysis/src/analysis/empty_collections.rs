//! Collections that were for nothing.

use crate::accumulate::tally::freed_nothing;
use crate::report::PauseTotal;
use gctrace_event::{GcReason, Pause};

/// Collections that freed nothing, by kind.
#[derive(Debug, Default)]
pub(crate) struct EmptyCollections {
    pub(crate) automatic_full: PauseTotal,
    pub(crate) automatic_partial: PauseTotal,
    pub(crate) manual: PauseTotal,
    pub(crate) shutdown: PauseTotal,
    pub(crate) unknown: PauseTotal,
    /// All automatic full collections, whatever they freed.
    pub(crate) of_automatic_full: PauseTotal,
}

impl EmptyCollections {
    /// Counts a pause; `full`: it went through the whole heap.
    pub(super) fn add(&mut self, pause: &Pause, full: bool) {
        let time_ns = pause.duration_ns();
        if full && pause.reason == GcReason::Automatic {
            self.of_automatic_full.add(time_ns);
        }
        if !freed_nothing(pause) {
            return;
        }
        match pause.reason {
            GcReason::Automatic if full => self.automatic_full.add(time_ns),
            GcReason::Automatic => self.automatic_partial.add(time_ns),
            GcReason::Manual => self.manual.add(time_ns),
            GcReason::Shutdown => self.shutdown.add(time_ns),
            GcReason::Unknown => self.unknown.add(time_ns),
        }
    }

    /// Adds other pauses.
    pub(super) fn merge(&mut self, other: &Self) {
        self.automatic_full.add_all(&other.automatic_full);
        self.automatic_partial.add_all(&other.automatic_partial);
        self.manual.add_all(&other.manual);
        self.shutdown.add_all(&other.shutdown);
        self.unknown.add_all(&other.unknown);
        self.of_automatic_full.add_all(&other.of_automatic_full);
    }
}
