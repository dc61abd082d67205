//! Sorted, disjoint intervals, and their intersections.

/// Intervals `[start, end)`, sorted, neither touching nor empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intervals {
    sorted: Vec<(u64, u64)>,
}

impl Intervals {
    /// The union of intervals that may overlap, in any order.
    pub(crate) fn of(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut all: Vec<(u64, u64)> = ranges
            .into_iter()
            .filter(|(start, end)| start < end)
            .collect();
        all.sort_unstable();
        let mut sorted: Vec<(u64, u64)> = Vec::new();
        for (start, end) in all {
            match sorted.last_mut() {
                Some((_, last)) if start <= *last => *last = end.max(*last),
                _ => sorted.push((start, end)),
            }
        }
        Self { sorted }
    }

    /// Sum of their lengths.
    pub(crate) fn length(&self) -> u64 {
        length(&self.sorted)
    }

    /// The intervals that overlap a range, cut to it.
    pub(crate) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.sorted.partition_point(|(_, other)| *other <= start);
        let reaching = self.sorted.get(first..).unwrap_or_default().iter();
        reaching
            .take_while(move |(other, _)| *other < end)
            .map(move |(from, to)| ((*from).max(start), (*to).min(end)))
    }

    /// How much of a range they cover.
    pub(crate) fn length_within(&self, start: u64, end: u64) -> u64 {
        self.within(start, end).map(|(from, to)| to - from).sum()
    }
}

/// Sum of the lengths.
pub(crate) fn length(ranges: &[(u64, u64)]) -> u64 {
    ranges
        .iter()
        .map(|(start, end)| end.saturating_sub(*start))
        .fold(0, u64::saturating_add)
}

/// Removes from `rest` what `taken` covers, and returns its length. `rest` is sorted and disjoint,
/// and stays so.
pub(crate) fn take(rest: &mut Vec<(u64, u64)>, taken: &Intervals) -> u64 {
    if taken.sorted.is_empty() || rest.is_empty() {
        return 0;
    }
    let mut left = Vec::with_capacity(rest.len());
    let mut sum = 0;
    for (start, end) in rest.iter().copied() {
        let mut from = start;
        for (covered, until) in taken.within(start, end) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let pair = (0u64..200, 0u64..30).prop_map(|(start, length)| (start, start + length));
        prop::collection::vec(pair, 0..30)
    }

    fn timestamps(ranges: &[(u64, u64)]) -> BTreeSet<u64> {
        let all = ranges.iter();
        all.flat_map(|(start, end)| *start..*end).collect()
    }

    proptest! {
        #[test]
        fn taking_is_the_difference_of_sets(from in ranges(), what in ranges()) {
            let mut rest = Intervals::of(from.iter().copied()).sorted;
            let taken = Intervals::of(what.iter().copied());
            let sum = take(&mut rest, &taken);
            let (from, what) = (timestamps(&from), timestamps(&what));
            prop_assert_eq!(timestamps(&rest), &from - &what);
            prop_assert_eq!(sum, from.intersection(&what).count() as u64);
            prop_assert_eq!(sum + length(&rest), from.len() as u64);
        }

        #[test]
        fn length_within_equals_a_count_per_tick(of in ranges(), start in 0u64..200, length in 0u64..60) {
            let intervals = Intervals::of(of.iter().copied());
            let end = start + length;
            let counted = timestamps(&of).range(start..end).count() as u64;
            prop_assert_eq!(intervals.length_within(start, end), counted);
            prop_assert_eq!(intervals.length(), timestamps(&of).len() as u64);
        }
    }
}
