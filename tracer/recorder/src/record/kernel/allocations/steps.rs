//! How far a marker moved between readings. Pure.

/// Number of distances between two readings, shortest first, each kept separately: a marker that is
/// set back in between (a loop that restarts) must not be used over that distance.
pub(crate) const SCALES: usize = 10;

/// The shortest distance in the undisturbed program, in nanoseconds.
const SHORTEST_NS: f64 = 20_000.0;

/// With a larger share of backward steps a distance is too long for a marker.
const MAX_BACKWARD: f64 = 0.2;

/// A step this many times the usual one is a torn read: an object was freed and reused in between.
pub(crate) const TORN: f64 = 6.0;

/// Steps of at most this many units never count as torn: counts are coarse.
pub(crate) const NEVER_TORN: f64 = 5.0;

/// The values of all markers, read at one time.
#[derive(Clone, Debug)]
pub(crate) struct MarkerReading {
    /// Nanoseconds of undisturbed time, or hits, up to this reading.
    pub at: f64,
    /// In the order of the markers.
    pub values: Vec<Option<i64>>,
}

impl MarkerReading {
    /// The value of the marker at `index`; `None` if it could not be read this time.
    pub(crate) fn value(&self, index: usize) -> Option<i64> {
        self.values.get(index).copied().flatten()
    }
}

/// Steps of a marker over one distance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct MarkerSteps {
    pub forward: u32,
    pub backward: u32,
    pub units: f64,
    /// The distance for `units`: nanoseconds of undisturbed time, or hits in a window.
    pub length: f64,
}

impl MarkerSteps {
    pub(crate) fn add(&mut self, other: &Self) {
        self.forward += other.forward;
        self.backward += other.backward;
        self.units += other.units;
        self.length += other.length;
    }

    /// Whether it is set back neither often nor by more than chance: one torn read goes back once.
    pub(crate) fn is_usable(&self) -> bool {
        let (forward, backward) = (f64::from(self.forward), f64::from(self.backward));
        backward <= 1.0 + MAX_BACKWARD * (forward + backward)
    }
}

/// The step from each reading of the undisturbed program to the next, by its length.
pub(crate) fn by_distance(readings: &[MarkerReading], index: usize) -> [MarkerSteps; SCALES] {
    let mut found = [MarkerSteps::default(); SCALES];
    for pair in readings.windows(2) {
        let [before, after] = pair else { continue };
        let length = (after.at - before.at).max(0.0);
        let (Some(steps), Some(from), Some(to)) = (
            found.get_mut(scale_of(length / SHORTEST_NS)),
            before.value(index),
            after.value(index),
        ) else {
            continue;
        };
        let units = to.saturating_sub(from);
        steps.forward += u32::from(units > 0);
        steps.backward += u32::from(units < 0);
        if units >= 0 {
            steps.units += units as f64;
            steps.length += length;
        }
    }
    found
}

/// Each scale is three times the one before.
fn scale_of(length: f64) -> usize {
    let scale = length.max(1.0).log(3.0).floor();
    (scale as usize).min(SCALES - 1)
}

/// Share of the readings with the marker present: a finished loop cannot be read.
pub(crate) fn presence(readings: &[MarkerReading], index: usize) -> f64 {
    let there = readings.iter().filter(|reading| reading.value(index).is_some());
    there.count() as f64 / readings.len().max(1) as f64
}

/// The steps inside a window, from the first to the last that was seen. The time before the first
/// and after the last is not usable: a window is more likely to open in a long step.
pub(crate) fn between_steps(readings: &[MarkerReading], index: usize) -> MarkerSteps {
    let known: Vec<(f64, i64)> =
        readings.iter().filter_map(|reading| Some((reading.at, reading.value(index)?))).collect();
    // Without a step that goes forward, the usual one does not matter.
    let usual = median(speeds(&known)).unwrap_or(0.0);
    let mut sum = MarkerSteps::default();
    let mut first: Option<(f64, i64)> = None;
    for pair in known.windows(2) {
        let [(at, value), (next_at, next)] = pair else {
            continue;
        };
        let units = next.saturating_sub(*value);
        let torn = units as f64 > NEVER_TORN + TORN * usual * (next_at - at);
        sum.backward += u32::from(units < 0);
        match first {
            _ if units < 0 || torn => first = None,
            None if units > 0 => first = Some((*next_at, *next)),
            Some((since, from)) if units > 0 => {
                sum.forward += 1;
                sum.units += next.saturating_sub(from) as f64;
                sum.length += next_at - since;
                first = Some((*next_at, *next));
            }
            _ => {}
        }
    }
    sum
}

/// The steps per length, where there are any.
fn speeds(known: &[(f64, i64)]) -> impl Iterator<Item = f64> {
    known.windows(2).filter_map(|pair| match pair {
        [(at, value), (next_at, next)] if next > value && next_at > at => {
            Some(next.saturating_sub(*value) as f64 / (next_at - at))
        }
        _ => None,
    })
}

/// The median, the upper one of an even number; `None` of none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn readings(values: &[(f64, Option<i64>)]) -> Vec<MarkerReading> {
        let reading =
            |(at, value): &(f64, Option<i64>)| MarkerReading { at: *at, values: vec![*value] };
        values.iter().map(reading).collect()
    }

    proptest! {
        /// Wherever in a long step a window opens, the hits per step come out right.
        #[test]
        fn long_steps(offset in 0.0..2500.0f64, per_step in 500.0..2500.0f64) {
            let at = |number: u32| f64::from(number) * 100.0;
            let value = |number: u32| Some(((at(number) + offset) / per_step) as i64);
            let all: Vec<_> = (0..100).map(|number| (at(number), value(number))).collect();
            let steps = between_steps(&readings(&all), 0);
            prop_assert_eq!(steps.backward, 0);
            prop_assert!((steps.length / steps.units - per_step).abs() <= 200.0 / steps.units, "{steps:?}");
        }
    }

    #[test]
    fn a_restarted_loop_and_a_torn_reading() {
        let value = |number: i64| match number {
            13 => Some(i64::MAX),
            number => Some(number % 10),
        };
        let all: Vec<_> = (0..30).map(|number| (number as f64 * 10.0, value(number))).collect();
        let steps = between_steps(&readings(&all), 0);
        assert_eq!(steps.backward, 3);
        assert!((steps.length / steps.units - 10.0).abs() < 1e-9, "{steps:?}");
    }

    #[test]
    fn one_step_is_not_enough() {
        let all = [(0.0, Some(1)), (10.0, Some(1)), (20.0, Some(2)), (30.0, Some(2))];
        assert_eq!(between_steps(&readings(&all), 0), MarkerSteps::default());
    }
}
