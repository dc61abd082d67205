//! Whether a series of measurements rises or falls, and how fast: without assuming a distribution,
//! and nearly unmoved by outliers.

use super::{Estimate, median, quantiles};

/// Quantile of the normal distribution for 97.5 %: 5 % are outside, both sides together.
const Z_95: f64 = 1.959_963_984_540_054;
/// Points used at most: the number of slopes is its square.
const MOST_POINTS: usize = 1_000;

/// Slope of a series with its 95 % confidence interval: the median of the slopes between all pairs
/// of points (H. Theil, A Rank-Invariant Method of Linear and Polynomial Regression Analysis,
/// 1950; P. K. Sen, Estimates of the Regression Coefficient Based on Kendall's Tau, Journal of the
/// American Statistical Association 63, 1968), as `scipy.stats.theilslopes` computes it. Points are
/// (x, y) in any order; `None` if no two have different x, and for more than 1,000 points.
pub fn theil_sen(points: &[(f64, f64)]) -> Option<Estimate> {
    if points.len() > MOST_POINTS {
        return None;
    }
    let mut slopes = Vec::new();
    for (index, from) in points.iter().enumerate() {
        for to in points.iter().skip(index + 1) {
            let (dx, dy) = (to.0 - from.0, to.1 - from.1);
            if dx != 0.0 && (dy / dx).is_finite() {
                slopes.push(dy / dx);
            }
        }
    }
    slopes.sort_by(f64::total_cmp);
    let value = median(&slopes)?;
    let variance = variance_of_s(points.iter().map(|point| point.0), points.len())
        - tie_term(points.iter().map(|point| point.1));
    let half = Z_95 * variance.max(0.0).sqrt();
    let count = super::count(&slopes);
    let last = slopes.len() - 1;
    Some(Estimate {
        value,
        low: *slopes.get(index((count - half) / 2.0, last, 1))?,
        high: *slopes.get(index((count + half) / 2.0, last, 0))?,
    })
}

/// Two-sided p of no trend: Kendall's S over time, normally approximated, corrected for ties and continuity (H. B.
/// Mann, Nonparametric Tests Against Trend, Econometrica 13, 1945; M. G. Kendall, Rank Correlation Methods, 1975).
/// Values in the order of time. They are assumed to be independent: if each depends on the one before, p is too small.
/// 0 to 1; `None` for fewer than four values.
pub fn mann_kendall(values: &[f64]) -> Option<f64> {
    if values.len() < 4 || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut s = 0.0;
    for (index, before) in values.iter().enumerate() {
        for after in values.iter().skip(index + 1) {
            s += match after.total_cmp(before) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.0,
                std::cmp::Ordering::Less => -1.0,
            };
        }
    }
    let variance = variance_of_s(values.iter().copied(), values.len());
    if s == 0.0 || variance <= 0.0 {
        return Some(1.0);
    }
    let deviate = (f64::abs(s) - 1.0) / variance.sqrt();
    Some((2.0 * quantiles::normal_above(deviate)).min(1.0))
}

/// Variance of Kendall's S without a trend, minus the part due to equal values.
fn variance_of_s(values: impl Iterator<Item = f64>, count: usize) -> f64 {
    let count = super::float_of(count);
    count * (count - 1.0) * (2.0 * count + 5.0) / 18.0 - tie_term(values)
}

fn tie_term(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let groups = sorted.chunk_by(|one, other| one == other);
    groups
        .map(|group| {
            let ties = super::count(group);
            ties * (ties - 1.0) * (2.0 * ties + 5.0) / 18.0
        })
        .sum()
}

