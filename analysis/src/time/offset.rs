//! The clock offset between two traces of the same events.
//!
//! Owns the search for the offset: where the differences between the timestamps of both are densest. If the
//! approximate offset is known, [`offset`] matches the timestamps there; the median difference of the matches is the
//! offset, their median absolute deviation its error. If not, [`candidates`] returns all possible offsets. The
//! timestamps to compare are chosen elsewhere: `gpu/merge.rs` and `gpu/ranks.rs`.

use std::cmp::Reverse;
use std::ops::Range;

/// Two sorted lists of times: of the trace that is moved, and of the one it is moved to.
#[derive(Debug, Default, Clone)]
pub(crate) struct TimestampPair {
    pub(crate) moved: Vec<i64>,
    pub(crate) fixed: Vec<i64>,
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

/// The offset with most coinciding timestamps, near `guess_ns`. Most of the fixed trace's must be in the moved one
/// too. `None`: fewer than `fewest` coincide, or less than half of the used ones.
pub(crate) fn offset(
    series: &[TimestampPair],
    guess_ns: i64,
    fewest: usize,
) -> Option<ClockOffset> {
    let series = thinned(series);
    let kept: usize = series.iter().map(|series| series.fixed.len()).sum();
    let differences = differences(&series, guess_ns);
    let coarse = peak(&differences, fewest.max(kept / 2))?;
    let around_ns = guess_ns.checked_add(coarse)?;
    let mut matched = matched(&series, around_ns);
    if matched.len() < fewest {
        return None;
    }
    let median = gctrace_stats::median_high(&mut matched)?;
    let mut deviations: Vec<u64> = matched.iter().map(|one| one.abs_diff(median)).collect();
    Some(ClockOffset {
        offset_ns: around_ns.checked_add(median)?,
        error_ns: gctrace_stats::median_high(&mut deviations)?,
        matches: matched.len() as u64,
    })
}

/// The distinctive timestamps of both: the ones after the longest gaps. Launches come in bursts, and any offset fits
/// within a burst; the first launch after a pause of the program is unambiguous.
fn thinned(series: &[TimestampPair]) -> Vec<TimestampPair> {
    let mut all: Vec<u64> = series.iter().flat_map(|one| gaps(&one.fixed)).collect();
    if all.len() <= KEPT {
        return series.to_vec();
    }
    let shortest = all.len() - KEPT;
    let shortest = *all.select_nth_unstable(shortest).1;
    let thin = |timestamps: &[i64]| {
        let kept = timestamps.iter().zip(gaps(timestamps));
        let kept = kept.filter_map(|(at, gap)| if gap >= shortest { Some(*at) } else { None });
        kept.collect::<Vec<i64>>()
    };
    let thin = series
        .iter()
        .map(|series| TimestampPair { moved: thin(&series.moved), fixed: thin(&series.fixed) });
    let thin: Vec<TimestampPair> = thin.collect();
    let left: usize = thin.iter().map(|series| series.fixed.len()).sum();
    // If timestamps are as regular as a clock's, none is distinctive.
    let every = left.div_ceil(KEPT).max(1);
    let sparse = thin.into_iter().map(|series| TimestampPair {
        fixed: series.fixed.into_iter().step_by(every).collect(),
        ..series
    });
    sparse.collect()
}

/// The time since the previous timestamp, for each; 0 for the first, as it is unknown.
fn gaps(timestamps: &[i64]) -> impl Iterator<Item = u64> {
    let before = timestamps.first().into_iter().chain(timestamps);
    timestamps.iter().zip(before).map(|(at, before)| at.abs_diff(*before))
}

/// Differences minus the guess, to all times in reach, sorted.
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
        let near = &moved[within(moved, at, guess_ns, reach_ns)];
        list.extend(near.iter().map(|one| difference(at, *one, guess_ns)));
    }
    list.sort_unstable();
    list
}

/// `fixed - moved - guess`; near the limits of `i64` it saturates and matches nothing.
fn difference(fixed: i64, moved: i64, guess_ns: i64) -> i64 {
    super::difference(super::difference(fixed, moved), guess_ns)
}

/// Indices of the times of `moved` that are within reach of `fixed` once they are moved.
fn within(moved: &[i64], fixed: i64, guess_ns: i64, reach_ns: i64) -> Range<usize> {
    let middle = i128::from(fixed) - i128::from(guess_ns);
    let (low, high) = (middle - i128::from(reach_ns), middle + i128::from(reach_ns));
    let start = moved.partition_point(|timestamp| i128::from(*timestamp) < low);
    let end = moved.partition_point(|timestamp| i128::from(*timestamp) <= high);
    start..end.max(start)
}

