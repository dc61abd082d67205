//! From what windows saw to the rate of the undisturbed program. Pure.
//!
//! Inside a window each allocation takes twenty times as long as outside, and what follows a trap runs
//! slower too, so time inside says nothing about time outside. Markers of progress do: a window tells
//! how many allocations go with one step of a marker, and between the windows, where nothing is
//! disturbed, the marker's steps are timed. Their product is the rate; its error is found by leaving
//! out one window at a time.

use super::local;
use super::local::Window;
use gctrace_probes::progress::MarkerKey;
use gctrace_probes::progress::MarkerKind;
use std::collections::HashMap;

/// Distances between two readings, shortest first, each kept apart: a marker that is set back in between
/// (a loop that begins again) must not be used over that distance.
pub(crate) const SCALES: usize = 10;

/// The shortest distance in the undisturbed program, in nanoseconds, and in a window, in hits.
const SHORTEST_NS: f64 = 20_000.0;
const SHORTEST_HITS: f64 = 50.0;

/// More of its steps back than this and a distance is too long for a marker.
const MOST_BACK: f64 = 0.2;

/// A marker must have moved in this part of the windows since it was first met, to stand for the program since.
const COVERAGE: f64 = 0.6;

/// And these must be this part of all: what a program does at its start (imports) is another program.
const LEAST_PART: f64 = 0.3;

/// Units counted over one distance that make shorter ones needless.
const ENOUGH_UNITS: f64 = 300.0;

/// Part of its readings that must succeed.
const READABLE: f64 = 0.4;

/// Windows before there is an estimate with an error.
const FEWEST_WINDOWS: usize = 4;

/// A step so many times the usual one is a torn read: an object freed and used again in between.
const TORN: f64 = 6.0;

/// Steps of so many units are never taken for torn: counts are coarse.
const NEVER_TORN: f64 = 5.0;

/// Part of the windows that must tell a rate around them, to stand for all.
const NEARLY_ALL: f64 = 0.8;

/// Estimates with a larger error than this are none: by one marker, which may be the wrong one, and around each
/// window.
const WORST: f64 = 0.15;
const WORST_LOCAL: f64 = 0.3;

/// An error below which a marker is good enough for the longest distance to decide between them.
const GOOD: f64 = 0.04;

/// All markers at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// Nanoseconds of undisturbed time, or hits, up to this moment.
    pub at: f64,
    /// In the order of the markers.
    pub values: Vec<Option<i64>>,
}

/// Steps of a marker over one distance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Steps {
    forward: u32,
    backward: u32,
    units: f64,
    /// Nanoseconds or hits.
    length: f64,
}

impl Steps {
    fn add(&mut self, other: &Self) {
        self.forward += other.forward;
        self.backward += other.backward;
        self.units += other.units;
        self.length += other.length;
    }

    /// Set back neither often nor by more than chance: one torn read goes back once.
    fn is_usable(&self) -> bool {
        let (forward, backward) = (f64::from(self.forward), f64::from(self.backward));
        backward <= 1.0 + MOST_BACK * (forward + backward)
    }
}

/// A marker around one window.
#[derive(Clone, Copy, Debug, Default)]
struct Cycle {
    free: [Steps; SCALES],
    window: [Steps; SCALES],
}

/// The estimate of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// Allocations per second of the undisturbed program.
    pub per_second: f64,
    /// Standard error of it, as a part of it.
    pub relative_error: f64,
    /// On what it rests.
    pub basis: Basis,
    /// It rests on so many windows, of so many.
    pub windows: (usize, usize),
}

/// What told the progress of the undisturbed program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Basis {
    /// One marker, in all of the last windows together.
    Marker(MarkerKind),
    /// Around each window the marker that tells most there.
    EachWindow,
}

impl Estimate {
    /// In words.
    pub(crate) fn basis(&self) -> String {
        let (used, all) = self.windows;
        match self.basis {
            Basis::EachWindow => {
                format!("progress told by loops and variables, timed before each of {used} windows")
            }
            Basis::Marker(kind) => {
                let what = match kind {
                    MarkerKind::Integer => "an integer variable",
                    MarkerKind::Iterator => "the iterator of a loop",
                    MarkerKind::YoungCount => "the collector's count of new containers",
                };
                let last = if used == all { "the" } else { "the last" };
                format!("progress told by {what}, timed between {last} {used} windows")
            }
        }
    }
}

/// A marker in the windows in which it moved.
#[derive(Default)]
struct Seen {
    /// How many windows there were before the first of them.
    first: usize,
    cycles: Vec<Cycle>,
}

/// Everything seen of one process.
#[derive(Default)]
pub(crate) struct Observations {
    windows: usize,
    markers: HashMap<MarkerKey, Seen>,
    /// The rate around each window, where a marker told it.
    local: Vec<Option<f64>>,
}

