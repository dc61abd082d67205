//! p values by permutation: how often chance alone gives a difference as large.
//!
//! R. A. Fisher, The Design of Experiments, 1935, section 21; E. S. Edgington, Randomization Tests,
//! 1980. No distribution of the values is assumed.

use fastrand::Rng;

use super::groups;

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
        let signed =
            values.iter().enumerate().map(|(at, value)| if signs(at) { -value } else { *value });
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

#[expect(clippy::cast_precision_loss, reason = "at most 65,536")]
fn share(part: usize, whole: u32) -> f64 {
    part as f64 / f64::from(whole)
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
    }

    #[test]
    fn exact_counts() {
        assert_eq!(sign_flips(&[]), None);
        assert_eq!(sign_flips(&[1.0, 2.0, 3.0]), Some(0.25));
        assert_eq!(sign_flips(&[0.0; 5]), Some(1.0));
    }

    /// Of samples of one distribution, about one in twenty has p below 5 %.
    #[test]
    fn five_percent_by_chance() {
        let mut rng = Rng::with_seed(3);
        let mut sample = |count: usize| -> Vec<f64> {
            (0..count).map(|_| -f64::ln(1.0 - rng.f64()) - 1.0).collect()
        };
        let mut paired = 0;
        for _ in 0..400 {
            let (these, those) = (sample(12), sample(12));
            let differences = super::super::paired_differences(&these, &those);
            paired += u32::from(sign_flips(&differences).unwrap() < 0.05);
        }
        // Four standard deviations of a binomial count around 20.
        assert!((3..=37).contains(&paired), "{paired}");
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
    }
}
