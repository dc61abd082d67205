//! Sums over pauses with a histogram of their lengths, for one process and for all.

use super::snapshot::{CollectionCounts, GENERATIONS, Histogram, PAUSE_CLASSES_NS};
use crate::accumulate::pause_sums::{PauseSums, REASONS, generation_index};
use gctrace_event::Pause;

/// Sums over pauses, and how many were how long.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassedSums {
    sums: PauseSums,
    histogram: [Histogram; GENERATIONS],
}

impl ClassedSums {
    pub(super) fn add(&mut self, pause: &Pause) {
        self.sums.add(pause);
        let classes = &mut self.histogram[generation_index(pause.generation)];
        classes[class(pause.duration_ns())] += 1;
    }

    /// Adds the sums of others.
    pub(super) fn merge(&mut self, other: &Self) {
        self.sums.merge(&other.sums);
        let histogram = self.histogram.iter_mut().flatten();
        for (class, other) in histogram.zip(other.histogram.iter().flatten()) {
            *class += other;
        }
    }

    pub(super) fn figures(&self) -> CollectionCounts {
        let sums = &self.sums;
        let by_generation = sums.by_generation();
        let reasons = REASONS.into_iter().zip(sums.totals);
        let with_pauses = reasons.filter(|(_, by)| by.iter().any(|total| total.count > 0));
        CollectionCounts {
            pauses: by_generation.map(|total| total.count),
            pause_ns: by_generation.map(|total| total.time_ns),
            by_reason: with_pauses.collect(),
            histogram: self.histogram,
            collected: sums.collected,
            uncollectable: sums.uncollectable,
            with_collected: sums.with_collected,
            longest_ns: sums.max_ns,
        }
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
}
