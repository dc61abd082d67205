//! Hits of probes and losses, as counted by the programs.

use crate::wire::Counter;
use gctrace_abi::ProbePointKind;

/// Hits and losses that the programs counted since they were loaded, over all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramCounts {
    pub(super) values: [u64; Counter::COUNTERS.0 as usize],
}

impl ProgramCounts {
    fn value(&self, index: u32) -> u64 {
        self.values[index as usize]
    }

    /// Hits of one kind of probe in recorded processes.
    #[must_use]
    pub fn hits(&self, kind: ProbePointKind) -> u64 {
        self.value(Counter::COUNTER_HITS.0 + kind as u32)
    }

    /// Hits of all probes in processes that are not recorded but run the same files.
    #[must_use]
    pub fn foreign_hits(&self) -> u64 {
        (Counter::COUNTER_FOREIGN_HITS.0..Counter::COUNTER_LOST_PAUSES.0)
            .map(|index| self.value(index))
            .sum()
    }

    /// Calls of the collector that collected nothing; these are not pauses.
    #[must_use]
    pub fn nothing_done(&self) -> u64 {
        self.value(Counter::COUNTER_NOTHING_DONE.0)
    }

    /// Collections that CPython counted but no probe saw: they ran in a function that is not
    /// probed.
    #[must_use]
    pub fn unprobed(&self) -> u64 {
        self.value(Counter::COUNTER_UNPROBED.0)
    }

    /// Losses in words, with their number; only nonzero ones.
    #[must_use]
    pub fn lost(&self) -> Vec<(&'static str, u64)> {
        [
            (
                Counter::COUNTER_LOST_PAUSES,
                "pauses: the ring buffer was full (--ring-size)",
            ),
            (
                Counter::COUNTER_LOST_PROCESS_EVENTS,
                "process events: their ring buffer was full",
            ),
            (
                Counter::COUNTER_LOST_THREADS,
                "pauses: too many threads were collecting at once",
            ),
            (Counter::COUNTER_LOST_DEPTH, "pauses: nested too deeply"),
            (
                Counter::COUNTER_LOST_PROCESSES,
                "processes: too many at once",
            ),
            (
                Counter::COUNTER_LOST_STACKS,
                "stacks of pauses: the ring buffer was full (--ring-size)",
            ),
        ]
        .into_iter()
        .map(|(counter, what)| (what, self.value(counter.0)))
        .filter(|(_, count)| *count > 0)
        .collect()
    }
}
