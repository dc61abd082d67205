//! The controller's questions about the program, and its actions in it.

use super::price::{Figures, Thresholds};

/// Questions about the program.
pub trait Gauge {
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
    /// Memory of the GPU of the thread that makes the steps; `None`: it has none, or it is unknown.
    /// `searches`: the program may have begun to use one.
    fn device_memory(&mut self, searches: bool) -> Option<DeviceMemory>;
    /// CLOCK_MONOTONIC in ns.
    fn now_ns(&mut self) -> u64;
}

/// Memory of a GPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// In use, by all processes.
    pub used: u64,
    /// Not in use.
    pub left: u64,
}

/// An action before the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `gc.set_threshold()`.
    SetThresholds(Thresholds),
    /// `gc.collect()` of a generation.
    Collect(u8),
    /// `gc.freeze()`.
    Freeze,
    /// `gc.unfreeze()`.
    Unfreeze,
}