/// For each of the sorted differences: how many are at most `width_ns` larger, and the middle one
/// of these.
fn windows(differences: &[i64], width_ns: i64) -> Vec<(usize, i64)> {
    let mut end = 0;
    let windows = differences.iter().enumerate().map(|(start, first)| {
        let last = super::later(*first, width_ns);
        while matches!(differences.get(end), Some(one) if *one <= last) {
            end += 1;
        }
        (end - start, differences[start.midpoint(end)])
    });
    windows.collect()
}

/// The middle of the fullest interval of `MATCH_NS` among sorted differences; among intervals
/// nearly as full, as equal steps of a loop produce them, the one nearest to 0.
fn peak(differences: &[i64], fewest: usize) -> Option<i64> {
    let mut windows = windows(differences, MATCH_NS);
    let fullest = windows.iter().map(|(count, _)| *count).max()?;
    if fullest < fewest.max(1) {
        return None;
    }
    windows.retain(|(count, _)| *count * 10 >= fullest * 9);
    let middles = windows.iter().map(|(_, middle)| *middle);
    let nearest = middles.min_by_key(|middle| middle.unsigned_abs())?;
    // The fullest of these intervals.
    windows.retain(|(_, middle)| middle.abs_diff(nearest) <= MATCH_NS.unsigned_abs());
    let there = windows.iter().max_by_key(|(count, _)| *count);
    there.map(|(_, middle)| *middle)
}

/// Differences minus the guess, of all times from their nearest, where that is near enough.
fn matched(series: &[TimestampPair], guess_ns: i64) -> Vec<i64> {
    let of = |series: &TimestampPair| {
        let nearest = |fixed: &i64| {
            let near = &series.moved[within(&series.moved, *fixed, guess_ns, MATCH_NS)];
            let differences = near.iter().map(|one| difference(*fixed, *one, guess_ns));
            differences.min_by_key(|difference| difference.unsigned_abs())
        };
        series.fixed.iter().filter_map(nearest).collect::<Vec<i64>>()
    };
    series.iter().flat_map(of).collect()
}

/// Ends of one collective agree between ranks to within this: 0.33 ms at most in profiles of two
/// ranks of one job (HTA's test data), some 10 us being usual.
pub(crate) const TOLERANCE_NS: i64 = 1_000_000;
/// The difference of an agreement that counts half: most collectives differ by less.
const FINE_NS: i64 = 20_000;
/// Pairs of times that are tried; more are thinned out,
const PAIRS: usize = 1 << 17;
/// but to no fewer than this many of the moving timestamps of a kind: timestamps without a counterpart must not be
/// the only ones left.
const FEWEST_MOVING: usize = 64;
/// Candidates kept of each width.
const CANDIDATES: usize = 24;
/// Windows of differences that are sorted first.
const SORTED: usize = 1 << 11;

/// Candidates for an unknown offset: most differences agree with these. Sorted.
pub(crate) fn candidates<'a>(
    series: impl IntoIterator<Item = &'a TimestampPair> + Clone,
) -> Vec<i64> {
    let differences = all_differences(series);
    let mut candidates = crowded(&differences, TOLERANCE_NS);
    candidates.extend(crowded(&differences, FINE_NS));
    candidates.sort_unstable();
    candidates.dedup();
    candidates
}

/// All differences between times of the same thing, sorted; thinned out if too many.
fn all_differences<'a>(series: impl IntoIterator<Item = &'a TimestampPair> + Clone) -> Vec<i64> {
    let all = series.clone().into_iter();
    let pairs = all.fold(0, |sum: usize, one| {
        sum.saturating_add(one.fixed.len().saturating_mul(one.moved.len()))
    });
    let stride = pairs.div_ceil(PAIRS).max(1);
    let mut differences = Vec::new();
    for TimestampPair { moved, fixed } in series {
        let stride = stride.min(moved.len() / FEWEST_MOVING).max(1);
        for moved in moved.iter().step_by(stride) {
            differences.extend(fixed.iter().map(|fixed| super::difference(*fixed, *moved)));
        }
    }
    differences.sort_unstable();
    differences
}

