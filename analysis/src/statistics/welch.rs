//! Welch's test, for too few values to permute: B. L. Welch, The Generalization of `Student's'
//! Problem, Biometrika 34, 1947.

use super::{count, mean, quantiles, standard_deviation};

/// Two-sided p of equal means of two samples from normal populations, which may spread differently.
/// 0 to 1; `None` if either has fewer than two values. Two samples that do not spread at all differ
/// for certain, or not at all.
#[must_use]
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
    use crate::statistics::tests::SLEEP;
    use proptest::prelude::*;

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
