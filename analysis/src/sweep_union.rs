//! Time covered by intervals that may overlap or nest, each time counted once.

use std::collections::VecDeque;

/// Disjoint intervals kept for comparison with later ones. Traces are nearly in order of time;
/// this covers what threads overlap in practice many times over.
const KEPT: usize = 1024;

/// The length of a union of intervals, in bounded memory. Exact as long as no interval reaches
/// back over more than the last 1,024 disjoint ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct SweepUnion {
    /// Disjoint, sorted, not touching.
    recent: VecDeque<(u64, u64)>,
    /// Length of the intervals that are kept no more; all ended at or before `settled_until`.
    settled: u64,
    settled_until: u64,
    /// Whether an interval started before `settled_until`; some time may then be counted twice.
    inexact: bool,
}

impl SweepUnion {
    pub(crate) fn add(&mut self, start: u64, end: u64) {
        if start < self.settled_until {
            self.inexact = true;
        }
        match self.recent.back_mut() {
            Some((last_start, last_end)) if start >= *last_start && start <= *last_end => {
                *last_end = end.max(*last_end);
            }
            Some((_, last_end)) if start < *last_end => self.insert(start, end),
            _ => self.recent.push_back((start, end)),
        }
        if self.recent.len() > KEPT
            && let Some((start, end)) = self.recent.pop_front()
        {
            self.settled += end - start;
            self.settled_until = self.settled_until.max(end);
        }
    }

    /// An interval that is not the latest: merges with all that it meets.
    fn insert(&mut self, start: u64, end: u64) {
        let first = self.recent.partition_point(|(_, other)| *other < start);
        let behind = self.recent.partition_point(|(other, _)| *other <= end);
        let met = self.recent.drain(first..behind.max(first));
        let merged = met.fold((start, end), |merged, other| {
            (merged.0.min(other.0), merged.1.max(other.1))
        });
        self.recent.insert(first, merged);
    }

    /// Length of the union.
    pub(crate) fn length(&self) -> u64 {
        let recent: u64 = self.recent.iter().map(|(start, end)| end - start).sum();
        self.settled.saturating_add(recent)
    }

    /// Whether the length may be too large, because the intervals came too far out of order.
    pub(crate) fn inexact(&self) -> bool {
        self.inexact
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_count_per_tick(
            intervals in prop::collection::vec((0u64..300, 0u64..40), 0..60)
        ) {
            let mut union = SweepUnion::default();
            let mut timestamps = std::collections::BTreeSet::new();
            for (start, length) in intervals {
                union.add(start, start + length);
                timestamps.extend(start..start + length);
            }
            prop_assert_eq!(union.length(), timestamps.len() as u64);
            prop_assert!(!union.inexact());
        }
    }

    #[test]
    fn many_in_order_stay_exact() {
        let mut union = SweepUnion::default();
        for n in 0..100_000 {
            union.add(n * 10, n * 10 + 4);
        }
        assert_eq!(union.length(), 400_000);
        assert!(!union.inexact());
        union.add(0, 4);
        assert!(union.inexact());
    }
}
