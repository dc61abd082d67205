//! How sure a difference between two sets of measurements is.
//!
//! Means only: the cost of collections lies in few long pauses, and medians and trimmed means drop these. Random
//! numbers have a fixed seed, so that a report is the same every time. Every function accepts any values, and returns
//! `None` for too few of them.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod bootstrap;
pub mod coin;
pub mod mixture;
mod order;
mod quantiles;
pub mod steady;
pub mod trend;

pub use order::{median, median_high, median_low, quantile, rate, ratio, scaled, spread};
pub use quantiles::{student, student_outside};

/// A count, a time in ns or a number of bytes as a float, exact below 2^53: 104 days in ns.
pub fn float(number: u64) -> f64 {
    number as f64
}

/// The nearest whole number; 0 for a negative number and for NaN.
pub fn whole(number: f64) -> u64 {
    number.round() as u64
}

/// The nearest whole number, with its sign; 0 for NaN.
pub fn signed(number: f64) -> i64 {
    number.round() as i64
}

/// The length of a list.
fn float_of(count: usize) -> f64 {
    float(count as u64)
}

/// A figure with its 95 % confidence interval, in the unit of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The figure itself.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Arithmetic mean; `None` of no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() { None } else { Some(values.iter().sum::<f64>() / count(values)) }
}

/// Standard deviation of the population that the values are a sample of (divisor n - 1); `None` of
/// fewer than two values.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    if values.len() <= 1 {
        return None;
    }
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (count(values) - 1.0)).sqrt())
}

/// p values, adjusted because there are several: S. Holm, A Simple Sequentially Rejective Multiple
/// Test Procedure, Scandinavian Journal of Statistics 6, 1979. In the order given; 0 to 1.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    let p_value = |at: usize| p_values.get(at).copied().unwrap_or(1.0);
    order.sort_by(|one, other| p_value(*one).total_cmp(&p_value(*other)));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut least = 0.0_f64;
    for (done, at) in order.iter().enumerate() {
        least = least.max(p_value(*at) * float_of(p_values.len() - done));
        if let Some(p_value) = adjusted.get_mut(*at) {
            *p_value = least.min(1.0);
        }
    }
    adjusted
}

fn count(values: &[f64]) -> f64 {
    float_of(values.len())
}

/// The values, or, of more than `most`, the means of that many groups of neighbors: their mean is
/// the same but for uneven groups, and spreads alike, at bounded cost.
fn groups(values: &[f64], most: usize) -> Vec<f64> {
    let total = values.len();
    if total <= most {
        return values.to_vec();
    }
    let group = |at: usize| values.get(at * total / most..(at + 1) * total / most);
    (0..most).filter_map(|at| mean(group(at)?)).collect()
}

