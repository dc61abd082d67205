//! Medians and other order statistics, and ratios.
//!
//! The median of an even number of values is one of the middle two: figures are measured times, not means of them.

/// The value at a fraction of the sorted values: 2 is the median, the higher one of an even number;
/// 4 the first quartile. `None` without values. Reorders them.
pub fn quantile<T: Ord + Copy>(values: &mut [T], fraction: usize) -> Option<T> {
    nth(values, values.len() / fraction)
}

/// The median; for an even number of values the higher one. `None` without values. Reorders them.
pub fn median_high<T: Ord + Copy>(values: &mut [T]) -> Option<T> {
    quantile(values, 2)
}

/// The median; for an even number of values the lower one. `None` without values. Reorders them.
pub fn median_low<T: Ord + Copy>(values: &mut [T]) -> Option<T> {
    nth(values, values.len().checked_sub(1)? / 2)
}

/// The median; for an even number of values the mean of the middle two. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// Median distance from a center; for an even number the lower one. `None` without values.
pub fn spread(values: &[i64], center: i64) -> Option<u64> {
    let mut distances: Vec<u64> = values.iter().map(|value| value.abs_diff(center)).collect();
    median_low(&mut distances)
}

fn nth<T: Ord + Copy>(values: &mut [T], place: usize) -> Option<T> {
    if place < values.len() { Some(*values.select_nth_unstable(place).1) } else { None }
}

/// `value` times `part` / `whole`; 0 of nothing.
pub fn scaled(value: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(part);
    let scaled = scaled.checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// `part` / `whole`, `None` where there is no whole.
pub fn ratio(part: u64, whole: u64) -> Option<f64> {
    if whole > 0 { Some(part as f64 / whole as f64) } else { None }
}

/// Events per second; `None` if no time passed.
pub fn rate(count: u64, time_ns: u64) -> Option<f64> {
    ratio(count, time_ns).map(|per_ns| per_ns * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles() {
        assert_eq!(median_low::<u64>(&mut []), None);
        assert_eq!(median_high::<u64>(&mut []), None);
        assert_eq!(median_low(&mut [3, 1, 2]), Some(2));
        assert_eq!(median_high(&mut [3, 1, 2]), Some(2));
        assert_eq!(median_low(&mut [4, 3, 1, 2]), Some(2));
        assert_eq!(median_high(&mut [4, 3, 1, 2]), Some(3));
        assert_eq!(spread(&[1, 2, 9], 2), Some(1));
        assert_eq!(quantile(&mut [8, 7, 6, 5, 4, 3, 2, 1], 4), Some(3));
    }
}
