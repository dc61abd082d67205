//! How far a mean, or a difference of means, may be off by chance.
//!
//! The bootstrap with the percentile method (B. Efron and R. J. Tibshirani, An Introduction to the
//! Bootstrap, 1993, chapter 13), with its ends moved outwards for small samples, as Student's
//! distribution has them (T. C. Hesterberg, What Teachers Should Know About the Bootstrap, The
//! American Statistician 69, 2015, section 5.4.1). The generator is seeded, so that a report is the
//! same every time.

use super::median;
use fastrand::Rng;

use super::{Estimate, count, groups, mean, quantiles};

/// Resamples. Efron and Tibshirani (section 13.3) ask for at least 1,000 for an interval.
pub const RESAMPLES: u32 = 10_000;
/// Fewer values than this do not show their spread.
pub const FEWEST: usize = 3;
/// Fewer runs than this do not show the noise between runs.
pub const SEVERAL: usize = 2;
/// More values than this are first averaged in this many groups of neighbors.
const GROUPS: usize = 256;
/// Any number: it makes reports repeatable.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// Upper end of the interval that contains 95 %.
const UPPER: f64 = 0.975;

/// Mean of `these` minus mean of `those`; `None` if either has fewer than [`FEWEST`].
pub fn difference(these: &[f64], those: &[f64]) -> Option<Estimate> {
    let least = these.len().min(those.len());
    if least < FEWEST {
        return None;
    }
    let value = mean(these)? - mean(those)?;
    let (these, those) = (groups(these, GROUPS), groups(those, GROUPS));
    Some(estimate(value, least, |rng| resampled_mean(&these, rng) - resampled_mean(&those, rng)))
}

/// Median of `these` minus median of `those`; `None` if either has fewer than [`FEWEST`]. For
/// typical lengths only: medians drop the rare long pauses.
pub fn median_difference(these: &[f64], those: &[f64]) -> Option<Estimate> {
    let least = these.len().min(those.len());
    if least < FEWEST {
        return None;
    }
    let [these, those] = [these, those].map(|values| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
    });
    let value = median(&these)? - median(&those)?;
    Some(estimate(value, least, |rng| {
        resampled_median(&these, rng) - resampled_median(&those, rng)
    }))
}

/// The median of a resample is the value at the middle of as many random places. With more than [`GROUPS`] places, the
/// middle one is normally distributed around the middle, with a standard deviation of half the root of their number (H.
/// A. David and H. N. Nagaraja, Order Statistics, 2003, section 10.2).
fn resampled_median(sorted: &[f64], rng: &mut Rng) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = if sorted.len() > GROUPS {
        let normal = (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0;
        let spread = count(sorted).sqrt() / 2.0;
        (count(sorted) / 2.0 + normal * spread) as usize
    } else {
        let mut places: Vec<usize> = sorted.iter().map(|_| rng.usize(..=last)).collect();
        let middle = places.len() / 2;
        *places.select_nth_unstable(middle).1
    };
    sorted.get(place.min(last)).copied().unwrap_or_default()
}

/// `combine` of the means of two sides (their difference, or their ratio), each side several runs,
/// each run the values of its blocks; the mean of a side is the mean of its runs' means. Resamples
/// the runs, and within each the blocks (A. C. Davison and D. V. Hinkley, Bootstrap Methods and
/// Their Application, 1997, section 3.8): a little too wide rather than too narrow.
///
/// `None` if a side has fewer than [`SEVERAL`] runs, or a run fewer than [`FEWEST`] blocks.
pub fn nested(
    these: &[Vec<f64>],
    those: &[Vec<f64>],
    combine: impl Fn(f64, f64) -> f64,
) -> Option<Estimate> {
    let mut runs = these.iter().chain(those);
    // The level with the fewest draws decides how narrow a small sample makes the interval.
    let fewest = these.len().min(those.len());
    if fewest < SEVERAL || runs.any(|run| run.len() < FEWEST) {
        return None;
    }
    let sides = [these, those]
        .map(|runs| -> Vec<Vec<f64>> { runs.iter().map(|run| groups(run, GROUPS)).collect() });
    let [these_mean, those_mean] = sides.each_ref().map(|runs| mean_of_runs(runs, mean));
    let [first, second] = &sides;
    Some(estimate(combine(these_mean?, those_mean?), fewest, |rng| {
        let [these, those] = [first, second].map(|runs| resampled_runs(runs, rng));
        combine(these, those)
    }))
}

fn mean_of_runs<'a>(
    runs: impl IntoIterator<Item = &'a Vec<f64>>,
    mut mean_of_run: impl FnMut(&[f64]) -> Option<f64>,
) -> Option<f64> {
    let means: Option<Vec<f64>> = runs.into_iter().map(|run| mean_of_run(run)).collect();
    mean(&means?)
}

fn resampled_runs(runs: &[Vec<f64>], rng: &mut Rng) -> f64 {
    let drawn = (0..runs.len()).filter_map(|_| runs.get(rng.usize(..runs.len())));
    let drawn: Vec<&Vec<f64>> = drawn.collect();
    mean_of_runs(drawn, |run| Some(resampled_mean(run, rng))).unwrap_or_default()
}

/// The interval of the draws of `resample` from samples, the smallest with `sample` values.
fn estimate(value: f64, sample: usize, mut resample: impl FnMut(&mut Rng) -> f64) -> Estimate {
    let mut rng = Rng::with_seed(SEED);
    let mut found: Vec<f64> = (0..RESAMPLES).map(|_| resample(&mut rng)).collect();
    found.sort_by(f64::total_cmp);
    let tail = tail(sample);
    let [low, high] = [tail, 1.0 - tail].map(|share| found[rank(share, found.len() - 1)]);
    Estimate { value, low, high }
}

