//! p values by permutation: how often chance alone gives a difference as large.
//!
//! R. A. Fisher, The Design of Experiments, 1935, section 21; E. S. Edgington, Randomization Tests,
//! 1980. No distribution of the values is assumed.

use fastrand::Rng;

use super::{groups, mean};

/// Up to this many values, every permutation is tried: 2^16 at the most.
const MOST_EXACT: usize = 16;
/// Permutations drawn for more values: p is at least 1 in 10,000.
const DRAWN: u32 = 9_999;
/// More values than this are first averaged in this many groups of neighbors.
const GROUPS: usize = 256;
/// Any number: it makes reports repeatable.
const SEED: u64 = 0x2545_f491_4f6c_dd1d;
/// Rounding must not make an equal statistic a smaller one.
const ROUNDING: f64 = 1.0 - 1e-10;

/// Two-sided p of a mean of 0, for paired differences: each difference may as well have the other
/// sign. 0 to 1; at least 2 / 2^n, so that fewer than six pairs cannot be below 5 %. `None` of no
/// values.
#[must_use]
pub fn sign_flips(differences: &[f64]) -> Option<f64> {
    if differences.is_empty() {
        return None;
    }
    let values = groups(differences, GROUPS);
    let bound = values.iter().sum::<f64>().abs() * ROUNDING;
    let flipped = |signs: &mut dyn FnMut(usize) -> bool| -> bool {
        let signed = values.iter().enumerate().map(|(at, value)| match signs(at) {
            true => -value,
            false => *value,
        });
        signed.sum::<f64>().abs() >= bound
    };
    if values.len() <= MOST_EXACT {
        let all = 1u32 << values.len();
        let as_large = (0..all).filter(|mask| flipped(&mut |at| mask >> at & 1 == 1));
        return Some(share(as_large.count(), all));
    }
    let mut rng = Rng::with_seed(SEED);
    let as_large = (0..DRAWN).filter(|_| flipped(&mut |_| rng.bool()));
    Some(share(as_large.count() + 1, DRAWN + 1))
}

/// Two-sided p of equal means of two samples: the values may as well belong to the other. The
/// statistic is Welch's, which holds for unequal spreads too (A. Janssen, Statistics & Probability
/// Letters 36, 1997). 0 to 1; `None` if either has fewer than two values.
#[must_use]
pub fn two_samples(these: &[f64], those: &[f64]) -> Option<f64> {
    if these.len() < 2 || those.len() < 2 {
        return None;
    }
    let (these, those) = (groups(these, GROUPS), groups(those, GROUPS));
    let mut values = [these.as_slice(), &those].concat();
    let center = mean(&values)?;
    values.iter_mut().for_each(|value| *value -= center);
    let statistic = |sides: &mut dyn FnMut(usize) -> bool| -> f64 {
        let mut both = [Sums::default(); 2];
        let [first, second] = &mut both;
        for (at, value) in values.iter().enumerate() {
            match sides(at) {
                true => first.add(*value),
                false => second.add(*value),
            }
        }
        first.welch(second)
    };
    let bound = statistic(&mut |at| at < these.len()) * ROUNDING;
    if values.len() <= MOST_EXACT {
        let masks = || (0..1u32 << values.len()).filter(|mask| is_split(*mask, these.len()));
        let as_large = masks().filter(|mask| statistic(&mut |at| mask >> at & 1 == 1) >= bound);
        return Some(share(as_large.count(), u32::try_from(masks().count()).ok()?));
    }
    let mut rng = Rng::with_seed(SEED);
    let mut first: Vec<bool> = (0..values.len()).map(|at| at < these.len()).collect();
    let as_large = (0..DRAWN).filter(|_| {
        rng.shuffle(&mut first);
        statistic(&mut |at| first.get(at).copied().unwrap_or_default()) >= bound
    });
    Some(share(as_large.count() + 1, DRAWN + 1))
}

fn is_split(mask: u32, first: usize) -> bool {
    usize::try_from(mask.count_ones()) == Ok(first)
}

#[expect(clippy::cast_precision_loss, reason = "at most 65,536")]
fn share(part: usize, whole: u32) -> f64 {
    part as f64 / f64::from(whole)
}

#[derive(Clone, Copy, Default)]
struct Sums {
    count: u32,
    sum: f64,
    squares: f64,
}

