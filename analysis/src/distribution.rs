//! Lengths of pauses, and their percentiles, in bounded memory.

use crate::time::add_to;
use hdrhistogram::Histogram;

/// Up to this many values are kept as they are, and percentiles are exact.
const EXACT: usize = 4096;

/// Percentiles by nearest rank: exact up to 4,096 values, from a histogram with logarithmic
/// buckets (HdrHistogram) beyond. Count, sum and maximum are always exact.
#[derive(Debug, Clone)]
pub(crate) struct Distribution {
    digits: u8,
    count: u64,
    sum: u64,
    max: u64,
    exact: Vec<u64>,
    histogram: Option<Box<Histogram<u64>>>,
}

/// With three digits.
impl Default for Distribution {
    fn default() -> Self {
        Self::new(3)
    }
}

impl Distribution {
    /// `digits`: significant decimal digits of percentiles once the histogram is used; 2 take
    /// some 30 KiB, 3 ten times as much.
    pub(crate) fn new(digits: u8) -> Self {
        Self { digits, count: 0, sum: 0, max: 0, exact: Vec::new(), histogram: None }
    }

    pub(crate) fn add(&mut self, value: u64) {
        self.count += 1;
        add_to(&mut self.sum, value);
        self.max = self.max.max(value);
        if let Some(histogram) = &mut self.histogram {
            record(histogram, value, 1);
            return;
        }
        self.exact.push(value);
        if self.exact.len() > EXACT {
            self.use_histogram();
        }
    }

    /// Adds the values of a distribution with the same digits.
    pub(crate) fn merge(&mut self, other: Self) {
        self.count += other.count;
        add_to(&mut self.sum, other.sum);
        self.max = self.max.max(other.max);
        self.exact.extend(other.exact);
        let counted = self.histogram.is_some() || other.histogram.is_some();
        if counted || self.exact.len() > EXACT {
            self.use_histogram();
        }
        let Some(histogram) = &mut self.histogram else { return };
        // Any value of a bucket is counted in the same bucket.
        for bucket in other.histogram.iter().flat_map(|other| other.iter_recorded()) {
            record(histogram, bucket.value_iterated_to(), bucket.count_at_value());
        }
    }

    /// From here on values are only counted by bucket.
    fn use_histogram(&mut self) {
        let mut histogram = match self.histogram.take() {
            Some(histogram) => histogram,
            // Fails for more than five digits only; then every value is kept.
            None => match Histogram::new(self.digits) {
                Ok(histogram) => Box::new(histogram),
                Err(_) => return,
            },
        };
        histogram.auto(true);
        for value in std::mem::take(&mut self.exact) {
            record(&mut histogram, value, 1);
        }
        self.histogram = Some(histogram);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    pub(crate) fn max(&self) -> Option<u64> {
        if self.count > 0 { Some(self.max) } else { None }
    }

    /// The smallest value that at least `percent` of all values do not exceed.
    pub(crate) fn percentiles<const N: usize>(&self, percent: [f64; N]) -> Option<[u64; N]> {
        if self.count == 0 {
            return None;
        }
        if let Some(histogram) = &self.histogram {
            return Some(
                percent.map(|percent| histogram.value_at_percentile(percent).min(self.max)),
            );
        }
        let mut sorted = self.exact.clone();
        sorted.sort_unstable();
        Some(percent.map(|percent| {
            let rank = rank(percent, sorted.len()).max(1);
            sorted[rank - 1]
        }))
    }

    /// Largest relative error of the percentiles; 0 if they are exact.
    pub(crate) fn error_ratio(&self) -> f64 {
        match &self.histogram {
            // Exact on every platform, unlike a negative power.
            Some(histogram) => 1.0 / 10f64.powi(i32::from(histogram.sigfig())),
            None => 0.0,
        }
    }
}

/// The histogram grows as needed; values beyond its range go to the last bucket.
fn record(histogram: &mut Histogram<u64>, value: u64, count: u64) {
    if histogram.record_n(value, count).is_err() {
        histogram.saturating_record_n(value, count);
    }
}

fn rank(percent: f64, count: usize) -> usize {
    (percent / 100.0 * count as f64).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_by_nearest_rank() {
        let mut distribution = Distribution::new(3);
        assert_eq!(distribution.percentiles([50.0]), None);
        (1..=10).for_each(|value| distribution.add(value * 100));
        assert_eq!(
            distribution.percentiles([0.0, 50.0, 90.0, 99.0, 100.0]),
            Some([100, 500, 900, 1000, 1000])
        );
        assert_eq!((distribution.count(), distribution.sum()), (10, 5500));
        assert!(distribution.error_ratio() == 0.0);
    }

    #[test]
    fn a_histogram_stays_within_its_error() {
        for digits in [2, 3] {
            let mut distribution = Distribution::new(digits);
            let values: Vec<u64> = (0..100_000u64).map(|n| n * n + 1000).collect();
            values.iter().for_each(|value| distribution.add(*value));
            let [p50, p90, p99] = distribution.percentiles([50.0, 90.0, 99.0]).unwrap();
            for (found, index) in [(p50, 49_999), (p90, 89_999), (p99, 98_999)] {
                let truth = values[index] as f64;
                let error = (found as f64 - truth).abs() / truth;
                assert!(error <= distribution.error_ratio(), "{found} for {truth}");
            }
            assert_eq!(distribution.max(), values.last().copied());
        }
    }

    #[test]
    fn merged_parts_are_the_whole() {
        const PERCENT: [f64; 5] = [0.0, 10.0, 50.0, 99.0, 100.0];
        let values: Vec<u64> = (0..3 * EXACT as u64)
            .map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (n % 64))
            .collect();
        for (length, at) in [
            (0, 0),
            (EXACT, 0),
            (EXACT, 7),
            (EXACT + 1, EXACT),
            (3 * EXACT, 1),
            (3 * EXACT, EXACT + 1),
            (3 * EXACT, 3 * EXACT - 1),
        ] {
            let of = |values: &[u64]| {
                let mut distribution = Distribution::new(3);
                values.iter().for_each(|value| distribution.add(*value));
                distribution
            };
            let (first, second) = values[..length].split_at(at);
            let whole = of(&values[..length]);
            let mut merged = of(first);
            merged.merge(of(second));
            let figures = |distribution: &Distribution| {
                (distribution.count(), distribution.sum(), distribution.max())
            };
            assert_eq!(figures(&merged), figures(&whole), "{length} at {at}");
            assert_eq!(merged.percentiles(PERCENT), whole.percentiles(PERCENT), "{length} at {at}");
            assert!(merged.error_ratio() == whole.error_ratio());
        }
    }
}
