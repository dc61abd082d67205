//! The clock offset between two traces of the same events.
//!
//! Owns the search for the offset: timestamps of both traces are matched; the median difference of
//! the matches is the offset, their median absolute deviation its error. The timestamps are chosen
//! in `merge.rs`.

/// Two sorted lists of times: of the trace that is moved, and of the one it is moved to. Most of
/// the second's are in the first too.
#[derive(Debug, Default, Clone)]
pub(crate) struct TimestampPair {
    pub(crate) moved: Vec<u64>,
    pub(crate) fixed: Vec<u64>,
}

/// An offset that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockOffset {
    /// Add it to a time of the moved trace.
    pub(crate) offset_ns: i64,
    /// Median absolute deviation of the matches from it.
    pub(crate) error_ns: u64,
    /// Times that were matched.
    pub(crate) matches: u64,
}

/// How far from the first guess the offset is searched: the guess is wrong only if a clock was
/// stepped in between, by NTP or by hand.
const REACH_NS: i64 = 1_000_000_000;
/// Two probes on one function, or one collection, record it within this many ns of each other: an
/// interrupt between them takes some microseconds, an uprobe one.
pub(crate) const MATCH_NS: i64 = 50_000;
/// Number of timestamps of the fixed trace that are used. A false offset fits few of them.
const KEPT: usize = 512;
/// Number of differences that are used: 8 MB.
const DIFFERENCES: usize = 1 << 20;

/// The offset at which most timestamps coincide, near `guess_ns`. `None`: fewer than `fewest` do,
/// or less than half of those used.
pub(crate) fn offset(
    series: &[TimestampPair],
    guess_ns: i64,
    fewest: usize,
) -> Option<ClockOffset> {
    let series = thinned(series);
    let kept: usize = series.iter().map(|series| series.fixed.len()).sum();
    let mut differences = differences(&series, guess_ns);
    differences.sort_unstable();
    let coarse = peak(&differences, fewest.max(kept / 2))?;
    let around_ns = guess_ns.checked_add(coarse)?;
    let mut matched = matched(&series, around_ns);
    if matched.len() < fewest {
        return None;
    }
    let median = median(&mut matched)?;
    let mut deviations: Vec<i64> = matched.iter().map(|one| (one - median).abs()).collect();
    Some(ClockOffset {
        offset_ns: around_ns.checked_add(median)?,
        error_ns: self::median(&mut deviations)?.unsigned_abs(),
        matches: matched.len() as u64,
    })
}

/// The distinctive timestamps of both: those after the longest gaps. Launches come in bursts, in
/// which any offset fits; the first after a pause of the program is unambiguous.
fn thinned(series: &[TimestampPair]) -> Vec<TimestampPair> {
    let mut all: Vec<u64> = series.iter().flat_map(|one| gaps(&one.fixed)).collect();
    if all.len() <= KEPT {
        return series.to_vec();
    }
    let shortest = all.len() - KEPT;
    let shortest = *all.select_nth_unstable(shortest).1;
    let thin = |timestamps: &[u64]| {
        let kept = timestamps.iter().zip(gaps(timestamps));
        let kept = kept.filter(|(_, gap)| *gap >= shortest);
        kept.map(|(timestamp, _)| *timestamp).collect::<Vec<u64>>()
    };
    let thin = series.iter().map(|series| TimestampPair {
        moved: thin(&series.moved),
        fixed: thin(&series.fixed),
    });
    let thin: Vec<TimestampPair> = thin.collect();
    let left: usize = thin.iter().map(|series| series.fixed.len()).sum();
    // Of timestamps as regular as a clock's, none is distinctive.
    let every = left.div_ceil(KEPT).max(1);
    let sparse = thin.into_iter().map(|series| TimestampPair {
        fixed: series.fixed.into_iter().step_by(every).collect(),
        ..series
    });
    sparse.collect()
}

/// The time since the previous timestamp, for each; 0 for the first, as it is unknown.
fn gaps(timestamps: &[u64]) -> impl Iterator<Item = u64> {
    let before = timestamps.first().into_iter().chain(timestamps);
    timestamps
        .iter()
        .zip(before)
        .map(|(at, before)| at.saturating_sub(*before))
}

/// Differences minus the guess, to all times in reach.
fn differences(series: &[TimestampPair], guess_ns: i64) -> Vec<i64> {
    let fixed = || {
        let each = series.iter();
        each.flat_map(|series| series.fixed.iter().map(|at| (*at, series.moved.as_slice())))
    };
    let mut reach_ns = REACH_NS;
    loop {
        let near = |(at, moved)| within(moved, at, guess_ns, reach_ns).len();
        let count: usize = fixed().map(near).sum();
        if count <= DIFFERENCES || reach_ns <= MATCH_NS {
            break;
        }
        reach_ns /= 2;
    }
    let mut list = Vec::new();
    for (at, moved) in fixed() {
        let near = moved.get(within(moved, at, guess_ns, reach_ns));
        let near = near.unwrap_or_default().iter();
        list.extend(near.filter_map(|one| difference(at, *one, guess_ns)));
    }
    list
}

