//! Quantiles of Student's distribution, and the normal distribution's shares.

use std::f64::consts::FRAC_2_PI;

/// More degrees of freedom than this are as good as normal: the quantiles differ by 0.3 %.
const MOST_FREEDOM: u32 = 1_000;

/// The value with this share of Student's distribution below it; `None` without a degree of freedom, or for a share
/// outside 0.5 to 0.999_999_999.
pub fn student(share: f64, freedom: u32) -> Option<f64> {
    if freedom == 0 || !(0.5..=0.999_999_999).contains(&share) {
        return None;
    }
    let (mut low, mut high) = (0.0, 1e9);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if student_within(middle, freedom.min(MOST_FREEDOM)) < 2.0 * share - 1.0 {
            low = middle
        } else {
            high = middle
        }
    }
    Some(f64::midpoint(low, high))
}

/// Share of Student's distribution outside -|t| to |t|, the two-sided p of `t`; `freedom` may be a
/// fraction, and is rounded down. `None` below one degree of freedom.
pub fn student_outside(t: f64, freedom: f64) -> Option<f64> {
    if !(freedom >= 1.0 && t.is_finite()) {
        return None;
    }
    let freedom = freedom.min(f64::from(MOST_FREEDOM)) as u32;
    Some((1.0 - student_within(t.abs(), freedom)).clamp(0.0, 1.0))
}

/// Share of Student's distribution between -t and t: Abramowitz and Stegun, Handbook of
/// Mathematical Functions, 1964, 26.7.3 and 26.7.4.
fn student_within(t: f64, freedom: u32) -> f64 {
    let angle = (t / f64::from(freedom).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let odd = freedom % 2 == 1;
    let mut term = if odd { cosine } else { 1.0 };
    let mut sum = 0.0;
    // The terms 1, 3, .. below an odd number of degrees, 0, 2, .. below an even one.
    let mut power = u32::from(odd);
    while power + 1 < freedom {
        sum += term;
        term *= cosine * cosine * f64::from(power + 1) / f64::from(power + 2);
        power += 2;
    }
    if odd { FRAC_2_PI * (angle + sine * sum) } else { sine * sum }
}

/// Share of the normal distribution above `deviate`, a number of at least 0; off by at most 7.5e-8 (Abramowitz and
/// Stegun, 26.2.17).
pub(crate) fn normal_above(deviate: f64) -> f64 {
    const FACTORS: [f64; 5] =
        [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530];
    let inverse = 1.0 / (1.0 + 0.231_641_9 * deviate);
    let polynomial = FACTORS.iter().fold(0.0, |sum, factor| (sum + factor) * inverse);
    let density = (-deviate * deviate / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    (density * polynomial).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R: qt(c(0.975, 0.8), df).
    #[test]
    fn as_in_tables() {
        let rows = [
            (1, 12.706_205, 1.376_382),
            (2, 4.302_653, 1.060_660),
            (5, 2.570_582, 0.919_544),
            (9, 2.262_157, 0.883_404),
            (30, 2.042_272, 0.853_767),
            (120, 1.979_930, 0.844_633),
            (100_000, 1.962_339, 0.841_981),
        ];
        for (freedom, significance, power) in rows {
            let found = [0.975, 0.8].map(|share| student(share, freedom).unwrap());
            assert!((found[0] - significance).abs() < 1e-5, "{freedom}: {found:?}");
            assert!((found[1] - power).abs() < 1e-5, "{freedom}: {found:?}");
        }
        for (deviate, above) in [(0.0, 0.5), (1.959_964, 0.025), (2.575_829, 0.005)] {
            assert!((normal_above(deviate) - above).abs() < 1e-7);
        }
        assert_eq!(student(0.975, 0), None);
        assert_eq!(student(f64::NAN, 3), None);
        assert_eq!(student(0.1, 3), None);
    }
}