/// `place`, rounded, less `before`, within 0 to `last`.
fn index(place: f64, last: usize, before: usize) -> usize {
    let place = place.round_ties_even().max(0.0) as usize;
    place.saturating_sub(before).min(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Irregular times, equal values.
    const IRREGULAR: [(f64, f64); 12] = [
        (0.0, 5.0),
        (1.0, 7.0),
        (2.0, 6.0),
        (4.0, 6.0),
        (5.0, 9.0),
        (7.0, 12.0),
        (8.0, 11.0),
        (9.0, 10.0),
        (12.0, 15.0),
        (13.0, 15.0),
        (15.0, 14.0),
        (18.0, 20.0),
    ];
    /// 100 + 0.5 i with normal deviates of 4.
    const NOISE: [f64; 40] = [
        105.2, 106.3, 101.3, 98.4, 97.6, 102.6, 98.9, 97.8, 104.8, 105.0, 107.2, 101.8, 106.0,
        106.2, 101.0, 109.7, 109.3, 118.1, 109.8, 108.9, 114.9, 111.3, 114.6, 110.0, 112.9, 116.6,
        115.8, 114.0, 109.7, 116.3, 115.3, 118.4, 116.9, 120.9, 116.8, 118.3, 120.7, 114.2, 117.4,
        117.5,
    ];

    fn timed(values: &[f64]) -> Vec<(f64, f64)> {
        let times = 0..u32::try_from(values.len()).unwrap();
        times.map(f64::from).zip(values.iter().copied()).collect()
    }

    /// `scipy.stats.theilslopes(y, x, 0.95)` of SciPy 1.x and
    /// `pymannkendall.original_test(y).p`.
    #[test]
    fn agrees_with_scipy_and_pymannkendall() {
        let line: Vec<f64> = (0..10).map(|i| f64::from(2 * i + 1)).collect();
        let flat = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
        let known = [
            (timed(&line), [2.0, 2.0, 2.0], 8.303_070_332_638e-5),
            (IRREGULAR.to_vec(), [0.757_352_941_176_470_6, 0.5, 0.9], 7.355_679_222_680e-4),
            (timed(&flat), [0.464_285_714_285_714_3, -2.0 / 3.0, 2.0], 0.212_486_446_427_501),
            (
                timed(&NOISE),
                [0.508_545_454_545_455, 0.425_925_925_925_926, 0.609_090_909_090_909],
                3.134_303_927_510e-10,
            ),
        ];
        for (points, [value, low, high], p) in known {
            let slope = theil_sen(&points).unwrap();
            let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
            assert!(near(slope.value, value), "{slope:?} is not {value}");
            assert!(near(slope.low, low), "{slope:?} is not from {low}");
            assert!(near(slope.high, high), "{slope:?} is not to {high}");
            let values: Vec<f64> = points.iter().map(|point| point.1).collect();
            let found = mann_kendall(&values).unwrap();
            // The normal distribution is approximated to 7.5e-8.
            assert!((found - p).abs() < 2e-7, "{found} is not {p}");
        }
    }

    #[test]
    fn few_and_equal_values() {
        assert_eq!(theil_sen(&[]), None);
        assert_eq!(theil_sen(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(mann_kendall(&[1.0, 2.0, 3.0]), None);
        assert_eq!(mann_kendall(&[7.0; 20]), Some(1.0));
        assert_eq!(mann_kendall(&[1.0, f64::NAN, 3.0, 4.0]), None);
        assert_eq!(theil_sen(&timed(&[7.0; 20])).unwrap().high, 0.0);
    }

    proptest! {
        #[test]
        fn the_slope_is_within_its_interval(
            values in prop::collection::vec(-1e6..1e6f64, 2..40),
            shift in -1e3..1e3f64,
        ) {
            let points = timed(&values);
            let slope = theil_sen(&points).unwrap();
            prop_assert!(slope.low <= slope.value && slope.value <= slope.high, "{slope:?}");
            let shifted: Vec<(f64, f64)> = points.iter().map(|(x, y)| (*x, y + shift * x)).collect();
            let moved = theil_sen(&shifted).unwrap();
            prop_assert!((moved.value - slope.value - shift).abs() < 1e-3);
            if let Some(p) = mann_kendall(&values) {
                prop_assert!((0.0..=1.0).contains(&p));
                let back: Vec<f64> = values.iter().rev().copied().collect();
                prop_assert!((mann_kendall(&back).unwrap() - p).abs() < 1e-12);
            }
        }

        #[test]
        fn a_quarter_of_outliers_does_not_hide_a_rise(
            outliers in prop::collection::vec((0usize..40, -1e9..1e9f64), 0..6),
        ) {
            let mut values: Vec<f64> = (0..40).map(|i| f64::from(3 * i)).collect();
            for (at, value) in outliers {
                values[at] = value;
            }
            let slope = theil_sen(&timed(&values)).unwrap();
            prop_assert!((slope.value - 3.0).abs() < 0.5, "{slope:?}");
        }
    }
}