/// `fixed - moved - guess`, unless it is absurd.
fn difference(fixed: u64, moved: u64, guess_ns: i64) -> Option<i64> {
    i64::try_from(i128::from(fixed) - i128::from(moved) - i128::from(guess_ns)).ok()
}

/// Indices of the times of `moved` that are within reach of `fixed` once they are moved.
fn within(moved: &[u64], fixed: u64, guess_ns: i64, reach_ns: i64) -> std::ops::Range<usize> {
    let middle = i128::from(fixed) - i128::from(guess_ns);
    let (low, high) = (middle - i128::from(reach_ns), middle + i128::from(reach_ns));
    let start = moved.partition_point(|timestamp| i128::from(*timestamp) < low);
    let end = moved.partition_point(|timestamp| i128::from(*timestamp) <= high);
    start..end.max(start)
}

/// The middle of the fullest interval of `MATCH_NS` among sorted differences; among intervals
/// nearly as full, as equal steps of a loop produce them, the one nearest to 0.
fn peak(differences: &[i64], fewest: usize) -> Option<i64> {
    let mut end = 0;
    let counts = differences.iter().enumerate().map(|(start, first)| {
        let last = first.saturating_add(MATCH_NS);
        while differences.get(end).is_some_and(|one| *one <= last) {
            end += 1;
        }
        (end - start, start)
    });
    let counts: Vec<(usize, usize)> = counts.collect();
    let fullest = counts.iter().map(|(count, _)| *count).max()?;
    if fullest < fewest.max(1) {
        return None;
    }
    let middle = |(count, start): &(usize, usize)| differences.get(start + count / 2).copied();
    let full = counts
        .iter()
        .filter(|(count, _)| *count * 10 >= fullest * 9);
    let nearest = full
        .clone()
        .filter_map(middle)
        .min_by_key(|middle| middle.abs())?;
    // The fullest of these intervals.
    let there = full.filter(|interval| {
        middle(interval).is_some_and(|middle| middle.abs_diff(nearest) <= MATCH_NS.unsigned_abs())
    });
    there.max_by_key(|(count, _)| *count).and_then(middle)
}

/// Differences minus the guess, of all times from their nearest, where that is near enough.
fn matched(series: &[TimestampPair], guess_ns: i64) -> Vec<i64> {
    let of = |series: &TimestampPair| {
        let nearest = |fixed: &u64| {
            let range = within(&series.moved, *fixed, guess_ns, MATCH_NS);
            let near = series.moved.get(range).unwrap_or_default();
            let differences = near
                .iter()
                .filter_map(|one| difference(*fixed, *one, guess_ns));
            differences.min_by_key(|difference| difference.abs())
        };
        series
            .fixed
            .iter()
            .filter_map(nearest)
            .collect::<Vec<i64>>()
    };
    series.iter().flat_map(of).collect()
}

fn median(values: &mut [i64]) -> Option<i64> {
    let middle = values.len() / 2;
    (middle < values.len()).then(|| *values.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times some milliseconds apart, the same each time.
    fn timestamps(count: u64, apart: u64) -> Vec<u64> {
        let mut state = 1u64;
        let mut at = 5_000_000_000;
        let next = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            at += apart / 2 + (state >> 33) % apart;
            at
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn a_step_of_the_clock_is_found_whatever_else_there_is() {
        let moved = timestamps(10_000, 400_000);
        for step in [0, 3_000, -700_000_000, 999_000_000] {
            let jitter = |at: usize| [0i64, 900, -400, 2_000, 100][at % 5];
            let fixed: Vec<u64> = (0..)
                .zip(moved.iter().skip(5_000).take(1_500))
                .filter(|(at, _)| at % 7 != 0)
                .map(|(at, timestamp)| {
                    timestamp.saturating_add_signed(1_000_000 + step + jitter(at))
                })
                .collect();
            let series = [TimestampPair {
                moved: moved.clone(),
                fixed,
            }];
            let found = offset(&series, 1_000_000, 8).unwrap();
            assert!(
                (found.offset_ns - 1_000_000 - step - 100).abs() <= 100,
                "{found:?}"
            );
            assert!(found.error_ns <= 900 && found.matches > 250, "{found:?}");
        }
    }

    #[test]
    fn steps_that_are_alike_do_not_mislead() {
        let moved: Vec<u64> = (0..1_000).map(|step| step * 10_000_000).collect();
        let fixed = moved
            .iter()
            .skip(300)
            .take(100)
            .map(|timestamp| timestamp + 7_000);
        let fixed = fixed.collect();
        let found = offset(&[TimestampPair { moved, fixed }], 0, 8).unwrap();
        assert_eq!((found.offset_ns, found.error_ns), (7_000, 0));
    }

    #[test]
    fn unrelated_timestamps_do_not_match() {
        let moved = timestamps(1_000, 3_000_000);
        let fixed = timestamps(2_000, 700_000).split_off(1_000);
        assert_eq!(offset(&[TimestampPair { moved, fixed }], 0, 8), None);
        assert_eq!(offset(&[], 0, 3), None);
        let series = TimestampPair {
            moved: vec![u64::MAX, 0],
            fixed: vec![0, u64::MAX],
        };
        assert_eq!(offset(&[series], i64::MIN, 3), None);
    }
}
