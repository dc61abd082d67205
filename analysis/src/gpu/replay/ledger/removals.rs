//! Changes in the network by removing a cause, or one place of it.

use super::IdleLabel;
use crate::gpu::idle::IdleCause;
use crate::gpu::replay::delays::DelayList;
use crate::gpu::replay::network::EdgeRank;
use std::collections::{BTreeMap, HashMap};

/// A part of a delay.
#[derive(Clone, Copy, Debug)]
pub(super) struct CausedDelay {
    pub(super) cause: IdleCause,
    pub(super) label: IdleLabel,
    /// Place of the edge in the network.
    pub(super) edge: usize,
    /// Change by removing the cause, negative.
    pub(super) by_ns: i64,
}

/// Changes by removing each cause, by its places.
#[derive(Default)]
pub(super) struct Removals {
    pub(super) causes: BTreeMap<IdleCause, HashMap<IdleLabel, DelayChanges>>,
}

/// Places of edges, and by how much their delays change.
#[derive(Default)]
pub(super) struct DelayChanges {
    edges: Vec<EdgeRank>,
    by_ns: DelayList,
}

impl DelayChanges {
    fn iter(&self) -> impl Iterator<Item = (EdgeRank, i64)> {
        self.edges.iter().copied().zip(self.by_ns.iter())
    }
}

impl Removals {
    pub(super) fn add(&mut self, delay: CausedDelay) {
        let CausedDelay { cause, label, edge, by_ns } = delay;
        debug_assert!(by_ns <= 0, "removing makes nothing later");
        let changes = self.causes.entry(cause).or_default().entry(label).or_default();
        changes.edges.push(EdgeRank::new(edge));
        changes.by_ns.push(by_ns);
    }

    /// Nothing more is added.
    pub(super) fn finish(mut self) -> Self {
        for changes in self.causes.values_mut().flat_map(HashMap::values_mut) {
            changes.edges.shrink_to_fit();
            changes.by_ns.shrink();
        }
        self
    }

    /// All that removing a cause changes; `None` if nothing.
    pub(super) fn cause(&self, cause: IdleCause) -> Option<impl Iterator<Item = (EdgeRank, i64)>> {
        Some(self.causes.get(&cause)?.values().flat_map(DelayChanges::iter))
    }

    /// The same of one place.
    pub(super) fn place(
        &self,
        cause: IdleCause,
        label: IdleLabel,
    ) -> Option<impl Iterator<Item = (EdgeRank, i64)>> {
        Some(self.causes.get(&cause)?.get(&label)?.iter())
    }
}