impl Observations {
    /// Adds one window and the undisturbed time before it, both read at the same markers.
    pub(crate) fn add(&mut self, keys: &[MarkerKey], free: &[Reading], window: &Window<'_>) {
        self.local.push(local::rate(keys, free, window));
        let window = window.readings;
        let mut moved = false;
        for (index, key) in keys.iter().enumerate() {
            if !is_readable(free, index) {
                continue;
            }
            let cycle = Cycle {
                free: steps(free, index, SHORTEST_NS),
                window: steps(window, index, SHORTEST_HITS),
            };
            if cycle
                .free
                .iter()
                .chain(&cycle.window)
                .any(|steps| steps.forward > 0)
            {
                let first = self.windows;
                let seen = self.markers.entry(*key).or_insert_with(|| Seen {
                    first,
                    cycles: Vec::new(),
                });
                seen.cycles.push(cycle);
                moved = true;
            }
        }
        // A program that waited all the time, or was not given a CPU, tells nothing.
        self.windows += usize::from(moved);
    }

    /// In how many windows a marker moved.
    pub(crate) fn windows_of(&self, key: MarkerKey) -> usize {
        self.markers.get(&key).map_or(0, |seen| seen.cycles.len())
    }

    /// The best estimate so far; `None` while no marker is good for one.
    pub(crate) fn estimate(&self) -> Option<Estimate> {
        self.of_each_window().or_else(|| self.of_all_windows())
    }

    /// The mean of the rates around the windows, where nearly all of them tell one.
    fn of_each_window(&self) -> Option<Estimate> {
        let rates: Vec<f64> = self.local.iter().filter_map(|rate| *rate).collect();
        let count = rates.len() as f64;
        if rates.len() < FEWEST_WINDOWS || count < NEARLY_ALL * self.local.len() as f64 {
            return None;
        }
        let mean = rates.iter().sum::<f64>() / count;
        let squares = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
        let error = (squares / (count - 1.0) / count).sqrt();
        (mean > 0.0 && error <= WORST_LOCAL * mean).then(|| Estimate {
            per_second: mean,
            relative_error: error / mean,
            basis: Basis::EachWindow,
            windows: (rates.len(), self.local.len()),
        })
    }

    /// By one marker's steps in all windows together: for steps so long that a window holds few.
    fn of_all_windows(&self) -> Option<Estimate> {
        let mut candidates: Vec<(usize, Estimate)> = self
            .markers
            .iter()
            .filter_map(|(key, seen)| self.of_marker(*key, seen))
            .filter(|(_, estimate)| estimate.relative_error <= WORST)
            .collect();
        candidates.sort_by(|(_, a), (_, b)| a.relative_error.total_cmp(&b.relative_error));
        let best = candidates.first()?;
        candidates
            .iter()
            .filter(|(_, estimate)| estimate.relative_error <= GOOD)
            .max_by_key(|(scale, _)| *scale)
            .or(Some(best))
            .map(|(_, estimate)| *estimate)
    }

    /// Every marker with what was seen of it, for `-vv`.
    pub(crate) fn explain(&self) {
        tracing::debug!("rates around the windows: {:?}", self.local);
        for (key, seen) in &self.markers {
            let cycles = without_torn(&seen.cycles);
            let words = |of: &dyn Fn(&Cycle) -> [Steps; SCALES]| -> Vec<String> {
                (0..SCALES)
                    .map(|scale| {
                        total(
                            &cycles,
                            |cycle| of(cycle).get(scale).copied().unwrap_or_default(),
                            None,
                        )
                    })
                    .map(|steps| {
                        let Steps {
                            forward,
                            backward,
                            units,
                            length,
                        } = steps;
                        format!("{forward}+ {backward}- {units:.0} in {length:.0}")
                    })
                    .collect()
            };
            tracing::debug!(
                "{key:?}, {} of {} windows: {:?}\n  undisturbed {:?}\n  windows {:?}",
                cycles.len(),
                self.windows,
                self.of_marker(*key, seen),
                words(&|cycle| cycle.free),
                words(&|cycle| cycle.window)
            );
        }
    }

    fn of_marker(&self, key: MarkerKey, seen: &Seen) -> Option<(usize, Estimate)> {
        let cycles = &without_torn(&seen.cycles);
        let since_first = self.windows - seen.first;
        if cycles.len() < FEWEST_WINDOWS
            || (cycles.len() as f64) < COVERAGE * since_first as f64
            || (since_first as f64) < LEAST_PART * self.windows as f64
        {
            return None;
        }
        let (free, window) = (
            longest(cycles, |cycle| &cycle.free)?,
            longest(cycles, |cycle| &cycle.window)?,
        );
        let rate = |left_out: Option<usize>| rate(cycles, free, window, left_out);
        let per_second = rate(None)?;
        let count = cycles.len() as f64;
        let squares: Option<Vec<f64>> = (0..cycles.len())
            .map(|index| Some((rate(Some(index))? / per_second - 1.0).powi(2)))
            .collect();
        let variance = squares?.iter().sum::<f64>() * (count - 1.0) / count;
        let estimate = Estimate {
            per_second,
            relative_error: variance.sqrt(),
            basis: Basis::Marker(key.kind),
            windows: (since_first, self.windows),
        };
        Some((free, estimate))
    }
}