/// Share of the resamples below the interval: 2.5 %, of a small sample less. Resampled means
/// spread less than Student's distribution by sqrt((n - 1) / n), and have thinner tails.
fn tail(sample: usize) -> f64 {
    let freedom = u32::try_from(sample.saturating_sub(1)).unwrap_or(u32::MAX);
    let student = quantiles::student(UPPER, freedom).unwrap_or(f64::INFINITY);
    let freedom = f64::from(freedom);
    quantiles::normal_above(student * ((freedom + 1.0) / freedom).sqrt())
}

fn rank(share: f64, last: usize) -> usize {
    (share * last as f64).round() as usize
}

fn resampled_mean(values: &[f64], rng: &mut Rng) -> f64 {
    let drawn = (0..values.len()).filter_map(|_| values.get(rng.usize(..values.len())));
    drawn.sum::<f64>() / count(values).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples from a known distribution: about 95 % of the intervals contain the true difference,
    /// of small samples too.
    #[test]
    fn intervals_hold_the_truth() {
        for (count, least) in [(20, 88), (8, 86)] {
            let mut rng = Rng::with_seed(1);
            let mut sample = |scale: f64| -> Vec<f64> {
                (0..count).map(|_| -(1.0 - rng.f64()).ln() * scale).collect()
            };
            let mut held = 0;
            for _ in 0..100 {
                let (these, those) = (sample(5.0), sample(3.0));
                let found = difference(&these, &those).unwrap();
                held += u32::from(found.low <= 2.0 && 2.0 <= found.high);
            }
            assert!((least..=99).contains(&held), "{held} of 100 by {count}");
        }
    }

    /// Runs that differ among themselves by more than their blocks show: the interval holds the
    /// true ratio only if the runs vary too.
    #[test]
    fn nested_intervals_hold_the_truth() {
        let mut rng = Rng::with_seed(7);
        let mut side = |mean: f64| -> Vec<Vec<f64>> {
            let mut run = || {
                let level = mean * (0.9 + 0.2 * rng.f64());
                (0..20).map(|_| level * (0.95 + 0.1 * rng.f64())).collect()
            };
            (0..6).map(|_| run()).collect()
        };
        let mut held = 0;
        for _ in 0..40 {
            let found = nested(&side(6.0), &side(5.0), |this, that| this / that).unwrap();
            held += u32::from(found.low <= 1.2 && 1.2 <= found.high);
        }
        assert!((35..=40).contains(&held), "{held} of 40");
    }

    #[test]
    fn one_run_or_two_blocks_have_no_nested_interval() {
        let of = |runs: usize, blocks: usize| vec![vec![1.0; blocks]; runs];
        let found = |these: &[_], those: &[_]| nested(these, those, |this, that| this - that);
        assert!(found(&of(2, 3), &of(2, 3)).is_some());
        for (runs, blocks) in [(0, 3), (1, 3), (1, 1_000), (2, 2)] {
            assert_eq!(found(&of(runs, blocks), &of(3, 3)), None, "{runs} runs of {blocks}");
            assert_eq!(found(&of(3, 3), &of(runs, blocks)), None, "{runs} runs of {blocks}");
        }
    }

    #[test]
    fn groups_spread_as_values_do() {
        let mut rng = Rng::with_seed(2);
        let values: Vec<f64> = (0..20_000).map(|_| rng.f64()).collect();
        let found = difference(&values, &[0.0; 1_000]).unwrap();
        // For a mean of uniform values: 1 / sqrt(12 n), 1.96 times that to either side.
        let expected = 2.0 * 1.96 / (12.0 * 20_000.0f64).sqrt();
        let width = found.high - found.low;
        assert!((width / expected - 1.0).abs() < 0.2, "{width} {expected}");
        assert!(found.low < found.value && found.value < found.high);
    }

    /// Medians of exponential distributions, ln 2 times the scale, few values and many.
    #[test]
    fn intervals_of_medians_hold_the_truth() {
        for number in [25, 1_000] {
            let mut rng = Rng::with_seed(4);
            let mut held = 0;
            for _ in 0..40 {
                let mut sample = |scale: f64| -> Vec<f64> {
                    (0..number).map(|_| -(1.0 - rng.f64()).ln() * scale).collect()
                };
                let found = median_difference(&sample(5.0), &sample(3.0)).unwrap();
                let truth = 2.0 * std::f64::consts::LN_2;
                held += u32::from(found.low <= truth && truth <= found.high);
            }
            assert!((33..=40).contains(&held), "{held} of 40, {number} values");
        }
        let same = median_difference(&[5.0; 4], &[1.0, 3.0, 3.0]).unwrap();
        assert_eq!((same.value, same.low), (2.0, 2.0));
        assert_eq!(median_difference(&[1.0], &[1.0, 2.0, 3.0]), None);
    }

    #[test]
    fn few_values_say_nothing_and_equal_ones_all() {
        assert_eq!(difference(&[1.0, 2.0], &[1.0, 2.0, 3.0]), None);
        let same = difference(&[5.0; 4], &[3.0; 3]).unwrap();
        assert_eq!((same.value, same.low, same.high), (2.0, 2.0, 2.0));
        let again = || difference(&[1.0, 2.0, 9.0], &[3.0; 3]);
        assert_eq!(again(), again(), "the same every time");
    }
}
