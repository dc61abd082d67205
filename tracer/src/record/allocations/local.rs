//! The rate around one window, by the marker that tells most there. Pure.
//!
//! A program with phases (a loop, then freeing what it made) has many rates. Windows open at moments that have
//! nothing to do with them, so the mean of the rates around each window is the rate of the whole.

use super::estimate::Reading;
use gctrace_probes::progress::MarkerKey;
use gctrace_probes::progress::MarkerKind;

/// Steps that a marker must make, in a window and in the readings before it, to tell the rate there.
const FEWEST_UNITS: f64 = 30.0;

/// Readings so close together belong to one burst, in nanoseconds.
const BURST_NS: f64 = 4e6;

/// A speed so many times the usual one is a torn read: an object freed and used again in between.
const TORN: f64 = 6.0;

/// More of its steps back than this and it is a loop that begins anew between two readings.
const MOST_BACK: f64 = 0.13;

/// A part of a window's CPU time below which the cost of its hits does not matter to what is said.
const LITTLE: f64 = 0.1;

/// What a window saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window<'a> {
    /// Markers at moments told in hits.
    pub readings: &'a [Reading],
    /// Allocations in all.
    pub hits: u64,
    /// CPU time of the process while it was open, in nanoseconds.
    pub cpu_ns: f64,
    /// What a hit costs at most, in nanoseconds. Not what this process seems to pay: that follows from the rate.
    pub hit_ns: f64,
}

/// Allocations per second of the undisturbed program around this window; `None` where no marker tells it.
pub(crate) fn rate(keys: &[MarkerKey], free: &[Reading], window: &Window<'_>) -> Option<f64> {
    let cost = window.hits as f64 * window.hit_ns;
    if window.cpu_ns > 0.0 && cost <= LITTLE * window.cpu_ns {
        return Some(window.hits as f64 * 1e9 / (window.cpu_ns - cost));
    }
    let of_marker = |(index, key): (usize, &MarkerKey)| {
        let outside = speed(free, index, BURST_NS)?;
        let inside = speed(window.readings, index, f64::INFINITY)?;
        let there = match key.kind {
            // A loop that is over cannot be read; a variable that changes while it is read cannot either.
            MarkerKind::Iterator => presence(free, index),
            MarkerKind::Integer | MarkerKind::YoungCount => 1.0,
        };
        let rate = outside.per_length * there / inside.per_length * 1e9;
        Some((outside.units.min(inside.units), rate))
    };
    keys.iter()
        .enumerate()
        .filter_map(of_marker)
        .filter(|(units, _)| *units >= FEWEST_UNITS)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, rate)| rate)
}

struct Speed {
    units: f64,
    per_length: f64,
}

fn value(reading: &Reading, index: usize) -> Option<i64> {
    reading.values.get(index).copied().flatten()
}

/// Part of the readings in which the marker was there.
fn presence(readings: &[Reading], index: usize) -> f64 {
    let there = readings
        .iter()
        .filter(|reading| value(reading, index).is_some());
    there.count() as f64 / readings.len() as f64
}

/// Steps over pairs of readings no further apart than `most`.
fn speed(readings: &[Reading], index: usize, most: f64) -> Option<Speed> {
    let mut steps: Vec<(f64, f64)> = readings
        .windows(2)
        .filter_map(|pair| {
            let [before, after] = pair else { return None };
            let length = after.at - before.at;
            let units = value(after, index)?.checked_sub(value(before, index)?)?;
            (length > 0.0 && length <= most).then_some((units as f64, length))
        })
        .collect();
    let all = steps.len();
    steps.retain(|(units, _)| *units >= 0.0);
    if (all - steps.len()) as f64 > MOST_BACK * all as f64 {
        return None;
    }
    steps.sort_by(|(a, length_a), (b, length_b)| (a / length_a).total_cmp(&(b / length_b)));
    let (units, length) = steps.get(steps.len() / 2)?;
    let usual = units / length;
    steps.retain(|(units, length)| *units <= TORN * usual * length + FEWEST_UNITS / 2.0);
    let units: f64 = steps.iter().map(|(units, _)| units).sum();
    let length: f64 = steps.iter().map(|(_, length)| length).sum();
    (units > 0.0).then_some(Speed {
        units,
        per_length: units / length,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(kind: MarkerKind) -> MarkerKey {
        MarkerKey {
            code: 1,
            slot: 2,
            kind,
        }
    }

    fn readings(step: f64, units: f64, there: impl Fn(u32) -> bool) -> Vec<Reading> {
        let reading = |number: u32| Reading {
            at: f64::from(number) * step,
            values: vec![there(number).then_some((f64::from(number) * units) as i64)],
        };
        (0..20).map(reading).collect()
    }

    proptest! {
        /// A loop of steady speed whose steps allocate so much: the rate comes back, whatever a hit costs.
        #[test]
        fn a_steady_loop(units_per_us in 0.1..50.0f64, hits_per_unit in 0.2..20.0f64, hit_ns in 100.0..20_000.0f64) {
            let free = readings(400_000.0, 400.0 * units_per_us, |_| true);
            let inside = readings(100.0 * hits_per_unit, 100.0, |_| true);
            let hits = 1900.0 * hits_per_unit;
            let cpu_ns = hits * hit_ns + 1900.0 / units_per_us * 1000.0;
            let window = Window { readings: &inside, hits: hits as u64, cpu_ns, hit_ns };
            let rate = rate(&[key(MarkerKind::Iterator)], &free, &window).unwrap();
            let truth = units_per_us * 1e6 * hits_per_unit;
            prop_assert!((rate / truth - 1.0).abs() < 0.02, "{rate} {truth}");
        }

        /// No readings make it panic or give a rate that is none.
        #[test]
        fn any_readings(
            free in proptest::collection::vec((0.0..1e9f64, proptest::option::of(any::<i64>())), 0..20),
            inside in proptest::collection::vec((0.0..1e5f64, proptest::option::of(any::<i64>())), 0..20),
            hits in 0..100_000u64,
            cpu_ns in 0.0..1e8f64,
        ) {
            let readings = |from: &[(f64, Option<i64>)]| -> Vec<Reading> {
                from.iter().map(|(at, value)| Reading { at: *at, values: vec![*value] }).collect()
            };
            let (free, inside) = (readings(&free), readings(&inside));
            let window = Window { readings: &inside, hits, cpu_ns, hit_ns: 900.0 };
            let rate = rate(&[key(MarkerKind::Integer)], &free, &window);
            prop_assert!(rate.is_none_or(|rate| rate.is_finite() && rate >= 0.0));
        }
    }

    #[test]
    fn a_loop_that_is_over_half_of_the_time() {
        let free = readings(400_000.0, 4000.0, |number| number % 4 < 2);
        let inside = readings(100.0, 100.0, |_| true);
        let window = Window {
            readings: &inside,
            hits: 1900,
            cpu_ns: 2e6,
            hit_ns: 900.0,
        };
        let rate = rate(&[key(MarkerKind::Iterator)], &free, &window).unwrap();
        assert!((rate / 5e6 - 1.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn few_hits_in_much_time_need_no_marker() {
        let window = Window {
            readings: &[],
            hits: 1000,
            cpu_ns: 40e6,
            hit_ns: 1000.0,
        };
        let rate = rate(&[], &[], &window).unwrap();
        assert!((rate / (1000.0 / 0.039) - 1.0).abs() < 1e-9, "{rate}");
    }
}
