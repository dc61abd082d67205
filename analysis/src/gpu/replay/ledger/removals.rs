//! Changes in the network by removing a cause, or one place of it.

use super::IdleLabel;
use super::delays::CausedDelay;
use crate::gpu::idle::IdleCause;
use std::collections::BTreeMap;
use std::ops::Range;

/// Changes by removing each cause.
pub(super) struct Removals {
    /// By cause, then by label: place of the edge, and by how much its delay changes.
    delays: Vec<(usize, i64)>,
    pub(super) causes: BTreeMap<IdleCause, CauseDelays>,
}

/// The delays of one cause.
pub(super) struct CauseDelays {
    /// All, in [`Removals::delays`].
    all: Range<usize>,
    by_label: BTreeMap<IdleLabel, Range<usize>>,
}

impl Removals {
    pub(super) fn of(mut delays: Vec<CausedDelay>) -> Self {
        debug_assert!(delays.iter().all(|delay| delay.by_ns <= 0), "removing makes nothing later");
        delays.sort_by_key(|delay| (delay.cause, delay.label));
        let mut causes: BTreeMap<IdleCause, CauseDelays> = BTreeMap::new();
        let mut from = 0;
        for part in delays.chunk_by(|a, b| (a.cause, a.label) == (b.cause, b.label)) {
            let range = from..from + part.len();
            from = range.end;
            let new = || CauseDelays { all: range.clone(), by_label: BTreeMap::new() };
            let of_cause = causes.entry(part[0].cause).or_insert_with(new);
            of_cause.all.end = range.end;
            of_cause.by_label.insert(part[0].label, range);
        }
        // Not in the place of the longer entries.
        let delays = delays.iter().map(|delay| (delay.edge, delay.by_ns));
        Self { delays: delays.collect(), causes }
    }

    /// All that removing a cause changes; `None` if nothing.
    pub(super) fn cause(&self, cause: IdleCause) -> Option<&[(usize, i64)]> {
        Some(&self.delays[self.causes.get(&cause)?.all.clone()])
    }

    /// The same of one place.
    pub(super) fn place(&self, cause: IdleCause, label: IdleLabel) -> Option<&[(usize, i64)]> {
        Some(&self.delays[self.causes.get(&cause)?.by_label.get(&label)?.clone()])
    }
}
