//! Sums over pauses, for one process and for all.

use super::snapshot::CollectionCounts;
use super::snapshot::CountAndTime;
use super::snapshot::GENERATIONS;
use super::snapshot::Histogram;
use super::snapshot::PAUSE_CLASSES_NS;
use crate::accumulate::process::generation_index;
use crate::accumulate::process::reason_index;
use gctrace_event::GcReason;
use gctrace_event::Pause;

/// Reasons in the order of [`reason_index`].
const REASONS: [GcReason; 4] = [
    GcReason::Automatic,
    GcReason::Manual,
    GcReason::Shutdown,
    GcReason::Unknown,
];

/// Sums over pauses, by generation and reason.
#[derive(Clone, Debug, Default)]
pub(super) struct PauseSums {
    by_reason: [[CountAndTime; GENERATIONS]; REASONS.len()],
    histogram: [Histogram; GENERATIONS],
    collected: u64,
    uncollectable: u64,
    with_collected: u64,
    longest_ns: u64,
}

impl PauseSums {
    pub(super) fn add(&mut self, pause: &Pause) {
        let (duration_ns, generation) = (pause.duration_ns(), generation_index(pause.generation));
        let reason = self.by_reason.get_mut(reason_index(pause.reason));
        if let Some(sum) = reason.and_then(|reason| reason.get_mut(generation)) {
            sum.add(duration_ns);
        }
        let histogram = self.histogram.get_mut(generation);
        if let Some(class) = histogram.and_then(|classes| classes.get_mut(class(duration_ns))) {
            *class = class.saturating_add(1);
        }
        if let Some(collected) = pause.collected {
            self.with_collected = self.with_collected.saturating_add(1);
            self.collected = self.collected.saturating_add(collected);
        }
        let uncollectable = pause.uncollectable.unwrap_or(0);
        self.uncollectable = self.uncollectable.saturating_add(uncollectable);
        self.longest_ns = self.longest_ns.max(duration_ns);
    }

    /// Adds the sums of others.
    pub(super) fn merge(&mut self, other: &Self) {
        let own = self.by_reason.iter_mut().flatten();
        for (sum, other) in own.zip(other.by_reason.iter().flatten()) {
            sum.merge(*other);
        }
        let own = self.histogram.iter_mut().flatten();
        for (class, other) in own.zip(other.histogram.iter().flatten()) {
            *class = class.saturating_add(*other);
        }
        self.collected = self.collected.saturating_add(other.collected);
        self.uncollectable = self.uncollectable.saturating_add(other.uncollectable);
        self.with_collected = self.with_collected.saturating_add(other.with_collected);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    pub(super) fn figures(&self) -> CollectionCounts {
        let mut by_generation = [CountAndTime::default(); GENERATIONS];
        for reason in &self.by_reason {
            for (sum, own) in by_generation.iter_mut().zip(reason) {
                sum.merge(*own);
            }
        }
        let reasons = REASONS.into_iter().zip(self.by_reason);
        let met = reasons.filter(|(_, sums)| sums.iter().any(|sum| sum.count > 0));
        CollectionCounts {
            pauses: by_generation.map(|sum| sum.count),
            pause_ns: by_generation.map(|sum| sum.time_ns),
            by_reason: met.map(|(reason, sums)| (reason.as_str(), sums)).collect(),
            histogram: self.histogram,
            collected: self.collected,
            uncollectable: self.uncollectable,
            with_collected: self.with_collected,
            longest_ns: self.longest_ns,
        }
    }
}

impl CountAndTime {
    /// Counts one pause of this length.
    pub(super) fn add(&mut self, time_ns: u64) {
        self.merge(Self { count: 1, time_ns });
    }

    /// Adds other sums.
    pub(super) fn merge(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
    }
}

/// Index of the class of a pause: the first with a bound that is not below it.
fn class(duration_ns: u64) -> usize {
    PAUSE_CLASSES_NS.partition_point(|bound| *bound < duration_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_as_long_as_a_bound_is_within_it() {
        assert_eq!(class(0), 0);
        assert_eq!(class(10_000), 0);
        assert_eq!(class(10_001), 1);
        assert_eq!(class(10_000_000_000), PAUSE_CLASSES_NS.len() - 1);
        assert_eq!(class(u64::MAX), PAUSE_CLASSES_NS.len());
    }

    #[test]
    fn reasons_are_in_the_order_of_their_index() {
        for (index, reason) in REASONS.into_iter().enumerate() {
            assert_eq!(reason_index(reason), index);
        }
    }
}
