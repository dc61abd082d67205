//! The last minute in buckets of 100 ms.
//!
//! Divides an interval into buckets, and decides what is too old. Memory is fixed.

use crate::bounded::WINDOW_NS;
use std::ops::AddAssign;

/// Length of a bucket.
pub(super) const BUCKET_NS: u64 = 100_000_000;
/// Number of buckets.
const BUCKETS: u64 = WINDOW_NS / BUCKET_NS;

/// One value for each of the last buckets. Nothing is allocated before the first.
#[derive(Clone, Debug, Default)]
pub(super) struct BucketRing<T> {
    /// The first bucket that was ever used.
    oldest: u64,
    newest: u64,
    slots: Vec<T>,
}

impl<T: Copy + Default> BucketRing<T> {
    /// The value of a bucket; `None` if it is too old. A newest bucket more than twice the covered
    /// time ahead cannot be on the same clock as this one: the ring then starts anew, so that a
    /// single wrong timestamp cannot block it.
    pub(super) fn slot(&mut self, bucket: u64) -> Option<&mut T> {
        if self.slots.is_empty() {
            self.slots = vec![T::default(); index(BUCKETS)];
            (self.oldest, self.newest) = (bucket, bucket);
        }
        self.oldest = self.oldest.min(bucket);
        if bucket > self.newest {
            self.advance(bucket);
        } else if self.newest - bucket >= BUCKETS {
            if self.newest - bucket < 2 * BUCKETS {
                return None;
            }
            self.slots.fill(T::default());
            self.newest = bucket;
        }
        self.slots.get_mut(place(bucket))
    }

    fn advance(&mut self, bucket: u64) {
        if bucket - self.newest >= BUCKETS {
            self.slots.fill(T::default());
        } else {
            for passed in self.newest + 1..=bucket {
                if let Some(slot) = self.slots.get_mut(place(passed)) {
                    *slot = T::default();
                }
            }
        }
        self.newest = bucket;
    }

    /// The buckets from `from` (inclusive) to `until` (exclusive), and their values, as far as they
    /// are kept.
    pub(super) fn within(&self, from: u64, until: u64) -> impl Iterator<Item = (u64, T)> {
        let end = self.newest.saturating_add(1);
        let from = from.max(self.oldest).max(end.saturating_sub(BUCKETS));
        let until = if self.slots.is_empty() { from } else { until.min(end) };
        let slots = &self.slots;
        (from..until).filter_map(move |bucket| Some((bucket, *slots.get(place(bucket))?)))
    }

    /// All buckets and their values.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, T)> {
        self.within(0, u64::MAX)
    }
}

impl<T: Copy + Default + AddAssign + TryFrom<u64>> BucketRing<T>
where
    u64: From<T>,
{
    /// Adds an interval to the buckets that it covers. A `u32` has room for intervals that do not
    /// overlap.
    pub(super) fn cover(&mut self, start_ns: u64, end_ns: u64) {
        for (bucket, ns) in buckets(start_ns, end_ns) {
            let ns = T::try_from(ns);
            debug_assert!(ns.is_ok(), "part of a bucket");
            if let (Some(slot), Ok(ns)) = (self.slot(bucket), ns) {
                *slot += ns;
            }
        }
    }

    /// Sum over the buckets of a time range.
    pub(super) fn sum(&self, from: u64, until: u64) -> u64 {
        let values = self.within(from, until);
        values.map(|(_, value)| u64::from(value)).sum()
    }
}

fn place(bucket: u64) -> usize {
    index(bucket % BUCKETS)
}

/// A number of buckets, or of something longer, as an index.
#[expect(clippy::expect_used, reason = "gctrace is for 64-bit machines")]
pub(super) fn index(count: u64) -> usize {
    usize::try_from(count).expect("invariant: usize has 64 bits")
}

/// The bucket of a time.
pub(super) fn bucket(at_ns: u64) -> u64 {
    at_ns / BUCKET_NS
}

/// The buckets that an interval covers, and how much of it is in each. Only the end of an interval
/// that is longer than the covered time.
fn buckets(start_ns: u64, end_ns: u64) -> impl Iterator<Item = (u64, u64)> {
    let start_ns = start_ns.max(crate::time::beyond(end_ns, WINDOW_NS));
    let behind = end_ns.div_ceil(BUCKET_NS);
    let first = if start_ns < end_ns { bucket(start_ns) } else { behind };
    (first..behind).map(move |bucket| {
        let from = start_ns.max(bucket * BUCKET_NS);
        let until = end_ns.min(crate::time::times(bucket + 1, BUCKET_NS));
        (bucket, until - from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const FAR: u64 = WINDOW_NS * 3;

    proptest! {
        #[test]
        fn intervals_are_divided_into_buckets(
            intervals in prop::collection::vec((0..FAR, 0..WINDOW_NS * 2), 0..40)
        ) {
            let mut ring: BucketRing<u64> = BucketRing::default();
            let mut naive: BTreeMap<u64, u64> = BTreeMap::new();
            let mut newest = None;
            // By end, as pauses arrive.
            let mut intervals: Vec<_> = intervals.into_iter().map(|(b, l)| (b, b + l)).collect();
            intervals.sort_by_key(|(_, end)| *end);
            for (start, end) in intervals {
                ring.cover(start, end);
                if start == end {
                    continue;
                }
                newest = Some((end - 1) / BUCKET_NS);
                for bucket in start / BUCKET_NS..=(end - 1) / BUCKET_NS {
                    let from = start.max(bucket * BUCKET_NS);
                    *naive.entry(bucket).or_default() += end.min((bucket + 1) * BUCKET_NS) - from;
                }
            }
            let Some(newest) = newest else { return Ok(()) };
            // The last bucket of a full minute may have been left out of an interval that was cut.
            for bucket in (newest + 2).saturating_sub(BUCKETS)..=newest {
                prop_assert_eq!(ring.sum(bucket, bucket + 1), naive.get(&bucket).copied().unwrap_or(0));
            }
            prop_assert_eq!(ring.sum(newest + 1, u64::MAX), 0);
        }

        #[test]
        fn no_time_is_too_wild(times in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20)) {
            let mut ring: BucketRing<u64> = BucketRing::default();
            for (start, end) in times {
                ring.cover(start, end);
                ring.slot(bucket(start));
            }
            let _ = ring.all().count();
        }
    }

    #[test]
    fn a_time_of_another_clock_does_not_stop_the_ring() {
        let mut ring: BucketRing<u64> = BucketRing::default();
        ring.cover(0, 5);
        ring.cover(u64::MAX - 10, u64::MAX);
        ring.cover(100, 107);
        assert_eq!(ring.sum(0, 1), 7);
    }
}
