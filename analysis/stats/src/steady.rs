//! Where a series settles: the end of its warm-up.

use super::float_of;

/// Fewest points of a part that is steady.
const FEWEST: usize = 4;
/// Fewest points before it.
const FEWEST_BEFORE: usize = 2;
/// Two lines have to be better than one by so much, in units of BIC: "very strong" evidence (R. Kass
/// and A. Raftery, Bayes Factors, Journal of the American Statistical Association 90, 1995).
const VERY_STRONG: f64 = 10.0;
/// Deviations from a line are never taken for smaller than this share of the last value: a counter's deviations would
/// be 0.
const LEAST_DEVIATION: f64 = 0.002;

/// Parameters of one line, and of two with the place where they meet.
const ONE_LINE: f64 = 2.0;
const TWO_LINES: f64 = 5.0;

/// Splits a series into parts, each described by one straight line, and returns the indices of their first points, in
/// order: the last part is steady. Points are (x, y) in order of x; x must be finite. A series of up to six points is
/// one part.
pub fn steady_parts(points: &[(f64, f64)]) -> Vec<usize> {
    let (mut parts, mut from) = (vec![0], 0);
    while let Some(split) = points.get(from..).and_then(split) {
        from += split;
        parts.push(from);
    }
    parts
}

/// Where two lines describe the points better than one, by the Bayesian information criterion of
/// segmented regression (Y. Yao, Estimating the number of change-points via Schwarz' criterion,
/// Statistics and Probability Letters 6, 1988); `None`: one does.
fn split(points: &[(f64, f64)]) -> Option<usize> {
    let last = points.last()?.1;
    let least = (last * LEAST_DEVIATION).powi(2).max(f64::MIN_POSITIVE);
    let size = float_of(points.len());
    let criterion = |squares: f64, parameters: f64| {
        size * (squares / size + least).ln() + parameters * size.ln()
    };
    let ends = FEWEST_BEFORE..=points.len().checked_sub(FEWEST)?;
    let (two, at) = ends
        .filter_map(|at| {
            let (before, after) = points.split_at_checked(at)?;
            Some((criterion(squares(before) + squares(after), TWO_LINES), at))
        })
        .min_by(|(one, _), (other, _)| one.total_cmp(other))?;
    let enough = points.len() > FEWEST_BEFORE + FEWEST;
    if enough && two < criterion(squares(points), ONE_LINE) - VERY_STRONG { Some(at) } else { None }
}

/// Sum of the squared deviations from the line of least squares.
fn squares(points: &[(f64, f64)]) -> f64 {
    let size = float_of(points.len()).max(1.0);
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / size;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| {
        points.iter().map(|point| of(point.0 - x, point.1 - y)).sum::<f64>()
    };
    let (xx, yy) = (sum(&|dx, _| dx * dx), sum(&|_, dy| dy * dy));
    if xx <= 0.0 {
        return yy;
    }
    (yy - sum(&|dx, dy| dx * dy).powi(2) / xx).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steady_part(points: &[(f64, f64)]) -> usize {
        steady_parts(points).pop().expect("a part")
    }

    fn series(value: impl Fn(f64) -> f64, points: u32) -> Vec<(f64, f64)> {
        (0..points).map(|n| (f64::from(n) * 10.0, value(f64::from(n) * 10.0))).collect()
    }

    #[test]
    fn a_line_is_one_part_and_a_ramp_before_a_level_is_not() {
        assert_eq!(steady_part(&series(|at_s| 1e6 + at_s * 40.0, 64)), 0);
        let ramp = series(|at_s| 1e6 + at_s.min(200.0) * 1e4, 64);
        let from = steady_part(&ramp);
        assert!((19..=22).contains(&from), "{from}");
    }

    /// A cache that fills ever more slowly settles late.
    #[test]
    fn of_a_curve_the_end_remains() {
        let filling = series(|at_s| 1e6 * (1.0 - (-at_s / 60.0).exp()), 64);
        assert!(steady_part(&filling) >= 10);
    }

    #[test]
    fn noise_has_no_parts() {
        // A congruential generator: seeds and values do not matter.
        let mut seed = 7_u32;
        let mut noise = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(seed >> 8) / f64::from(1 << 24)
        };
        for _ in 0..50 {
            let values: Vec<f64> = (0..64).map(|_| 1e6 * (1.0 + 0.1 * noise())).collect();
            let points: Vec<_> = (0..64).map(f64::from).zip(values).collect();
            assert_eq!(steady_part(&points), 0);
        }
    }

    proptest! {
        #[test]
        fn it_is_an_index(points in prop::collection::vec(prop::num::f64::NORMAL, 0..70)) {
            let points: Vec<_> = (0..70).map(f64::from).zip(points).collect();
            prop_assert!(steady_part(&points) <= points.len());
        }
    }
}