/// The middles of the windows of twice that width with most differences in them.
fn crowded(differences: &[i64], width_ns: i64) -> Vec<i64> {
    let order = |(count, middle): &(usize, i64)| (Reverse(*count), *middle);
    let mut windows = windows(differences, 2 * width_ns);
    let mut found: Vec<i64> = Vec::new();
    // Only as many are sorted as needed, the fullest first.
    let (mut rest, mut part) = (windows.as_mut_slice(), SORTED);
    while !rest.is_empty() {
        let count = part.min(rest.len());
        if count < rest.len() {
            rest.select_nth_unstable_by_key(count, order);
        }
        let (fullest, others) = rest.split_at_mut(count);
        fullest.sort_unstable_by_key(order);
        for (_, middle) in fullest {
            if found.len() == CANDIDATES {
                return found;
            }
            let apart = |other: &i64| other.abs_diff(*middle) > width_ns.unsigned_abs();
            if found.iter().all(apart) {
                found.push(*middle);
            }
        }
        (rest, part) = (others, part * 2);
    }
    found
}

/// How much a pair of ends with this difference contributes to a candidate: 1000 for none at all, 0 from
/// [`TOLERANCE_NS`]. The narrow part distinguishes collectives that follow each other closely, the broad part counts
/// collectives that end less simultaneously.
pub(crate) fn weight(difference_ns: i64) -> u64 {
    let off = difference_ns.saturating_abs();
    if off >= TOLERANCE_NS {
        return 0;
    }
    let broad = 500 * (TOLERANCE_NS - off) / TOLERANCE_NS;
    let sharp = 500 * FINE_NS / (FINE_NS + off);
    (broad + sharp).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times some milliseconds apart, the same each time.
    fn timestamps(count: u64, apart: u64) -> Vec<i64> {
        let mut state = 1u64;
        let mut at = 5_000_000_000u64;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            at += apart / 2 + (state >> 33) % apart;
            at.cast_signed()
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn a_step_of_the_clock_is_found_whatever_else_there_is() {
        let moved = timestamps(10_000, 400_000);
        for step in [0, 3_000, -700_000_000, 999_000_000] {
            let jitter = |at: usize| [0i64, 900, -400, 2_000, 100][at % 5];
            let fixed: Vec<i64> = (0..)
                .zip(moved.iter().skip(5_000).take(1_500))
                .filter(|(at, _)| at % 7 != 0)
                .map(|(at, timestamp)| timestamp + 1_000_000 + step + jitter(at))
                .collect();
            let series = [TimestampPair { moved: moved.clone(), fixed }];
            let found = offset(&series, 1_000_000, 8).unwrap();
            assert!((found.offset_ns - 1_000_000 - step - 100).abs() <= 100, "{found:?}");
            assert!(found.error_ns <= 900 && found.matches > 250, "{found:?}");
        }
    }

    #[test]
    fn steps_that_are_alike_do_not_mislead() {
        let moved: Vec<i64> = (0..1_000).map(|step| step * 10_000_000).collect();
        let fixed = moved.iter().skip(300).take(100).map(|timestamp| timestamp + 7_000);
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
        let series =
            TimestampPair { moved: vec![i64::MIN, i64::MAX], fixed: vec![i64::MIN, i64::MAX] };
        assert_eq!(offset(&[series], i64::MIN, 3), None);
    }

    /// As if all windows were sorted at once.
    #[test]
    fn the_fullest_windows_come_first() {
        let ends = timestamps(150, 900_000);
        let all: Vec<i64> =
            ends.iter().flat_map(|one| ends.iter().map(move |other| one - other)).collect();
        for count in [0, 1, 3_000, all.len()] {
            let mut differences = all[..count].to_vec();
            differences.sort_unstable();
            for width_ns in [TOLERANCE_NS, FINE_NS] {
                let mut sorted = windows(&differences, 2 * width_ns);
                sorted.sort_by_key(|(count, middle)| (Reverse(*count), *middle));
                let mut expected: Vec<i64> = Vec::new();
                for (_, middle) in sorted {
                    let near = |other: &&i64| other.abs_diff(middle) <= width_ns.unsigned_abs();
                    if expected.iter().find(near).is_none() {
                        expected.push(middle);
                    }
                }
                expected.truncate(CANDIDATES);
                assert_eq!(crowded(&differences, width_ns), expected);
            }
        }
    }

    #[test]
    fn the_offset_is_among_the_candidates() {
        let ends: Vec<i64> = (0..200).map(|at| at * 10_000_000 + at * at * 997).collect();
        let moving = ends.iter().skip(7).map(|end| end - 3_141_592_653);
        let series = TimestampPair { moved: moving.collect(), fixed: ends };
        let candidates = candidates(&[series]);
        assert!(candidates.contains(&3_141_592_653), "{candidates:?}");
        assert!(candidates.len() <= 2 * CANDIDATES);
    }
}