/// Leaves out steps that no program makes.
fn without_torn(cycles: &[Cycle]) -> Vec<Cycle> {
    let mut clean = cycles.to_vec();
    clear_torn(&mut clean, |cycle| &mut cycle.free);
    clear_torn(&mut clean, |cycle| &mut cycle.window);
    clean
}

fn clear_torn(cycles: &mut [Cycle], of: impl Fn(&mut Cycle) -> &mut [Steps; SCALES]) {
    let mut speeds: Vec<f64> = cycles
        .iter_mut()
        .flat_map(|cycle| *of(cycle))
        .filter(|steps| steps.units > 0.0 && steps.length > 0.0)
        .map(|steps| steps.units / steps.length)
        .collect();
    speeds.sort_by(f64::total_cmp);
    let usual = speeds.get(speeds.len() / 2).copied().unwrap_or(0.0);
    for steps in cycles.iter_mut().flat_map(|cycle| of(cycle)) {
        if steps.units > NEVER_TORN + TORN * usual * steps.length {
            *steps = Steps::default();
        }
    }
}

/// A variable that changes faster than it is read can be read only while the program stands still: what such
/// readings say is too slow.
fn is_readable(readings: &[Reading], index: usize) -> bool {
    let value = |reading: &Reading| reading.values.get(index).copied().flatten();
    let there = readings
        .iter()
        .filter(|reading| value(reading).is_some())
        .count();
    there as f64 >= READABLE * readings.len() as f64
}

/// The step from each reading to the next, by its length in units of `shortest`.
fn steps(readings: &[Reading], index: usize, shortest: f64) -> [Steps; SCALES] {
    let mut found = [Steps::default(); SCALES];
    for pair in readings.windows(2) {
        let [before, after] = pair else { continue };
        let value = |reading: &Reading| reading.values.get(index).copied().flatten();
        let length = (after.at - before.at).max(0.0);
        let (Some(steps), Some(from), Some(to)) = (
            found.get_mut(scale_of(length / shortest)),
            value(before),
            value(after),
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

fn total(cycles: &[Cycle], of: impl Fn(&Cycle) -> Steps, left_out: Option<usize>) -> Steps {
    let mut sum = Steps::default();
    for (index, cycle) in cycles.iter().enumerate() {
        if left_out != Some(index) {
            sum.add(&of(cycle));
        }
    }
    sum
}

/// The longest distance over which a marker goes forward, as fast as over shorter ones.
fn longest(cycles: &[Cycle], of: impl Fn(&Cycle) -> &[Steps; SCALES]) -> Option<usize> {
    let scale = |scale: usize| {
        total(
            cycles,
            |cycle| of(cycle).get(scale).copied().unwrap_or_default(),
            None,
        )
    };
    let mut shorter = Steps::default();
    let mut found = None;
    for (index, steps) in (0..SCALES).map(scale).enumerate() {
        if steps.length <= 0.0 {
            continue;
        }
        let fell_behind = shorter.units > 20.0
            && steps.units / steps.length < 0.6 * shorter.units / shorter.length;
        if !steps.is_usable() || fell_behind {
            break;
        }
        shorter.add(&steps);
        found = Some(index);
    }
    found.filter(|_| shorter.units > 0.0)
}

/// The steps over the longest distance, and over shorter ones as far as needed: the longer, the less a reading
/// disturbs what it times.
fn enough(
    cycles: &[Cycle],
    of: impl Fn(&Cycle) -> &[Steps; SCALES],
    longest: usize,
    left_out: Option<usize>,
) -> Steps {
    let mut sum = Steps::default();
    for scale in (0..=longest).rev() {
        let steps = |cycle: &Cycle| of(cycle).get(scale).copied().unwrap_or_default();
        sum.add(&total(cycles, steps, left_out));
        if sum.units >= ENOUGH_UNITS {
            break;
        }
    }
    sum
}

/// Hits per step in the windows times steps per second outside.
fn rate(cycles: &[Cycle], free: usize, window: usize, left_out: Option<usize>) -> Option<f64> {
    let free = enough(cycles, |cycle| &cycle.free, free, left_out);
    let window = enough(cycles, |cycle| &cycle.window, window, left_out);
    let possible = free.length > 0.0 && window.units > 0.0 && free.units > 0.0;
    possible.then(|| window.length / window.units * free.units / free.length * 1e9)
}
