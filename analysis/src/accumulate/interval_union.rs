//! Time covered by intervals that overlap, nest and arrive late. Each time counts once, incrementally.
//!
//! Finds the new part of an interval. The intervals kept for this are limited in number and, for the live view, in
//! age. For an interval that starts before them, the new part is unknown. Complete lists are in `time/intervals.rs`:
//! they take the space of one sorted list and no time per interval.

use crate::bounded::{Keep, WINDOW_NS};
use crate::time::add_to;
use crate::time::intervals::{clipped, length};
use std::collections::VecDeque;

/// The union of intervals `[start, end)`.
#[derive(Clone, Debug, Default)]
pub(crate) struct IntervalUnion {
    /// Disjoint, sorted, not touching.
    recent: VecDeque<(u64, u64)>,
    keep: Keep,
    /// Largest number of intervals in `recent`.
    most: usize,
    length_ns: u64,
    /// End of the last interval that is no longer kept.
    settled_until: u64,
    inexact: bool,
}

impl IntervalUnion {
    /// Keeps at most `most` disjoint intervals. If an interval starts before them, the earlier part is not counted
    /// with [`Keep::Window`]; with [`Keep::All`] it is, maybe twice.
    pub(crate) fn new(keep: Keep, most: usize) -> Self {
        Self { keep, most, ..Self::default() }
    }

    /// Adds an interval; `new` is called with the parts of it that were not covered before, in
    /// order.
    pub(crate) fn add(&mut self, start: u64, end: u64, mut new: impl FnMut(u64, u64)) {
        self.inexact |= start < self.settled_until;
        let start = match self.keep {
            Keep::All => start,
            Keep::Window => start.max(self.settled_until),
        };
        if start >= end {
            return;
        }
        match self.recent.back_mut() {
            Some((last_start, last_end)) if start >= *last_start && start <= *last_end => {
                let from = *last_end;
                if end > from {
                    *last_end = end;
                    self.count(from, end);
                    new(from, end);
                }
            }
            Some((_, last_end)) if start < *last_end => self.insert(start, end, new),
            _ => {
                self.recent.push_back((start, end));
                self.count(start, end);
                new(start, end);
            }
        }
    }

    /// Saturates: with [`Keep::All`] time may be counted twice.
    fn count(&mut self, start: u64, end: u64) {
        add_to(&mut self.length_ns, end - start);
    }

    /// Inserts an interval that starts before the last one.
    fn insert(&mut self, start: u64, end: u64, mut new: impl FnMut(u64, u64)) {
        let first = self.recent.partition_point(|(_, other)| *other < start);
        let behind = self.recent.partition_point(|(other, _)| *other <= end);
        let (mut merged, mut from) = ((start, end), start);
        for at in first..behind {
            let (other_start, other_end) = self.recent[at];
            if from < other_start {
                self.count(from, other_start);
                new(from, other_start);
            }
            from = from.max(other_end);
            merged = (merged.0.min(other_start), merged.1.max(other_end));
        }
        if from < end {
            self.count(from, end);
            new(from, end);
        }
        // Most often it is joined to just one.
        if behind == first + 1 {
            self.recent[first] = merged;
        } else {
            self.recent.drain(first..behind);
            self.recent.insert(first, merged);
        }
    }

    /// Drops intervals that are too old or too many, after passing them to `old`.
    pub(crate) fn trim(&mut self, mut old: impl FnMut(u64, u64)) {
        while let (Some((start, end)), Some((_, newest))) =
            (self.recent.front().copied(), self.recent.back())
        {
            let is_old = self.keep == Keep::Window && newest - end > WINDOW_NS;
            if !is_old && self.recent.len() <= self.most {
                return;
            }
            self.recent.pop_front();
            self.settled_until = self.settled_until.max(end);
            old(start, end);
        }
    }

    /// Length of the union, since the start.
    pub(crate) fn length_ns(&self) -> u64 {
        self.length_ns
    }

    /// Whether an interval started before the kept ones.
    pub(crate) fn inexact(&self) -> bool {
        self.inexact
    }

    /// The covered parts of an interval, as far as they are kept.
    pub(crate) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.recent.partition_point(|(_, other)| *other <= start);
        clipped(self.recent.range(first..), start, end)
    }

    /// How much of an interval is covered, as far as it is kept.
    pub(crate) fn length_within(&self, start: u64, end: u64) -> u64 {
        length(self.within(start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn equals_a_count_per_tick(
            intervals in prop::collection::vec((0u64..300, 0u64..40), 0..60),
            start in 0u64..300,
            length in 0u64..100,
        ) {
            let mut covered = IntervalUnion::new(Keep::Window, 1000);
            let mut timestamps = BTreeSet::new();
            for (start, length) in intervals {
                let end = start + length;
                let before = timestamps.clone();
                let mut parts = Vec::new();
                covered.add(start, end, |from, to| parts.push((from, to)));
                let added: BTreeSet<u64> = parts.iter().flat_map(|(from, to)| *from..*to).collect();
                timestamps.extend(start..end);
                prop_assert_eq!(added, &timestamps - &before);
                prop_assert!(parts.windows(2).all(|pair| pair[0].1 <= pair[1].0));
                prop_assert!(parts.iter().all(|(from, to)| from < to));
                covered.trim(|_, _| {});
            }
            prop_assert_eq!(covered.length_ns(), timestamps.len() as u64);
            let counted = timestamps.range(start..start + length).count() as u64;
            prop_assert_eq!(covered.length_within(start, start + length), counted);
        }

        #[test]
        fn what_is_forgotten_is_not_counted_again(
            intervals in prop::collection::vec((0u64..300, 0u64..40), 0..60)
        ) {
            let mut covered = IntervalUnion::new(Keep::Window, 3);
            let mut timestamps = BTreeSet::new();
            for (start, length) in intervals {
                covered.add(start, start + length, |from, to| timestamps.extend(from..to));
                covered.trim(|_, _| {});
                prop_assert!(covered.recent.len() <= 3);
            }
            prop_assert_eq!(covered.length_ns(), timestamps.len() as u64);
        }
    }

    #[test]
    fn many_in_order_stay_exact() {
        let mut union = IntervalUnion::new(Keep::All, 1024);
        let mut add = |n: u64| {
            union.add(n, n + 4, |_, _| {});
            union.trim(|_, _| {});
            (union.length_ns(), union.inexact())
        };
        let last = (0..100_000).map(|n| add(n * 10)).last();
        assert_eq!(last, Some((400_000, false)));
        assert_eq!(add(0), (400_004, true));
    }
}
