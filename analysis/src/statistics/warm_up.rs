//! Where the slow first steps of a program end.

use fastrand::Rng;

use super::{float, groups, mean};

/// Steps dropped in any case.
pub const FEWEST: usize = 50;
/// More values than this are first averaged in this many groups of neighbors.
const GROUPS: usize = 512;
/// Orders drawn per test: a change is one if fewer than 1 % of them have as large a sum.
const DRAWN: usize = 499;
/// Changes looked for: a warm-up may have several.
const ROUNDS: u32 = 32;
/// The later steps are divided into at least this many parts, which show how steady they are.
const LATER_PARTS: usize = 4;
/// Any number: it makes reports repeatable.
const SEED: u64 = 0xd134_2543_de82_ef95;

/// How many of the first values to drop: [`FEWEST`], and then as long as the rest begins with a
/// part that differs from what follows; at most half of the values.
///
/// A change is found by the cumulative sum of the deviations from the mean (E. S. Page, Continuous
/// Inspection Schemes, Biometrika 41, 1954), and is one if few of the random orders of the same
/// values have so large a sum (W. A. Taylor, Change-Point Analysis, 2000). What comes before is
/// warm-up if it also differs from all later parts by more than these do from each other: the
/// speed of machines changes all the time, and steps grow with a program's data. A change in the second half is none of the warm-up.
#[must_use]
pub fn warm_up(values: &[f64]) -> usize {
    let most = values.len() / 2;
    let mut dropped = FEWEST.min(most);
    let mut rng = Rng::with_seed(SEED);
    let mut end = values.len();
    for _ in 0..ROUNDS {
        let rest = values.get(dropped..end).unwrap_or_default();
        match change(rest, &mut rng) {
            Some(until) if dropped + until <= most => {
                if !begins_unlike(values.get(dropped..).unwrap_or_default(), until) {
                    break;
                }
                (dropped, end) = (dropped + until, values.len());
            }
            Some(until) => end = dropped + until,
            None => break,
        }
    }
    dropped
}

/// Number of values before the change, at least 1.
fn change(values: &[f64], rng: &mut Rng) -> Option<usize> {
    let mut groups = groups(values, GROUPS);
    let (at, sum) = largest_sum(&groups)?;
    let as_large = (0..DRAWN).filter(|_| {
        rng.shuffle(&mut groups);
        largest_sum(&groups).is_some_and(|(_, drawn)| drawn >= sum)
    });
    let p_value = (float(as_large.count()) + 1.0) / (float(DRAWN) + 1.0);
    (p_value < 0.01).then(|| at * values.len() / groups.len())
}

/// Whether the mean of the first `count` values is farther from the means of all later parts than
/// these are from each other.
fn begins_unlike(values: &[f64], count: usize) -> bool {
    let (first, rest) = values.split_at(count.min(values.len()));
    let length = count.min(rest.len() / LATER_PARTS).max(1);
    let parts: Vec<f64> = rest.chunks_exact(length).filter_map(mean).collect();
    let lowest = parts.iter().copied().min_by(f64::total_cmp);
    let highest = parts.iter().copied().max_by(f64::total_cmp);
    let (Some(first), Some(lowest), Some(highest)) = (mean(first), lowest, highest) else {
        return false;
    };
    (lowest - first).max(first - highest) > highest - lowest
}

/// The number of values up to the largest cumulative sum, and this sum without its sign.
fn largest_sum(values: &[f64]) -> Option<(usize, f64)> {
    let mean = mean(values)?;
    let mut sum = 0.0;
    let sums = values.iter().enumerate().map(|(at, value)| {
        sum += value - mean;
        (at + 1, f64::abs(sum))
    });
    sums.max_by(|one, other| one.1.total_cmp(&other.1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use fastrand::Rng;

    fn noise(seed: u64, count: usize) -> Vec<f64> {
        let mut rng = Rng::with_seed(seed);
        (0..count).map(|_| 10.0 - f64::ln(1.0 - rng.f64())).collect()
    }

    /// 200 steps three times as long, then 2,000: found within a few steps.
    #[test]
    fn a_change_is_found() {
        for seed in 0..10 {
            let mut values = noise(seed, 2_200);
            values[..200].iter_mut().for_each(|value| *value *= 3.0);
            let found = warm_up(&values);
            assert!((195..=260).contains(&found), "seed {seed}: {found}");
        }
    }

    /// Rare long pauses are no change.
    #[test]
    fn steady_values_lose_the_first_only() {
        let mut more = 0;
        for seed in 0..20 {
            let mut values = noise(seed, 1_500);
            values.iter_mut().step_by(97).for_each(|value| *value += 200.0);
            more += u32::from(warm_up(&values) > FEWEST);
        }
        // A change is claimed in 1 of 100 by chance.
        assert!(more <= 3, "{more} of 20");
    }

    /// Neither a steady decline nor a late change is warm-up.
    #[test]
    fn never_more_than_half() {
        let declining: Vec<f64> = (0..1_000u32).map(|at| 2e3 - f64::from(at)).collect();
        assert_eq!(warm_up(&declining), FEWEST);
        let mut late = noise(5, 1_000);
        late[800..].iter_mut().for_each(|value| *value *= 2.0);
        assert_eq!(warm_up(&late), FEWEST);
        assert_eq!(warm_up(&[]), 0);
        assert_eq!(warm_up(&[1.0; 60]), 30);
    }

    /// A machine that is faster and slower by turns does not warm up.
    #[test]
    fn waves_are_no_warm_up() {
        for seed in 0..10 {
            let mut values = noise(seed, 2_000);
            for (at, value) in (0_u32..).zip(&mut values) {
                *value += 2.0 * (f64::from(at) / 50.0).sin();
            }
            assert!(warm_up(&values) < 150, "seed {seed}: {}", warm_up(&values));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(21)))]

        #[test]
        fn bounds_and_unit(values in prop::collection::vec(0.0..1e6, 0..900), scale in 0.5..2.0) {
            let found = warm_up(&values);
            prop_assert!(found >= FEWEST.min(values.len() / 2) && found <= values.len() / 2);
            let scaled: Vec<f64> = values.iter().map(|value| value * scale).collect();
            prop_assert_eq!(warm_up(&scaled), found);
        }
    }
}
