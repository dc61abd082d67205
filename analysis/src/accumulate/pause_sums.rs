//! Counts, times and outcomes of pauses, by reason and generation.

use crate::report::PauseTotal;
use crate::time::add_to;
use gctrace_event::{GcReason, Pause};

/// Generations 0, 1 and 2, and a last entry for pauses of unknown generation.
pub const GENERATIONS: usize = 4;

/// Reasons in the order of [`reason_index`].
pub(crate) const REASONS: [GcReason; 4] =
    [GcReason::Automatic, GcReason::Manual, GcReason::Shutdown, GcReason::Unknown];

/// Index of a generation in arrays of [`GENERATIONS`].
pub(crate) fn generation_index(generation: u8) -> usize {
    usize::from(generation).min(GENERATIONS - 1)
}

/// The generation of a pause, `None` if unknown.
pub(crate) fn known_generation(pause: &Pause) -> Option<u8> {
    (pause.generation != Pause::UNKNOWN_GENERATION).then_some(pause.generation)
}

/// Index of a reason in [`REASONS`].
pub(crate) fn reason_index(reason: GcReason) -> usize {
    match reason {
        GcReason::Automatic => 0,
        GcReason::Manual => 1,
        GcReason::Shutdown => 2,
        GcReason::Unknown => 3,
    }
}

/// Sums over some pauses.
#[derive(Clone, Debug, Default)]
pub(crate) struct PauseSums {
    /// By reason and generation.
    pub(crate) totals: [[PauseTotal; GENERATIONS]; REASONS.len()],
    pub(crate) collected: u64,
    pub(crate) uncollectable: u64,
    /// Number of pauses that state what they collected.
    pub(crate) with_collected: u64,
    /// 0 without pauses.
    pub(crate) max_ns: u64,
}

impl PauseSums {
    pub(crate) fn add(&mut self, pause: &Pause) {
        let duration_ns = pause.duration_ns();
        let generation = generation_index(pause.generation);
        self.totals[reason_index(pause.reason)][generation].add(duration_ns);
        if let Some(collected) = pause.collected {
            self.with_collected += 1;
            add_to(&mut self.collected, collected);
        }
        if let Some(uncollectable) = pause.uncollectable {
            add_to(&mut self.uncollectable, uncollectable);
        }
        self.max_ns = self.max_ns.max(duration_ns);
    }

    /// Adds the sums of other pauses.
    pub(crate) fn merge(&mut self, other: &Self) {
        let totals = self.totals.iter_mut().flatten();
        for (total, other) in totals.zip(other.totals.iter().flatten()) {
            total.add_all(other);
        }
        add_to(&mut self.collected, other.collected);
        add_to(&mut self.uncollectable, other.uncollectable);
        self.with_collected += other.with_collected;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub(crate) fn by_generation(&self) -> [PauseTotal; GENERATIONS] {
        std::array::from_fn(|at| self.totals.iter().map(|reason| &reason[at]).collect())
    }

    /// In the order of [`REASONS`].
    pub(crate) fn by_reason(&self) -> [PauseTotal; REASONS.len()] {
        self.totals.map(|reason| reason.iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_in_the_order_of_their_index() {
        for (index, reason) in REASONS.into_iter().enumerate() {
            assert_eq!(reason_index(reason), index);
        }
    }
}