/// Two-sided p of equal means of two samples from normal populations with possibly different spreads. 0 to 1; `None` if
/// either has fewer than two values. Two samples that do not spread at all differ for certain, or not at all.
pub fn welch(these: &[f64], those: &[f64]) -> Option<f64> {
    let difference = mean(these)? - mean(those)?;
    let variance_of_mean = |values: &[f64]| -> Option<(f64, f64)> {
        let variance = standard_deviation(values)?.powi(2) / count(values);
        Some((variance, variance.powi(2) / (count(values) - 1.0)))
    };
    let (these, those) = (variance_of_mean(these)?, variance_of_mean(those)?);
    let variance = these.0 + those.0;
    if variance <= 0.0 {
        return Some(if difference == 0.0 { 1.0 } else { 0.0 });
    }
    // Satterthwaite's degrees of freedom.
    let freedom = variance.powi(2) / (these.1 + those.1);
    quantiles::student_outside(difference / variance.sqrt(), freedom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The sample of Student's first example (The Probable Error of a Mean, 1908): additional
    /// hours of sleep by two drugs, as in R's data set `sleep`.
    pub(crate) const SLEEP: [[f64; 10]; 2] = [
        [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0],
        [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4],
    ];

    #[test]
    fn sleep() {
        let [first, second] = SLEEP;
        let differences: Vec<f64> =
            second.iter().zip(&first).map(|(one, other)| one - other).collect();
        // R: mean(d) = 1.58, sd(d) = 1.229995, mean(second) = 2.33.
        assert!((mean(&differences).unwrap() - 1.58).abs() < 1e-9);
        assert!((standard_deviation(&differences).unwrap() - 1.229_995).abs() < 1e-6);
        assert!((mean(&second).unwrap() - 2.33).abs() < 1e-9);
    }

    #[test]
    fn too_few_values() {
        assert_eq!(mean(&[]), None);
        assert_eq!(standard_deviation(&[1.0]), None);
        assert!(holm(&[]).is_empty());
    }

    /// R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") is 0.03 0.06 0.06 0.02.
    #[test]
    fn holm_as_in_r() {
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
        }
    }

    proptest! {
        #[test]
        fn holm_keeps_the_order_and_never_lowers(p_values in prop::collection::vec(0.0..=1.0, 1..9)) {
            let adjusted = holm(&p_values);
            let pairs = || p_values.iter().zip(&adjusted);
            prop_assert!(pairs().all(|(raw, adjusted)| raw <= adjusted && *adjusted <= 1.0));
            for (raw, adjusted) in pairs() {
                prop_assert!(pairs().all(|(other, theirs)| raw > other || adjusted <= theirs));
            }
            // Not beyond Bonferroni's.
            let number = float_of(p_values.len());
            prop_assert!(pairs().all(|(raw, adjusted)| *adjusted <= raw * number + 1e-12));
        }

        #[test]
        fn groups_have_the_mean_of_the_values(
            values in prop::collection::vec(-1e3..1e3, 1..400),
            most in 1usize..50,
        ) {
            let found = groups(&values, most);
            prop_assert!(found.len() == values.len().min(most));
            if values.len() % most == 0 || values.len() <= most {
                let (these, those) = (mean(&found).unwrap(), mean(&values).unwrap());
                prop_assert!((these - those).abs() < 1e-9);
            }
        }

        #[test]
        fn spread_ignores_the_origin_and_follows_the_unit(
            values in prop::collection::vec(-1e3..1e3_f64, 2..40),
            shift in -1e3..1e3_f64,
            scale in 0.1..10.0_f64,
        ) {
            let moved: Vec<f64> = values.iter().map(|value| value * scale + shift).collect();
            let spread = |values: &[f64]| -> f64 { standard_deviation(values).unwrap() };
            prop_assert!((spread(&values) * scale - spread(&moved)).abs() < 1e-6);
            let mean_moved = mean(&values).unwrap() * scale + shift;
            prop_assert!((mean(&moved).unwrap() - mean_moved).abs() < 1e-6);
        }
    }

    /// R's `t.test(extra ~ group, data = sleep)`: t = -1.8608, df = 17.776, p-value = 0.07939. The
    /// degrees of freedom are rounded down here.
    #[test]
    fn agrees_with_r() {
        let p = welch(&SLEEP[0], &SLEEP[1]).unwrap();
        assert!((p - 0.0794).abs() < 0.001, "{p}");
    }

    #[test]
    fn few_or_equal_values() {
        assert_eq!(welch(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(welch(&[], &[]), None);
        assert_eq!(welch(&[1.0, 1.0], &[1.0, 1.0]), Some(1.0));
        assert_eq!(welch(&[1.0, 1.0], &[2.0, 2.0]), Some(0.0));
    }

    proptest! {
        #[test]
        fn is_a_probability_and_symmetric(
            these in prop::collection::vec(-1e3..1e3, 2..8),
            those in prop::collection::vec(-1e3..1e3, 2..8),
        ) {
            let p = welch(&these, &those).unwrap();
            prop_assert!((0.0..=1.0).contains(&p));
            prop_assert!((p - welch(&those, &these).unwrap()).abs() < 1e-12);
        }
    }
}
