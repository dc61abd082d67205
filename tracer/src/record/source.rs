//! A source of events: the common interface of the kernel's probes and the injected library.

use crate::launch::CommandEnd;
use crate::record::losses::RecordingLosses;
use crate::record::trace::RecordingTrace;
use gctrace_event::TraceEnd;
use std::os::fd::BorrowedFd;

/// A source of events: collections, processes, GPU work.
pub(super) trait Source {
    /// Readable when events wait.
    fn wake_descriptor(&self) -> BorrowedFd<'_>;

    /// Drains the rings. What does not depend on another source is written at once.
    fn poll(&mut self, trace: &mut RecordingTrace) -> anyhow::Result<()>;

    /// Every record written before then has been handled, in ns of CLOCK_MONOTONIC; 0: none was.
    fn read_until_ns(&self) -> u64;

    /// Handles what was polled; all sources were.
    fn handle(&mut self, _trace: &mut RecordingTrace) {}

    /// Does what is due by the clock.
    fn tick(&mut self, _trace: &mut RecordingTrace) {}

    /// Pids of living processes that run Python, in no order.
    fn pids(&self) -> Vec<u32>;

    /// Adds losses, hits and cost so far.
    ///
    /// # Errors
    /// They cannot be read.
    fn tally(&mut self, trace: &RecordingTrace, losses: &mut RecordingLosses)
    -> anyhow::Result<()>;

    /// Writes what is left, and adds losses and cost to the end of the trace. `ended`: how the
    /// command ended, if it did. Returns the number of recorded processes that still run.
    ///
    /// # Errors
    /// The losses cannot be read.
    fn finish(
        self,
        trace: &mut RecordingTrace,
        end: &mut TraceEnd,
        ended: Option<CommandEnd>,
    ) -> anyhow::Result<usize>
    where
        Self: Sized;
}
