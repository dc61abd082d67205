//! The rate around one window, by the marker with most steps there. Pure.
//!
//! A program with phases (a loop, then freeing its results) has many rates. Windows open at times independent of the
//! phases, so the mean of the rates around each window is the overall rate.

use super::steps::{MarkerReading, TORN, between_steps, presence};
use gctrace_probes::progress::{MarkerKey, MarkerKind};

/// Steps that a marker must make, in a window and in the readings before it, to measure the rate
/// there.
const FEWEST_UNITS: f64 = 30.0;

/// Readings at most this far apart belong to one burst, in nanoseconds.
const BURST_NS: f64 = 4e6;

/// With a larger share of backward steps it is a loop that restarts between two readings.
const MAX_BACKWARD: f64 = 0.13;

/// Share of a window's CPU time that its hits may cost, for the rest to measure the rate.
const MAX_COST: f64 = 0.6;

/// Relative uncertainty of the cost of a hit: where markers measured it, and where it is assumed.
const COST_ERROR: f64 = 0.1;
const ASSUMED_COST_ERROR: f64 = 0.3;

/// Readings of one window: markers, hits and CPU time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowSample<'a> {
    /// Markers at times given in hits.
    pub readings: &'a [MarkerReading],
    /// Number of allocations in the window.
    pub hits: u64,
    /// CPU time of the process while it was open, in nanoseconds.
    pub cpu_ns: f64,
    /// Nanoseconds per hit, if markers measured that in other windows.
    pub hit_ns: Option<f64>,
    /// Nanoseconds per hit that are assumed otherwise.
    pub assumed_hit_ns: f64,
}

/// The rate around one window, by the steps of markers or by the CPU time in the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LocalRate {
    /// Allocations per second of the undisturbed program.
    pub rate: f64,
    /// The part of its error that comes from the cost of a hit, in allocations per second.
    pub error: f64,
    /// Nanoseconds per hit here, if that can be derived.
    pub hit_ns: Option<f64>,
}

/// The rate around this window; `None` if nothing measures it.
pub(crate) fn rate(
    keys: &[MarkerKey],
    free: &[MarkerReading],
    window: &WindowSample<'_>,
) -> Option<LocalRate> {
    by_marker(keys, free, window).or_else(|| by_cost(window))
}

/// The rate by the marker with the most steps around the window.
fn by_marker(
    keys: &[MarkerKey],
    free: &[MarkerReading],
    window: &WindowSample<'_>,
) -> Option<LocalRate> {
    let of_marker = |(index, key): (usize, &MarkerKey)| {
        let outside = speed(free, index)?;
        let inside = between_steps(window.readings, index);
        let there = match key.kind {
            // A finished loop cannot be read; nor can a variable that changes while it is read.
            MarkerKind::Iterator => presence(free, index),
            MarkerKind::Integer | MarkerKind::YoungCount => 1.0,
        };
        let often_back = f64::from(inside.backward) > MAX_BACKWARD * f64::from(inside.forward);
        let rate = outside.per_length * there * inside.length / inside.units * 1e9;
        if often_back { None } else { Some((outside.units.min(inside.units), rate)) }
    };
    let (_, rate) = keys
        .iter()
        .enumerate()
        .filter_map(of_marker)
        .filter(|(units, _)| *units >= FEWEST_UNITS)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let hits = window.hits as f64;
    let inside = window.cpu_ns / hits;
    let cost = inside - 1e9 / rate;
    let is_measured = hits > 0.0 && cost > MAX_COST * inside;
    Some(LocalRate { rate, error: 0.0, hit_ns: if is_measured { Some(cost) } else { None } })
}

/// The rate by the CPU time of the window minus the cost of its hits: for programs that allocate
/// so rarely that the rest is substantial.
fn by_cost(window: &WindowSample<'_>) -> Option<LocalRate> {
    let (hit_ns, unknown) = match window.hit_ns {
        Some(hit_ns) => (hit_ns, COST_ERROR),
        None => (window.assumed_hit_ns, ASSUMED_COST_ERROR),
    };
    let hits = window.hits as f64;
    let cost = hits * hit_ns;
    let rest = window.cpu_ns - cost;
    let possible = window.cpu_ns > 0.0 && cost <= MAX_COST * window.cpu_ns;
    if !possible {
        return None;
    }
    Some(LocalRate {
        rate: hits / rest * 1e9,
        error: hits / rest * 1e9 * unknown * cost / rest,
        hit_ns: None,
    })
}

struct MarkerSpeed {
    units: f64,
    per_length: f64,
}

