//! A straight line through points, one point at a time.

/// Least squares in the stable form of Welford (1962): means and sums of deviations.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Regression {
    count: u64,
    mean_x: f64,
    mean_y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

/// The fitted line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FittedLine {
    pub(crate) slope: f64,
    pub(crate) intercept: f64,
    /// Share of the variance of y that the line explains, 0 to 1.
    pub(crate) r_squared: f64,
}

impl Regression {
    pub(crate) fn add(&mut self, x: f64, y: f64) {
        self.count += 1;
        let count = self.count as f64;
        let (dx, dy) = (x - self.mean_x, y - self.mean_y);
        self.mean_x += dx / count;
        self.mean_y += dy / count;
        self.xx += dx * (x - self.mean_x);
        self.xy += dx * (y - self.mean_y);
        self.yy += dy * (y - self.mean_y);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// `None` for fewer than three points, or if all x are equal to a thousandth of their mean:
    /// such points show no slope.
    pub(crate) fn line(&self) -> Option<FittedLine> {
        let spread = (self.xx / self.count as f64).sqrt();
        if self.count < 3 || spread.is_nan() || spread <= self.mean_x.abs() / 1000.0 {
            return None;
        }
        let slope = self.xy / self.xx;
        Some(FittedLine {
            slope,
            intercept: self.mean_y - slope * self.mean_x,
            r_squared: if self.yy > 0.0 {
                (self.xy * self.xy / (self.xx * self.yy)).clamp(0.0, 1.0)
            } else {
                0.0
            },
        })
    }
}

impl FittedLine {
    pub(crate) fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line() {
        let mut regression = Regression::default();
        for x in [1e6, 2e6, 5e6, 7e6] {
            regression.add(x, 1e5 + 40.0 * x);
        }
        let line = regression.line().unwrap();
        assert!((line.slope - 40.0).abs() < 1e-9);
        assert!((line.intercept - 1e5).abs() < 1e-3);
        assert!((line.r_squared - 1.0).abs() < 1e-12);
        assert!((line.at(1e7) - 400_100_000.0).abs() < 1e-3);
    }

    /// Anscombe's first quartet (1973): y = 3.00 + 0.500 x, r^2 = 0.67.
    #[test]
    fn anscombe() {
        let x = [10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0];
        let y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
        let mut regression = Regression::default();
        x.iter().zip(y).for_each(|(x, y)| regression.add(*x, y));
        let line = regression.line().unwrap();
        assert!((line.slope - 0.5001).abs() < 1e-4);
        assert!((line.intercept - 3.0001).abs() < 1e-4);
        assert!((line.r_squared - 0.6665).abs() < 1e-4);
    }

    #[test]
    fn no_line_through_one_place() {
        let mut regression = Regression::default();
        for y in 0..10 {
            regression.add(1e6, f64::from(y));
        }
        assert_eq!(regression.line(), None);
        assert_eq!(Regression::default().line(), None);
    }
}
