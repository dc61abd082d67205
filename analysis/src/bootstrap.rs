//! How far a mean, or a difference of means, may be off by chance.
//!
//! The bootstrap with the percentile method: B. Efron and R. J. Tibshirani, An Introduction to the
//! Bootstrap, 1993, chapter 13. The generator is seeded, so that a report is the same every time.

use fastrand::Rng;

/// Resamples. Efron and Tibshirani (section 13.3) ask for at least 1,000 for an interval.
pub(crate) const RESAMPLES: u32 = 10_000;
/// Fewer values than this do not show their spread.
pub(crate) const FEWEST: usize = 3;
/// More values than this are first averaged in this many batches of neighbors; the mean of batches
/// spreads like the mean of values, at bounded cost.
const BATCHES: usize = 256;
/// Any number: it makes reports repeatable.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// Ends of the interval that contains 95 %.
const ENDS: [f64; 2] = [0.025, 0.975];

/// A figure with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Mean of `these` minus mean of `those`; `None` if either has fewer than [`FEWEST`].
pub(crate) fn difference(these: &[f64], those: &[f64]) -> Option<Estimate> {
    if these.len() < FEWEST || those.len() < FEWEST {
        return None;
    }
    let value = mean(these) - mean(those);
    let (these, those) = (batches(these), batches(those));
    Some(estimate(value, |rng| {
        resampled_mean(&these, rng) - resampled_mean(&those, rng)
    }))
}

/// Mean of paired differences; `None` for fewer than [`FEWEST`].
pub(crate) fn paired(differences: &[f64]) -> Option<Estimate> {
    if differences.len() < FEWEST {
        return None;
    }
    let batches = batches(differences);
    let value = mean(differences);
    Some(estimate(value, |rng| resampled_mean(&batches, rng)))
}

fn estimate(value: f64, mut resample: impl FnMut(&mut Rng) -> f64) -> Estimate {
    let mut rng = Rng::with_seed(SEED);
    let mut found: Vec<f64> = (0..RESAMPLES).map(|_| resample(&mut rng)).collect();
    found.sort_by(f64::total_cmp);
    let [low, high] = ENDS.map(|share| found[rank(share, found.len() - 1)]);
    Estimate { value, low, high }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "10,000 resamples; shares are between 0 and 1"
)]
fn rank(share: f64, last: usize) -> usize {
    (share * last as f64).round() as usize
}

#[expect(clippy::cast_precision_loss, reason = "no list is as long as 2^52")]
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn resampled_mean(values: &[f64], rng: &mut Rng) -> f64 {
    let drawn = (0..values.len()).filter_map(|_| values.get(rng.usize(..values.len())));
    #[expect(clippy::cast_precision_loss, reason = "at most 256 values")]
    let count = values.len().max(1) as f64;
    drawn.sum::<f64>() / count
}

fn batches(values: &[f64]) -> Vec<f64> {
    let count = values.len();
    if count <= BATCHES {
        return values.to_vec();
    }
    let batch = |at: usize| {
        let (from, to) = (at * count / BATCHES, (at + 1) * count / BATCHES);
        mean(values.get(from..to).unwrap_or_default())
    };
    (0..BATCHES).map(batch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples from a known distribution: about 95 % of the intervals contain the true difference.
    /// The percentile method is slightly too narrow for small samples.
    #[test]
    fn intervals_hold_the_truth() {
        let mut rng = Rng::with_seed(1);
        let mut held = 0;
        for _ in 0..40 {
            let mut sample = |scale: f64| -> Vec<f64> {
                (0..30).map(|_| -(1.0 - rng.f64()).ln() * scale).collect()
            };
            let found = difference(&sample(5.0), &sample(3.0)).unwrap();
            held += u32::from(found.low <= 2.0 && 2.0 <= found.high);
        }
        assert!((33..=40).contains(&held), "{held} of 40");
    }

    #[test]
    fn batches_spread_as_values_do() {
        let mut rng = Rng::with_seed(2);
        let values: Vec<f64> = (0..20_000).map(|_| rng.f64()).collect();
        let found = paired(&values).unwrap();
        // For a mean of uniform values: 1 / sqrt(12 n), 1.96 times that to either side.
        let expected = 2.0 * 1.96 / (12.0 * 20_000.0f64).sqrt();
        let width = found.high - found.low;
        assert!((width / expected - 1.0).abs() < 0.2, "{width} {expected}");
        assert!(found.low < found.value && found.value < found.high);
    }

    #[test]
    fn few_values_say_nothing_and_equal_ones_all() {
        assert_eq!(difference(&[1.0, 2.0], &[1.0, 2.0, 3.0]), None);
        assert_eq!(paired(&[1.0, 2.0]), None);
        let same = difference(&[5.0; 4], &[3.0; 3]).unwrap();
        assert_eq!((same.value, same.low, same.high), (2.0, 2.0, 2.0));
        assert_eq!(
            paired(&[1.0, 2.0, 9.0]),
            paired(&[1.0, 2.0, 9.0]),
            "the same every time"
        );
    }
}
