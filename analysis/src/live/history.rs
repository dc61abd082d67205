//! The pauses of one process, or of several: sums with a histogram of their lengths, and the last minute.

use super::ring::{BUCKET_NS, BucketRing, bucket, index};
use super::snapshot::{CollectionCounts, GENERATIONS, Histogram, PAUSE_CLASSES_NS};
use crate::pauses::{PauseSums, REASONS, generation_index};
use crate::time::add_to;
use gctrace_event::Pause;

/// Buckets of a second.
const SECOND: u64 = 1_000_000_000 / BUCKET_NS;

/// Sums over pauses, and how many were how long.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassedSums {
    sums: PauseSums,
    histogram: [Histogram; GENERATIONS],
}

impl ClassedSums {
    fn add(&mut self, pause: &Pause) {
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
            outcomes: sums.outcomes,
        }
    }
}

/// Index of the class of a pause: the first with a bound that is not below it.
fn class(duration_ns: u64) -> usize {
    PAUSE_CLASSES_NS.partition_point(|bound| *bound < duration_ns)
}

/// Sums over pauses, and their times by bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct PauseHistory {
    pub(super) sums: ClassedSums,
    /// Time in pauses, added.
    pause_ns: BucketRing<u64>,
    /// Time with at least one pause running, in ns.
    paused_ns: BucketRing<u32>,
    /// Pauses that ended, by generation.
    ended: BucketRing<[u32; GENERATIONS]>,
}

/// Sums over some buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BucketSums {
    pub(super) pauses: [u64; GENERATIONS],
    pub(super) pause_ns: u64,
    pub(super) paused_ns: u64,
}

impl BucketSums {
    /// Adds the history of another process.
    pub(super) fn merge(&mut self, other: &Self) {
        for (sum, count) in self.pauses.iter_mut().zip(other.pauses) {
            *sum += count;
        }
        add_to(&mut self.pause_ns, other.pause_ns);
        add_to(&mut self.paused_ns, other.paused_ns);
    }
}

impl PauseHistory {
    /// Adds a pause.
    pub(super) fn add(&mut self, pause: &Pause) {
        self.sums.add(pause);
        self.pause_ns.cover(pause.start_ns, pause.end_ns);
        let ended = self.ended.slot(bucket(pause.end_ns));
        if let Some(by_generation) = ended {
            by_generation[generation_index(pause.generation)] += 1;
        }
    }

    /// Adds time with a pause running and no other.
    pub(super) fn add_paused(&mut self, start_ns: u64, end_ns: u64) {
        self.paused_ns.cover(start_ns, end_ns);
    }

    /// Adds the pauses of another process; the time with at least one running is then unknown.
    pub(super) fn merge(&mut self, other: &Self) {
        self.sums.merge(&other.sums);
        for (bucket, ns) in other.pause_ns.all().filter(|(_, ns)| *ns > 0) {
            if let Some(sum) = self.pause_ns.slot(bucket) {
                add_to(sum, ns);
            }
        }
        for (bucket, counts) in other.ended.all() {
            if counts.iter().all(|count| *count == 0) {
                continue;
            }
            for (sum, count) in self.ended.slot(bucket).into_iter().flatten().zip(counts) {
                *sum += count;
            }
        }
    }

    /// Sums over the buckets from `from` (inclusive) to `until` (exclusive).
    pub(super) fn bucket_sums(&self, from: u64, until: u64) -> BucketSums {
        let mut pauses = [0u64; GENERATIONS];
        for (_, counts) in self.ended.within(from, until) {
            for (sum, count) in pauses.iter_mut().zip(counts) {
                *sum += u64::from(count);
            }
        }
        BucketSums {
            pauses,
            pause_ns: self.pause_ns.sum(from, until),
            paused_ns: self.paused_ns.sum(from, until),
        }
    }

    /// Time in pauses of each of the last `seconds` seconds before the bucket `until`.
    pub(super) fn by_second(&self, until: u64, seconds: u64) -> Vec<u64> {
        let back = seconds.min(until / SECOND);
        let from = until - back * SECOND;
        let mut sums = vec![0u64; index(back)];
        for (bucket, ns) in self.pause_ns.within(from, until) {
            sums[index((bucket - from) / SECOND)] += ns;
        }
        sums
    }

    /// Time with at least one pause running, in an interval of buckets, in ns.
    pub(super) fn paused_ns(&self, from: u64, until: u64) -> u64 {
        self.paused_ns.sum(from, until)
    }

    /// The same by bucket; buckets that are not kept are left out.
    pub(super) fn paused_by_bucket(
        &self,
        from: u64,
        until: u64,
    ) -> impl Iterator<Item = (u64, u32)> {
        self.paused_ns.within(from, until)
    }
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
