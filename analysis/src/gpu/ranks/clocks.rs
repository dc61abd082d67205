//! The offset between two clocks, from timestamps of the same events on both.
//!
//! Owns the candidates and the arithmetic of medians; `draft.rs` selects the one that fits.

use std::collections::HashMap;

/// Ends of one collective agree between ranks to within this: 0.33 ms at most in profiles of two
/// ranks of one job (HTA's test data), some 10 us being usual.
pub(super) const TOLERANCE_NS: i64 = 1_000_000;
/// A difference at which an agreement counts half: that of most collectives is smaller.
const FINE_NS: i64 = 20_000;
/// Pairs of times that are tried; more are thinned out,
const PAIRS: usize = 1 << 17;
/// but to no fewer than this many of the moving timestamps of a kind: those without a counterpart
/// must not be all that remains.
const FEWEST_MOVING: usize = 64;
/// Candidates kept of each width.
const CANDIDATES: usize = 24;

/// Times by what they are times of, sorted.
pub(super) type Moments = HashMap<u32, Vec<i64>>;

/// What could be added to `moving` to get `fixed`: where most differences agree, best first.
pub(super) fn candidates(fixed: &Moments, moving: &Moments) -> Vec<i64> {
    let differences = differences(fixed, moving);
    let mut candidates = crowded(&differences, TOLERANCE_NS);
    candidates.extend(crowded(&differences, FINE_NS));
    candidates.sort_unstable();
    candidates.dedup();
    candidates
}

/// All differences between times of the same thing, sorted; thinned out if too many.
fn differences(fixed: &Moments, moving: &Moments) -> Vec<i64> {
    let both = || {
        moving.iter().filter_map(|(label, moving)| {
            let fixed = fixed.get(label)?;
            Some((fixed.as_slice(), moving.as_slice()))
        })
    };
    let pairs: usize = both()
        .map(|(fixed, moving)| fixed.len().saturating_mul(moving.len()))
        .fold(0, usize::saturating_add);
    let stride = pairs.div_ceil(PAIRS).max(1);
    let mut differences = Vec::new();
    for (fixed, moving) in both() {
        let stride = stride.min(moving.len() / FEWEST_MOVING).max(1);
        for moving in moving.iter().step_by(stride) {
            differences.extend(fixed.iter().map(|fixed| fixed.saturating_sub(*moving)));
        }
    }
    differences.sort_unstable();
    differences
}

/// The middles of the windows of twice that width with most differences in them.
fn crowded(differences: &[i64], width_ns: i64) -> Vec<i64> {
    let mut windows: Vec<(usize, i64)> = Vec::new();
    let mut end = 0;
    for (start, first) in differences.iter().enumerate() {
        let limit = first.saturating_add(2 * width_ns);
        while differences.get(end).is_some_and(|last| *last <= limit) {
            end += 1;
        }
        let middle = differences.get(start.midpoint(end)).unwrap_or(first);
        windows.push((end - start, *middle));
    }
    windows.sort_by_key(|(count, middle)| (std::cmp::Reverse(*count), *middle));
    let mut found: Vec<i64> = Vec::new();
    for (_, middle) in windows {
        if found.len() == CANDIDATES {
            break;
        }
        if found
            .iter()
            .all(|other| other.abs_diff(middle) > width_ns.unsigned_abs())
        {
            found.push(middle);
        }
    }
    found
}

/// How much a pair of ends with this difference contributes to a candidate: 1000 for none at all, 0
/// from [`TOLERANCE_NS`]. The narrow part distinguishes collectives that follow each other closely,
/// the broad part counts those that end less simultaneously.
pub(super) fn weight(difference_ns: i64) -> u64 {
    let off = difference_ns.saturating_abs();
    if off >= TOLERANCE_NS {
        return 0;
    }
    let broad = 500 * (TOLERANCE_NS - off) / TOLERANCE_NS;
    let sharp = 500 * FINE_NS / (FINE_NS + off);
    (broad + sharp).unsigned_abs()
}

/// The median; of an even number of values the lower one. 0 without values.
pub(super) fn median(values: &mut [i64]) -> i64 {
    if values.is_empty() {
        return 0;
    }
    let middle = (values.len() - 1) / 2;
    *values.select_nth_unstable(middle).1
}

/// Median distance from a center.
pub(super) fn spread(values: &[i64], center: i64) -> u64 {
    let distances = values.iter().map(|value| value.abs_diff(center));
    let mut distances: Vec<i64> = distances.map(u64::cast_signed).collect();
    median(&mut distances).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles() {
        assert_eq!(median(&mut []), 0);
        assert_eq!(median(&mut [3, 1, 2]), 2);
        assert_eq!(median(&mut [4, 3, 1, 2]), 2);
        assert_eq!(spread(&[1, 2, 9], 2), 1);
    }

    #[test]
    fn the_offset_is_among_the_candidates() {
        let ends: Vec<i64> = (0..200).map(|at| at * 10_000_000 + at * at * 997).collect();
        let moving = ends.iter().skip(7).map(|end| end - 3_141_592_653).collect();
        let candidates = candidates(&HashMap::from([(1, ends)]), &HashMap::from([(1, moving)]));
        assert!(candidates.contains(&3_141_592_653), "{candidates:?}");
        assert!(candidates.len() <= 2 * CANDIDATES);
    }
}
