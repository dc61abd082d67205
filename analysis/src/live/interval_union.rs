//! Time covered by intervals that overlap, nest and arrive late, with each time counted once,
//! incrementally.
//!
//! Owns which part of an interval is new. Keeps the last minute of disjoint intervals, and at most
//! a given number: intervals before that are not counted, because their new part is unknown.

use super::ring::KEPT_NS;
use std::collections::VecDeque;

/// The union of intervals `[start, end)`.
#[derive(Clone, Debug)]
pub(super) struct IntervalUnion {
    /// Disjoint, sorted, not touching.
    recent: VecDeque<(u64, u64)>,
    /// Largest number of intervals in `recent`.
    most: usize,
    length_ns: u64,
    settled_until: u64,
}

impl IntervalUnion {
    /// Keeps at most `most` disjoint intervals.
    pub(super) fn new(most: usize) -> Self {
        Self {
            recent: VecDeque::new(),
            most,
            length_ns: 0,
            settled_until: 0,
        }
    }

    /// Adds an interval; `new` is called with the parts of it that were not covered before, in
    /// order.
    pub(super) fn add(&mut self, start: u64, end: u64, mut new: impl FnMut(u64, u64)) {
        let start = start.max(self.settled_until);
        if start >= end {
            return;
        }
        let from = match self.recent.back_mut() {
            None => start,
            Some((_, last_end)) if start > *last_end => start,
            Some((last_start, last_end)) if start >= *last_start => {
                let from = *last_end;
                if end > from {
                    *last_end = end;
                    self.length_ns = self.length_ns.saturating_add(end - from);
                    new(from, end);
                }
                return;
            }
            Some(_) => return self.insert(start, end, new),
        };
        self.recent.push_back((from, end));
        self.length_ns = self.length_ns.saturating_add(end - from);
        new(from, end);
    }

    /// Inserts an interval that starts before the last one.
    fn insert(&mut self, start: u64, end: u64, mut new: impl FnMut(u64, u64)) {
        let first = self.recent.partition_point(|(_, other)| *other < start);
        let (mut merged, mut from, mut behind) = ((start, end), start, first);
        for (other_start, other_end) in self.recent.range(first..) {
            if *other_start > end {
                break;
            }
            if from < *other_start {
                self.length_ns = self.length_ns.saturating_add(other_start - from);
                new(from, *other_start);
            }
            from = from.max(*other_end);
            merged = (merged.0.min(*other_start), merged.1.max(*other_end));
            behind += 1;
        }
        if from < end {
            self.length_ns = self.length_ns.saturating_add(end - from);
            new(from, end);
        }
        // Most often it is joined to just one.
        if behind == first + 1
            && let Some(place) = self.recent.get_mut(first)
        {
            *place = merged;
            return;
        }
        self.recent.drain(first..behind);
        self.recent.insert(first, merged);
    }

    /// Drops intervals that are too old or too many, after passing them to `old`.
    pub(super) fn trim(&mut self, mut old: impl FnMut(u64, u64)) {
        let newest = self.recent.back().map_or(0, |(_, end)| *end);
        let oldest = newest.saturating_sub(KEPT_NS);
        while let Some((start, end)) = self.recent.front().copied() {
            if end >= oldest && self.recent.len() <= self.most {
                return;
            }
            self.recent.pop_front();
            self.settled_until = self.settled_until.max(end);
            old(start, end);
        }
    }

    /// Length of the union, since the start.
    pub(super) fn length_ns(&self) -> u64 {
        self.length_ns
    }

    /// The covered parts of an interval, as far as they are kept.
    pub(super) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.recent.partition_point(|(_, other)| *other <= start);
        let reaching = self.recent.range(first..);
        reaching
            .take_while(move |(other, _)| *other < end)
            .map(move |(from, to)| ((*from).max(start), (*to).min(end)))
            .filter(|(from, to)| from < to)
    }

    /// How much of an interval is covered, as far as it is kept.
    pub(super) fn length_within(&self, start: u64, end: u64) -> u64 {
        self.within(start, end).map(|(from, to)| to - from).sum()
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
            let mut covered = IntervalUnion::new(1000);
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
            let mut covered = IntervalUnion::new(3);
            let mut timestamps = BTreeSet::new();
            for (start, length) in intervals {
                covered.add(start, start + length, |from, to| timestamps.extend(from..to));
                covered.trim(|_, _| {});
                prop_assert!(covered.recent.len() <= 3);
            }
            prop_assert_eq!(covered.length_ns(), timestamps.len() as u64);
        }
    }
}
