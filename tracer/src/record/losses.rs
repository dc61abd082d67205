//! Losses and cost of a recording, as its sources add them up while it runs.

use std::collections::BTreeMap;

/// Losses and probe hits so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordingLosses {
    /// Lost events by place; without zeros.
    pub lost: BTreeMap<String, u64>,
    /// Processes that could have run Python unseen.
    pub unexamined: u64,
    /// Hits of probes and hooks in recorded programs.
    pub hits: u64,
    /// CPU time that probes on the collector took from recorded programs, if the cost of one is
    /// known.
    pub cost_ns: Option<u64>,
}

/// The sum of losses by place; the largest number stands for more, which a program can claim, as it
/// counts in its own memory.
pub(crate) fn lost_events(lost: &BTreeMap<String, u64>) -> u64 {
    lost.values().copied().fold(0, u64::saturating_add)
}
