//! What the controller asks about the program, and has done in it.

use super::price::{Figures, Thresholds};

/// What is asked about the program.
pub(crate) trait Gauge {
    /// All figures, at the end of a block.
    fn figures(&mut self) -> Figures;
    /// Full collections by now.
    fn fulls(&mut self) -> u64;
    /// Resident memory in bytes; `None`: unknown.
    fn rss_bytes(&mut self) -> Option<u64>;
    /// Bytes of the C library's memory that are in use; `None`: unknown.
    fn malloc_bytes(&mut self) -> Option<u64>;
    /// Memory that is left to the process, in bytes; `None`: unknown.
    fn headroom_bytes(&mut self) -> Option<u64>;
    /// CLOCK_MONOTONIC in ns.
    fn now_ns(&mut self) -> u64;
}

/// What is to be done before the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// `gc.set_threshold()`.
    SetThresholds(Thresholds),
    /// `gc.collect()` of a generation.
    Collect(u8),
    /// `gc.freeze()`.
    Freeze,
    /// `gc.unfreeze()`.
    Unfreeze,
}
