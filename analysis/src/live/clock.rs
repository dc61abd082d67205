//! Times of the recording as wall-clock time.

use gctrace_event::TraceHeader;

/// Start of the recording on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct WallClock {
    started_ns: u64,
    started_unix_ns: u64,
}

impl WallClock {
    pub(super) fn new(header: &TraceHeader) -> Self {
        Self { started_ns: header.started_ns, started_unix_ns: header.started_unix_ns }
    }

    /// A time in nanoseconds since 1970; as the wall clock ran at the start.
    pub(super) fn unix_ns(self, at_ns: u64) -> u64 {
        match at_ns.checked_sub(self.started_ns) {
            Some(after) => self.started_unix_ns.saturating_add(after),
            None => self.started_unix_ns.saturating_sub(self.started_ns - at_ns),
        }
    }
}
