//! How long turns are: counts by length, in buckets that are known to one part in 64.

use crate::time::{add_to, beyond, sum};
use gctrace_units::{bucket_ns, length_bucket};
use std::collections::BTreeMap;

/// Counts of turns by bucket ([`bucket_ns`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lengths(BTreeMap<u32, u64>);

impl Lengths {
    pub(super) fn add(&mut self, counts: &[(u32, u64)]) {
        for (bucket, count) in counts {
            add_to(self.0.entry(*bucket).or_default(), *count);
        }
    }

    pub(super) fn append(&mut self, other: &Self) {
        for (bucket, count) in &other.0 {
            add_to(self.0.entry(*bucket).or_default(), *count);
        }
    }

    pub(super) fn count(&self) -> u64 {
        sum(self.0.values())
    }

    pub(super) fn add_one(&mut self, length_ns: u64) {
        add_to(self.0.entry(length_bucket(length_ns)).or_default(), 1);
    }

    /// One of its turns takes another time.
    pub(super) fn change(&mut self, from_ns: u64, to_ns: u64) {
        let bucket = length_bucket(from_ns);
        let Some(count) = self.0.get_mut(&bucket) else {
            return;
        };
        *count = beyond(*count, 1);
        if *count == 0 {
            self.0.remove(&bucket);
        }
        self.add_one(to_ns);
    }

    /// The longest, where the lengths of some are known exactly.
    pub(super) fn longest_ns(&self, known_ns: u64) -> u64 {
        let last = self.0.last_key_value().map_or(0, |(bucket, _)| *bucket);
        if length_bucket(known_ns) == last { known_ns } else { middle_ns(last) }
    }

    /// The length that this part of the turns does not exceed, by nearest rank.
    pub(super) fn quantile_ns(&self, part: f64) -> Option<u64> {
        let rank = (part * self.count() as f64).ceil() as u64;
        let mut so_far = 0;
        let mut counts = self.0.iter();
        let bucket = counts.find(|(_, count)| {
            add_to(&mut so_far, **count);
            so_far >= rank
        });
        bucket.map(|(bucket, _)| middle_ns(*bucket))
    }

    /// Of `time_ns`, the share in which something that arrives waits longer than `wait_ns` for the end of its turn.
    pub(super) fn late_share(&self, wait_ns: u64, time_ns: u64) -> Option<f64> {
        let of = |(bucket, count): (&u32, &u64)| {
            beyond(middle_ns(*bucket), wait_ns) as f64 * *count as f64
        };
        let late_ns: f64 = self.0.iter().map(of).sum();
        (time_ns > 0).then(|| (late_ns / time_ns as f64).min(1.0))
    }

    /// What an arrival at any moment waits for the end of the turn, at most, in this part of all moments; 0 where there
    /// is no turn in them.
    pub(super) fn lag_ns(&self, part: f64, time_ns: u64) -> Option<u64> {
        let late = |wait_ns| self.late_share(wait_ns, time_ns);
        let (mut least_ns, mut most_ns) = (0, middle_ns(*self.0.last_key_value()?.0));
        if late(0)? <= 1.0 - part {
            return Some(0);
        }
        while most_ns - least_ns > most_ns / 256 + 1 {
            let between_ns = least_ns.midpoint(most_ns);
            if late(between_ns)? > 1.0 - part {
                least_ns = between_ns;
            } else {
                most_ns = between_ns;
            }
        }
        Some(most_ns)
    }
}

fn middle_ns(bucket: u32) -> u64 {
    bucket_ns(bucket).midpoint(bucket_ns(bucket.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lengths_ns: &[u64]) -> Lengths {
        let mut lengths = Lengths::default();
        for length_ns in lengths_ns {
            lengths.add(&[(length_bucket(*length_ns), 1)]);
        }
        lengths
    }

    fn is_near(found_ns: Option<u64>, expected_ns: u64) -> bool {
        found_ns.is_some_and(|found_ns| found_ns.abs_diff(expected_ns) * 64 <= expected_ns)
    }

    #[test]
    fn quantiles_are_those_of_the_turns() {
        let lengths_ns: Vec<u64> = (1..=1000).map(|ms| ms * 1_000_000).collect();
        let lengths = of(&lengths_ns);
        assert_eq!(lengths.count(), 1000);
        assert!(is_near(lengths.quantile_ns(0.5), 500_000_000));
        assert!(is_near(lengths.quantile_ns(0.99), 990_000_000));
        assert!(Lengths::default().quantile_ns(0.5).is_none());
    }

    /// One turn of 100 ms in a second: an arrival waits over 50 ms in 5 % of the time.
    #[test]
    fn arrivals_wait_for_the_rest_of_a_turn() {
        let lengths = of(&[100_000_000]);
        let share = lengths.late_share(50_000_000, 1_000_000_000).unwrap();
        assert!((share - 0.05).abs() < 0.001, "{share}");
        assert!(is_near(lengths.lag_ns(0.95, 1_000_000_000), 50_000_000));
        assert_eq!(lengths.lag_ns(0.5, 1_000_000_000), Some(0), "no turn, no wait");
        assert_eq!(lengths.late_share(0, 0), None);
    }

    #[test]
    fn a_turn_without_its_collections_is_shorter() {
        let mut lengths = of(&[1_000_000, 90_000_000]);
        lengths.change(90_000_000, 5_000_000);
        assert_eq!(lengths.count(), 2);
        assert_eq!(lengths.longest_ns(5_000_000), 5_000_000);
        assert!(is_near(Some(lengths.longest_ns(0)), 5_000_000));
    }
}