impl Sums {
    fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.squares += value * value;
    }

    /// B. L. Welch, The Generalization of `Student's' Problem, Biometrika 34, 1947: the difference
    /// of the means by its standard error, without its sign.
    fn welch(&self, other: &Sums) -> f64 {
        let difference = self.mean() - other.mean();
        match self.variance_of_mean() + other.variance_of_mean() {
            variance if variance > 0.0 => difference.abs() / variance.sqrt(),
            _ if difference == 0.0 => 0.0,
            _ => f64::INFINITY,
        }
    }

    fn mean(&self) -> f64 {
        self.sum / f64::from(self.count)
    }

    fn variance_of_mean(&self) -> f64 {
        let (count, mean) = (f64::from(self.count), self.mean());
        (self.squares - count * mean * mean).max(0.0) / (count * (count - 1.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::SLEEP;
    use super::*;
    use fastrand::Rng;

    /// Nine of Student's ten differences are positive and one is 0: only it may be negative.
    #[test]
    fn sleep() {
        let [first, second] = SLEEP;
        let differences = super::super::paired_differences(&second, &first);
        assert_eq!(sign_flips(&differences), Some(4.0 / 1024.0));
        // R: coin::oneway_test gives 0.08 without pairs; Welch's t test 0.0794.
        let unpaired = two_samples(&second, &first).unwrap();
        assert!((unpaired - 0.0794).abs() < 0.015, "{unpaired}");
    }

    #[test]
    fn exact_counts() {
        assert_eq!(sign_flips(&[]), None);
        assert_eq!(sign_flips(&[1.0, 2.0, 3.0]), Some(0.25));
        assert_eq!(sign_flips(&[0.0; 5]), Some(1.0));
        assert_eq!(two_samples(&[1.0], &[1.0, 2.0]), None);
        // 2 of the C(6, 3) = 20 ways to split are as far apart.
        assert_eq!(two_samples(&[1.0, 2.0, 3.0], &[11.0, 12.0, 13.0]), Some(0.1));
        assert_eq!(two_samples(&[2.0; 4], &[2.0; 4]), Some(1.0));
    }

    /// Of samples of one distribution, about one in twenty has p below 5 %.
    #[test]
    fn five_percent_by_chance() {
        let mut rng = Rng::with_seed(3);
        let mut sample = |count: usize| -> Vec<f64> {
            (0..count).map(|_| -f64::ln(1.0 - rng.f64()) - 1.0).collect()
        };
        let (mut paired, mut unpaired) = (0, 0);
        for _ in 0..400 {
            let (these, those) = (sample(12), sample(12));
            let differences = super::super::paired_differences(&these, &those);
            paired += u32::from(sign_flips(&differences).unwrap() < 0.05);
            unpaired += u32::from(two_samples(&these[..7], &those[..7]).unwrap() < 0.05);
        }
        // Four standard deviations of a binomial count around 20.
        assert!((3..=37).contains(&paired), "{paired}");
        assert!((3..=37).contains(&unpaired), "{unpaired}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(8)))]

        #[test]
        fn a_p_value_ignores_order_unit_and_direction(
            values in prop::collection::vec(-1e3..1e3, 1..12),
            scale in 0.1..10.0,
        ) {
            let p_value = sign_flips(&values).unwrap();
            prop_assert!(p_value > 0.0 && p_value <= 1.0);
            let turned: Vec<f64> = values.iter().rev().map(|value| -value * scale).collect();
            prop_assert_eq!(sign_flips(&turned), Some(p_value));
        }

        #[test]
        fn drawn_permutations_agree_with_all(
            values in prop::collection::vec(-10.0..14.0, 16..=16),
        ) {
            // A value of 0 changes no sum, and makes the list too long for the exact count.
            let exact = sign_flips(&values).unwrap();
            let drawn = sign_flips(&[values.as_slice(), &[0.0]].concat()).unwrap();
            prop_assert!((exact - drawn).abs() < 0.025, "{} {}", exact, drawn);
        }

        #[test]
        fn far_apart_is_never_chance(
            these in prop::collection::vec(0.0..1.0, 9..30),
            those in prop::collection::vec(100.0..101.0, 9..30),
        ) {
            prop_assert!(two_samples(&these, &those).unwrap() < 0.001);
            let swapped = two_samples(&those, &these).unwrap();
            prop_assert!(swapped < 0.001);
        }
    }
}
