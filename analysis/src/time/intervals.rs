//! Unions of lists of intervals, each time counted once: built by one sort, and complete. For intervals that arrive
//! one by one, `accumulate/interval_union.rs` keeps a bounded part and reports the new time.

use crate::time::duration_ns;

/// The union of intervals `[start, end)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intervals {
    /// Disjoint, sorted, neither touching nor empty.
    spans: Vec<(u64, u64)>,
    /// Length of the union.
    length_ns: u64,
}

impl FromIterator<(u64, u64)> for Intervals {
    /// The union of intervals in any order, without intervals that end before they start.
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
        Self { length_ns: length(spans.iter().copied()), spans }
    }
}

impl Intervals {
    /// Length of the union.
    pub(crate) fn length_ns(&self) -> u64 {
        self.length_ns
    }

    /// The covered parts of an interval, in order.
    pub(crate) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.spans.partition_point(|(_, other)| *other <= start);
        clipped(&self.spans[first..], start, end)
    }

    /// How much of an interval is covered.
    pub(crate) fn length_within(&self, start: u64, end: u64) -> u64 {
        length(self.within(start, end))
    }

    /// Removes the part covered by the union from `rest`, and returns its length. `rest` is sorted and disjoint, and
    /// stays so.
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

/// The parts of sorted intervals within an interval; intervals that end before it are left out.
pub(crate) fn clipped<'a>(
    intervals: impl IntoIterator<Item = &'a (u64, u64)>,
    start: u64,
    end: u64,
) -> impl Iterator<Item = (u64, u64)> {
    intervals
        .into_iter()
        .take_while(move |(other, _)| *other < end)
        .map(move |(from, to)| ((*from).max(start), (*to).min(end)))
        .filter(|(from, to)| from < to)
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
        Self { spans: spans.collect() }
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
        if let Some((start, end, before)) = last { before + (at_ns.min(end) - start) } else { 0 }
    }
}

/// How much of each of some disjoint spans, in order, is covered by intervals that come by start: they are not kept.
#[derive(Debug, Default)]
pub(crate) struct CoveredSpans {
    spans: Vec<(u64, u64)>,
    covered_ns: Vec<u64>,
    /// The last of the union; the next interval may continue it.
    last: (u64, u64),
}

impl CoveredSpans {
    pub(crate) fn new(spans: Vec<(u64, u64)>) -> Self {
        Self { covered_ns: vec![0; spans.len()], spans, last: (0, 0) }
    }

    /// Adds an interval. It is left out if it ends before it starts.
    pub(crate) fn add(&mut self, (start, end): (u64, u64)) {
        if start >= end {
            return;
        }
        if start <= self.last.1 {
            self.last.1 = self.last.1.max(end);
        } else {
            self.cover();
            self.last = (start, end);
        }
    }

    fn cover(&mut self) {
        let (from, to) = self.last;
        let first = self.spans.partition_point(|(_, end)| *end <= from);
        let spans = self.spans.iter().zip(&mut self.covered_ns).skip(first);
        for ((start, end), covered_ns) in spans.take_while(|((start, _), _)| *start < to) {
            *covered_ns += duration_ns(from.max(*start), to.min(*end));
        }
    }

    /// The covered part of each span.
    pub(crate) fn finish(mut self) -> Vec<u64> {
        self.cover();
        self.covered_ns
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
            let covered = Intervals::from_iter(of.iter().copied());
            let timestamps = timestamps(&of);
            prop_assert_eq!(covered.length_ns(), timestamps.len() as u64);
            let counted = timestamps.range(start..start + length).count() as u64;
            prop_assert_eq!(covered.length_within(start, start + length), counted);
            let summed: SummedIntervals = of.iter().copied().collect();
            prop_assert_eq!(summed.outside(start, start + length), length - counted);
            let spans = vec![(0, start), (start, start + length), (start + length, 400)];
            let mut streamed = CoveredSpans::new(spans.clone());
            let mut by_start = of;
            by_start.sort_unstable();
            by_start.into_iter().for_each(|interval| streamed.add(interval));
            let expected = spans.iter().map(|(start, end)| covered.length_within(*start, *end));
            prop_assert_eq!(streamed.finish(), expected.collect::<Vec<_>>());
        }

        #[test]
        fn taking_is_the_difference_of_sets(from in ranges(), what in ranges()) {
            let mut rest = Intervals::from_iter(from.iter().copied()).spans;
            let sum = Intervals::from_iter(what.iter().copied()).take_from(&mut rest);
            let (from, what) = (timestamps(&from), timestamps(&what));
            prop_assert_eq!(timestamps(&rest), &from - &what);
            prop_assert_eq!(sum, from.intersection(&what).count() as u64);
            prop_assert_eq!(sum + length(rest), from.len() as u64);
        }
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
