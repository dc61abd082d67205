//! Unions of intervals, each time counted once: of a list, or built up as intervals arrive, in
//! bounded memory if old ones are trimmed.

use std::collections::VecDeque;

/// The union of intervals `[start, end)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intervals {
    /// Disjoint, sorted, neither touching nor empty.
    spans: VecDeque<(u64, u64)>,
    /// Length of the union, trimmed intervals included.
    length_ns: u64,
    /// The last end of trimmed intervals.
    trimmed_until: u64,
    late_ns: u64,
}

impl FromIterator<(u64, u64)> for Intervals {
    /// The union of intervals in any order; those that end before they start are left out.
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(intervals: T) -> Self {
        let intervals = intervals.into_iter().filter(|(start, end)| start < end);
        let mut spans: Vec<(u64, u64)> = intervals.collect();
        spans.sort_unstable();
        spans.dedup_by(|(start, end), (_, last)| {
            let joined = *start <= *last;
            if joined {
                *last = (*last).max(*end);
            }
            joined
        });
        Self {
            length_ns: length(spans.iter().copied()),
            spans: spans.into(),
            ..Self::default()
        }
    }
}

impl Intervals {
    /// Adds an interval; `new` is called with the parts of it that were not covered before, in
    /// order. The part before the end of what was trimmed is not added, but counted as late.
    pub(crate) fn add(&mut self, start: u64, end: u64, mut new: impl FnMut(u64, u64)) {
        if start < self.trimmed_until {
            let late_ns = end.min(self.trimmed_until).saturating_sub(start);
            self.late_ns = self.late_ns.saturating_add(late_ns);
        }
        let start = start.max(self.trimmed_until);
        if start >= end {
            return;
        }
        let from = match self.spans.back_mut() {
            None => start,
            Some((_, last_end)) if start > *last_end => start,
            Some((last_start, last_end)) if start >= *last_start => {
                let from = *last_end;
                if end > from {
                    *last_end = end;
                    self.length_ns += end - from;
                    new(from, end);
                }
                return;
            }
            Some(_) => return self.insert(start, end, new),
        };
        self.spans.push_back((from, end));
        self.length_ns += end - from;
        new(from, end);
    }

    /// Inserts an interval that starts before the last one.
    fn insert(&mut self, start: u64, end: u64, mut new: impl FnMut(u64, u64)) {
        let first = self.spans.partition_point(|(_, other)| *other < start);
        let (mut merged, mut from, mut behind) = ((start, end), start, first);
        for (other_start, other_end) in self.spans.range(first..) {
            if *other_start > end {
                break;
            }
            if from < *other_start {
                self.length_ns += other_start - from;
                new(from, *other_start);
            }
            from = from.max(*other_end);
            merged = (merged.0.min(*other_start), merged.1.max(*other_end));
            behind += 1;
        }
        if from < end {
            self.length_ns += end - from;
            new(from, end);
        }
        // Most often it is joined to just one.
        if behind == first + 1 {
            self.spans[first] = merged;
            return;
        }
        self.spans.drain(first..behind);
        self.spans.insert(first, merged);
    }

    /// Drops intervals that ended more than `kept_ns` before the last one, and the first of more
    /// than `most`, after passing them to `old`. They remain part of the length.
    pub(crate) fn trim(&mut self, most: usize, kept_ns: u64, mut old: impl FnMut(u64, u64)) {
        let newest = self.spans.back().map_or(0, |(_, end)| *end);
        let oldest = newest.saturating_sub(kept_ns);
        while let Some((start, end)) = self.spans.front().copied() {
            if end >= oldest && self.spans.len() <= most {
                return;
            }
            self.spans.pop_front();
            self.trimmed_until = end;
            old(start, end);
        }
    }

    /// Length of the union, since the start.
    pub(crate) fn length_ns(&self) -> u64 {
        self.length_ns
    }

    /// Sum of the parts of intervals that came after what they may overlap was trimmed; 0 if the
    /// length is exact.
    pub(crate) fn late_ns(&self) -> u64 {
        self.late_ns
    }

    /// The covered parts of an interval, as far as they are kept, in order.
    pub(crate) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.spans.partition_point(|(_, other)| *other <= start);
        let reaching = self.spans.range(first..);
        reaching
            .take_while(move |(other, _)| *other < end)
            .map(move |(from, to)| ((*from).max(start), (*to).min(end)))
            .filter(|(from, to)| from < to)
    }

    /// How much of an interval is covered, as far as it is kept.
    pub(crate) fn length_within(&self, start: u64, end: u64) -> u64 {
        length(self.within(start, end))
    }

    /// Removes from `rest` what the union covers, and returns its length. `rest` is sorted and
    /// disjoint, and stays so.
    pub(crate) fn take_from(&self, rest: &mut Vec<(u64, u64)>) -> u64 {
        if self.spans.is_empty() || rest.is_empty() {
            return 0;
        }
        let mut left = Vec::with_capacity(rest.len());
        let mut sum = 0;
        for (start, end) in rest.iter().copied() {
            let mut from = start;
            for (covered, until) in self.within(start, end) {
                sum += until - covered;
                if from < covered {
                    left.push((from, covered));
                }
                from = until;
            }
            if from < end {
                left.push((from, end));
            }
        }
        *rest = left;
        sum
    }
}