/// Steps over pairs of readings within bursts.
fn speed(readings: &[MarkerReading], index: usize) -> Option<MarkerSpeed> {
    let mut steps: Vec<(f64, f64)> = readings
        .windows(2)
        .filter_map(|pair| {
            let [before, after] = pair else { return None };
            let length = after.at - before.at;
            let units = after.value(index)?.checked_sub(before.value(index)?)?;
            if length > 0.0 && length <= BURST_NS { Some((units as f64, length)) } else { None }
        })
        .collect();
    let all = steps.len();
    steps.retain(|(units, _)| *units >= 0.0);
    if (all - steps.len()) as f64 > MAX_BACKWARD * all as f64 {
        return None;
    }
    steps.sort_by(|(a, length_a), (b, length_b)| (a / length_a).total_cmp(&(b / length_b)));
    let (units, length) = steps.get(steps.len() / 2)?;
    let usual = units / length;
    steps.retain(|(units, length)| *units <= TORN * usual * length + FEWEST_UNITS / 2.0);
    let units: f64 = steps.iter().map(|(units, _)| units).sum();
    let length: f64 = steps.iter().map(|(_, length)| length).sum();
    if units > 0.0 { Some(MarkerSpeed { units, per_length: units / length }) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(kind: MarkerKind) -> MarkerKey {
        MarkerKey { code: 1, slot: 2, kind }
    }

    fn readings(step: f64, units: f64, there: impl Fn(u32) -> bool) -> Vec<MarkerReading> {
        let reading = |number: u32| MarkerReading {
            at: f64::from(number) * step,
            values: vec![there(number).then_some((f64::from(number) * units) as i64)],
        };
        (0..20).map(reading).collect()
    }

    proptest! {
        /// For a loop of steady speed and steady allocations per step, the rate is recovered,
        /// whatever a hit costs.
        #[test]
        fn a_steady_loop(units_per_us in 0.1..50.0f64, hits_per_unit in 0.2..20.0f64, hit_ns in 100.0..20_000.0f64) {
            let free = readings(400_000.0, 400.0 * units_per_us, |_| true);
            let inside = readings(100.0 * hits_per_unit, 100.0, |_| true);
            let hits = 1900.0 * hits_per_unit;
            let cpu_ns = hits * hit_ns + 1900.0 / units_per_us * 1000.0;
            let rate = rate(&[key(MarkerKind::Iterator)], &free, &window(&inside, hits as u64, cpu_ns)).unwrap().rate;
            let truth = units_per_us * 1e6 * hits_per_unit;
            prop_assert!((rate / truth - 1.0).abs() < 0.02, "{rate} {truth}");
        }

        /// No readings cause a panic or an invalid rate.
        #[test]
        fn any_readings(
            free in proptest::collection::vec((0.0..1e9f64, proptest::option::of(any::<i64>())), 0..20),
            inside in proptest::collection::vec((0.0..1e5f64, proptest::option::of(any::<i64>())), 0..20),
            hits in 0..100_000u64,
            cpu_ns in 0.0..1e8f64,
        ) {
            let readings = |from: &[(f64, Option<i64>)]| -> Vec<MarkerReading> {
                from.iter().map(|(at, value)| MarkerReading { at: *at, values: vec![*value] }).collect()
            };
            let (free, inside) = (readings(&free), readings(&inside));
            let local = rate(&[key(MarkerKind::Integer)], &free, &window(&inside, hits, cpu_ns));
            prop_assert!(local.is_none_or(|local| local.rate.is_finite() && local.error.is_finite()));
        }
    }

    fn window(readings: &[MarkerReading], hits: u64, cpu_ns: f64) -> WindowSample<'_> {
        WindowSample { readings, hits, cpu_ns, hit_ns: None, assumed_hit_ns: 1000.0 }
    }

    #[test]
    fn a_loop_that_is_absent_half_of_the_time() {
        let free = readings(400_000.0, 4000.0, |number| number % 4 < 2);
        let inside = readings(100.0, 100.0, |_| true);
        let rate = rate(&[key(MarkerKind::Iterator)], &free, &window(&inside, 1900, 2e6));
        let rate = rate.unwrap().rate;
        assert!((rate / 5e6 - 1.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn few_hits_in_much_time_need_no_marker() {
        let local = rate(&[], &[], &window(&[], 1000, 11e6)).unwrap();
        assert!((local.rate / 1e5 - 1.0).abs() < 1e-9, "{local:?}");
        // Three tenths of the remaining tenth are uncertain.
        assert!((local.error / local.rate - 0.03).abs() < 1e-9, "{local:?}");
        assert_eq!(rate(&[], &[], &window(&[], 10_000, 11e6)), None);
    }
}