/// Sum of the lengths of disjoint intervals.
pub(crate) fn length(disjoint: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    disjoint.into_iter().map(|(start, end)| end - start).sum()
}

/// The union of a list of intervals with the length up to each, for many questions about long
/// times.
#[derive(Debug, Default)]
pub(crate) struct SummedIntervals {
    /// Disjoint, in order: start, end, and the length of all before.
    spans: Vec<(u64, u64, u64)>,
}

impl FromIterator<(u64, u64)> for SummedIntervals {
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(intervals: T) -> Self {
        let mut sum = 0;
        let union = Intervals::from_iter(intervals);
        let spans = union.spans.iter().map(|(start, end)| {
            let before = sum;
            sum += end - start;
            (*start, *end, before)
        });
        Self {
            spans: spans.collect(),
        }
    }
}

impl SummedIntervals {
    /// The time between two timestamps, minus the covered part; 0 if they are in the wrong order.
    pub(crate) fn outside(&self, from_ns: u64, to_ns: u64) -> u64 {
        if to_ns <= from_ns {
            return 0;
        }
        (to_ns - from_ns) - (self.until(to_ns) - self.until(from_ns))
    }

    /// Time covered before a time.
    fn until(&self, at_ns: u64) -> u64 {
        let behind = self.spans.partition_point(|(start, _, _)| *start < at_ns);
        let last = behind.checked_sub(1).map(|last| self.spans[last]);
        last.map_or(0, |(start, end, before)| before + (at_ns.min(end) - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let pair = (0u64..300, 0u64..40).prop_map(|(start, length)| (start, start + length));
        prop::collection::vec(pair, 0..60)
    }

    fn timestamps(ranges: &[(u64, u64)]) -> BTreeSet<u64> {
        let all = ranges.iter();
        all.flat_map(|(start, end)| *start..*end).collect()
    }

    proptest! {
        #[test]
        fn equals_a_count_per_tick(of in ranges(), start in 0u64..300, length in 0u64..100) {
            let mut covered = Intervals::default();
            let mut timestamps = BTreeSet::new();
            for (start, end) in of.iter().copied() {
                let before = timestamps.clone();
                let mut parts = Vec::new();
                covered.add(start, end, |from, to| parts.push((from, to)));
                let added: BTreeSet<u64> = parts.iter().flat_map(|(from, to)| *from..*to).collect();
                timestamps.extend(start..end);
                prop_assert_eq!(added, &timestamps - &before);
                prop_assert!(parts.windows(2).all(|pair| pair[0].1 <= pair[1].0));
                prop_assert!(parts.iter().all(|(from, to)| from < to));
                covered.trim(1000, u64::MAX, |_, _| {});
            }
            prop_assert_eq!(covered.length_ns(), timestamps.len() as u64);
            prop_assert_eq!(covered.late_ns(), 0);
            let counted = timestamps.range(start..start + length).count() as u64;
            prop_assert_eq!(covered.length_within(start, start + length), counted);
            let summed: SummedIntervals = of.iter().copied().collect();
            prop_assert_eq!(summed.outside(start, start + length), length - counted);
            prop_assert_eq!(Intervals::from_iter(of), covered);
        }

        #[test]
        fn what_is_trimmed_is_not_counted_again(of in ranges()) {
            let mut covered = Intervals::default();
            let mut timestamps = BTreeSet::new();
            let mut old = Vec::new();
            for (start, end) in of {
                covered.add(start, end, |from, to| timestamps.extend(from..to));
                covered.trim(3, u64::MAX, |from, to| old.push((from, to)));
                prop_assert!(covered.spans.len() <= 3);
            }
            prop_assert_eq!(covered.length_ns(), timestamps.len() as u64);
            prop_assert!(old.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        }

        #[test]
        fn taking_is_the_difference_of_sets(from in ranges(), what in ranges()) {
            let mut rest = Vec::from(Intervals::from_iter(from.iter().copied()).spans);
            let sum = Intervals::from_iter(what.iter().copied()).take_from(&mut rest);
            let (from, what) = (timestamps(&from), timestamps(&what));
            prop_assert_eq!(timestamps(&rest), &from - &what);
            prop_assert_eq!(sum, from.intersection(&what).count() as u64);
            prop_assert_eq!(sum + length(rest), from.len() as u64);
        }
    }

    #[test]
    fn many_in_order_stay_exact() {
        let mut union = Intervals::default();
        for n in 0..100_000 {
            union.add(n * 10, n * 10 + 4, |_, _| {});
            union.trim(1024, u64::MAX, |_, _| {});
        }
        assert_eq!((union.length_ns(), union.late_ns()), (400_000, 0));
        union.add(0, 4, |_, _| {});
        assert_eq!((union.length_ns(), union.late_ns()), (400_000, 4));
        union.add(999_000, 1_000_010, |_, _| {});
        assert_eq!((union.length_ns(), union.late_ns()), (400_000 + 610, 4));
    }

    #[test]
    fn overlapping_intervals_count_once() {
        let covered: SummedIntervals = [(30, 40), (10, 15), (12, 20)].into_iter().collect();
        assert_eq!(covered.outside(0, 50), 30);
        assert_eq!(covered.outside(15, 35), 10);
        assert_eq!(covered.outside(20, 30), 10);
        assert_eq!(covered.outside(30, 20), 0);
    }
}
