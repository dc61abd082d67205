//! Estimates the rate of the undisturbed program from the readings in windows. Pure.
//!
//! Inside a window each allocation takes twenty times as long as outside, and the code after a trap runs slower too, so
//! time inside does not measure time outside. Markers of progress do: a window measures how many allocations occur per
//! step of a marker, and between the windows, where nothing is disturbed, the marker's steps are timed. Their product
//! is the rate; its error is estimated by leaving out one window at a time (jackknife).

use super::local_rate;
use super::local_rate::{LocalRate, WindowSample};
use super::steps::{
    MarkerReading, MarkerSteps, NEVER_TORN, SCALES, TORN, between_steps, by_distance, median,
    presence,
};
use gctrace_probes::progress::{MarkerKey, MarkerKind};
use std::collections::HashMap;

/// A marker must have moved in this share of the windows since it was first seen, to represent the
/// program since.
const COVERAGE: f64 = 0.6;

/// And these must be this share of all: a program's start (imports) is not representative.
const MIN_PART: f64 = 0.3;

/// Units counted over one distance that make shorter ones unnecessary.
const ENOUGH_UNITS: f64 = 300.0;

/// Share of its readings that must succeed.
const READABLE: f64 = 0.4;

/// Windows before there is an estimate with an error.
const FEWEST_WINDOWS: usize = 4;

/// Number of starts tried, spread over all windows; the error must be smaller by the factor to leave out windows.
const TENTHS: usize = 10;
const MUCH_BETTER: f64 = 1.5;

/// Share of the windows that must have a rate around them, to represent all.
const NEARLY_ALL: f64 = 0.8;

/// Estimates with a larger relative error are rejected: by one marker (it may be the wrong one), and around each
/// window.
const WORST: f64 = 0.15;
const WORST_LOCAL: f64 = 0.3;

/// Markers with a relative error of at most this are good; the longest distance decides between them.
const GOOD: f64 = 0.04;

/// A marker around one window.
#[derive(Clone, Copy, Debug, Default)]
struct WindowCycle {
    free: [MarkerSteps; SCALES],
    window: MarkerSteps,
    /// Undisturbed readings with the marker present, and all.
    there: f64,
    readings: f64,
}

/// The rate of a process's allocations without a window, with its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RateEstimate {
    /// Allocations per second of the undisturbed program.
    pub per_second: f64,
    /// Standard error of `per_second`, as a share of it: 0.05 is ±5 % (1 SE).
    pub relative_error: f64,
    /// Whether one marker over all windows or a marker around each window gave the rate.
    pub basis: RateBasis,
    /// Number of windows it is based on, of all.
    pub windows: (usize, usize),
}

/// The measure of the undisturbed program's progress.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RateBasis {
    /// One marker, in all of the last windows together.
    Marker(MarkerKind),
    /// Around each window the marker with most steps there.
    EachWindow,
}

impl RateEstimate {
    /// Words for the trace on the basis of the rate, with the number of windows used.
    pub(crate) fn basis(&self) -> String {
        let (used, all) = self.windows;
        match self.basis {
            RateBasis::EachWindow => {
                format!("measured around {used} of {all} windows by loops, variables or CPU time")
            }
            RateBasis::Marker(kind) => {
                let what = match kind {
                    MarkerKind::Integer => "an integer variable",
                    MarkerKind::Iterator => "the iterator of a loop",
                    MarkerKind::YoungCount => "the collector's count of new containers",
                };
                let last = if used == all { "the" } else { "the last" };
                format!("progress measured by {what}, timed between {last} {used} windows")
            }
        }
    }
}

/// A marker, in the windows where it moved.
#[derive(Default)]
struct MarkerSamples {
    /// Number of windows before the first of them.
    first: usize,
    cycles: Vec<WindowCycle>,
}

/// Findings in the windows of one process so far: steps of markers, rates and costs of hits.
#[derive(Default)]
pub(crate) struct WindowObservations {
    windows: usize,
    markers: HashMap<MarkerKey, MarkerSamples>,
    /// The rate around each window, if a marker measured it.
    local: Vec<Option<LocalRate>>,
    /// Nanoseconds per hit in windows where a marker measured the rate.
    costs: Vec<f64>,
}

impl WindowObservations {
    /// Adds one window and the undisturbed time before it, both read at the same markers.
    pub(crate) fn add(
        &mut self,
        keys: &[MarkerKey],
        free: &[MarkerReading],
        window: &WindowSample<'_>,
    ) {
        let local = local_rate::rate(keys, free, window);
        self.costs.extend(local.and_then(|local| local.hit_ns));
        self.local.push(local);
        let window = window.readings;
        let mut moved = false;
        for (index, key) in keys.iter().enumerate() {
            if key.kind != MarkerKind::Iterator && !is_readable(free, index) {
                continue;
            }
            let cycle = WindowCycle {
                free: by_distance(free, index),
                window: between_steps(window, index),
                there: match key.kind {
                    MarkerKind::Iterator => presence(free, index) * free.len() as f64,
                    MarkerKind::Integer | MarkerKind::YoungCount => free.len() as f64,
                },
                readings: free.len() as f64,
            };
            if cycle.free.iter().chain([&cycle.window]).any(|steps| steps.forward > 0) {
                let first = self.windows;
                let seen = self
                    .markers
                    .entry(*key)
                    .or_insert_with(|| MarkerSamples { first, cycles: Vec::new() });
                seen.cycles.push(cycle);
                moved = true;
            }
        }
        // A program that waited all the time, or got no CPU, gives no information.
        self.windows += usize::from(moved);
    }

    /// Number of windows with progress of a marker.
    pub(crate) fn windows_of(&self, key: MarkerKey) -> usize {
        if let Some(seen) = self.markers.get(&key) { seen.cycles.len() } else { 0 }
    }

    /// The best estimate so far; `None` while no marker is good enough.
    pub(crate) fn estimate(&self) -> Option<RateEstimate> {
        let estimates = [self.of_each_window(), self.of_all_windows()];
        let error = |estimate: &RateEstimate| estimate.relative_error;
        estimates.into_iter().flatten().min_by(|a, b| error(a).total_cmp(&error(b)))
    }

    /// Nanoseconds per hit in this process, as far as windows measured it.
    pub(crate) fn hit_ns(&self) -> Option<f64> {
        let median = median(self.costs.iter().copied());
        if self.costs.len() >= FEWEST_WINDOWS { median } else { None }
    }

    /// The mean of the rates around the windows, if nearly all of them have one: of all windows, or of the last ones if
    /// these agree much better (a program's start is not representative).
    fn of_each_window(&self) -> Option<RateEstimate> {
        let count = self.local.len();
        let all = self.mean_since(0);
        let last = (1..TENTHS)
            .map(|tenth| count * tenth / TENTHS)
            .filter(|first| (count - first) as f64 >= MIN_PART * count as f64)
            .filter_map(|first| self.mean_since(first))
            .min_by(|a, b| a.relative_error.total_cmp(&b.relative_error));
        match (all, last) {
            (Some(all), Some(last)) if all.relative_error <= MUCH_BETTER * last.relative_error => {
                Some(all)
            }
            (all, last) => last.or(all),
        }
    }

    /// The mean of the rates around the windows from this one on.
    fn mean_since(&self, first: usize) -> Option<RateEstimate> {
        let windows = self.local.get(first..)?;
        let estimated: Vec<LocalRate> = windows.iter().filter_map(|local| *local).collect();
        let count = estimated.len() as f64;
        if estimated.len() < FEWEST_WINDOWS || count < NEARLY_ALL * windows.len() as f64 {
            return None;
        }
        let mean = estimated.iter().map(|local| local.rate).sum::<f64>() / count;
        let squares = estimated.iter().map(|local| (local.rate - mean).powi(2));
        let chance = (squares.sum::<f64>() / (count - 1.0) / count).sqrt();
        // The uncertainty of the cost of a hit is the same in all windows.
        let by_cost = estimated.iter().map(|local| local.error).sum::<f64>() / count;
        let error = chance.hypot(by_cost);
        let is_good = mean > 0.0 && error <= WORST_LOCAL * mean;
        if !is_good {
            return None;
        }
        Some(RateEstimate {
            per_second: mean,
            relative_error: error / mean,
            basis: RateBasis::EachWindow,
            windows: (estimated.len(), self.local.len()),
        })
    }

    /// The rate by one marker's steps in all windows together: for steps so long that a window
    /// contains few.
    pub(crate) fn of_all_windows(&self) -> Option<RateEstimate> {
        let mut candidates: Vec<(usize, RateEstimate)> = self
            .markers
            .iter()
            .filter_map(|(key, seen)| self.of_marker(*key, seen))
            .filter(|(_, estimate)| estimate.relative_error <= WORST)
            .collect();
        candidates.sort_by(|(_, a), (_, b)| a.relative_error.total_cmp(&b.relative_error));
        let best = candidates.first()?;
        let good = candidates.iter().filter(|(_, estimate)| estimate.relative_error <= GOOD);
        let (_, estimate) = good.max_by_key(|(scale, _)| *scale).unwrap_or(best);
        Some(*estimate)
    }

    /// Logs every marker and its readings, for `-vv`.
    pub(crate) fn explain(&self) {
        tracing::debug!("rates around the windows: {:?}", self.local);
        for (key, seen) in &self.markers {
            let cycles = without_torn(&seen.cycles);
            let in_words = |steps: MarkerSteps| {
                let MarkerSteps { forward, backward, units, length } = steps;
                format!("{forward}+ {backward}- {units:.0} in {length:.0}")
            };
            let free: Vec<String> = (0..SCALES)
                .map(|scale| in_words(total(&cycles, |cycle| cycle.free[scale], None)))
                .collect();
            tracing::debug!(
                "{key:?}, {} of {} windows: {:?}\n  undisturbed {free:?}\n  windows {}",
                cycles.len(),
                self.windows,
                self.of_marker(*key, seen),
                in_words(total(&cycles, |cycle| cycle.window, None))
            );
        }
    }

    fn of_marker(&self, key: MarkerKey, seen: &MarkerSamples) -> Option<(usize, RateEstimate)> {
        let cycles = &without_torn(&seen.cycles);
        let since_first = self.windows - seen.first;
        if cycles.len() < FEWEST_WINDOWS
            || (cycles.len() as f64) < COVERAGE * since_first as f64
            || (since_first as f64) < MIN_PART * self.windows as f64
        {
            return None;
        }
        let scale = longest(cycles, |cycle| &cycle.free)?;
        let rate = |left_out: Option<usize>| rate(cycles, scale, left_out);
        let per_second = rate(None)?;
        let count = cycles.len() as f64;
        let squares: Option<Vec<f64>> = (0..cycles.len())
            .map(|index| Some((rate(Some(index))? / per_second - 1.0).powi(2)))
            .collect();
        let variance = squares?.iter().sum::<f64>() * (count - 1.0) / count;
        let estimate = RateEstimate {
            per_second,
            relative_error: variance.sqrt(),
            basis: RateBasis::Marker(key.kind),
            windows: (since_first, self.windows),
        };
        Some((scale, estimate))
    }
}

/// Leaves out steps that no program makes.
fn without_torn(cycles: &[WindowCycle]) -> Vec<WindowCycle> {
    let mut clean = cycles.to_vec();
    clear_torn(&mut clean, |cycle| &mut cycle.free);
    clean
}

fn clear_torn(
    cycles: &mut [WindowCycle],
    of: impl Fn(&mut WindowCycle) -> &mut [MarkerSteps; SCALES],
) {
    let speeds = cycles.iter_mut().flat_map(|cycle| *of(cycle));
    let speeds = speeds.filter(|steps| steps.units > 0.0 && steps.length > 0.0);
    // Without a speed, only the least number of units counts.
    let usual = median(speeds.map(|steps| steps.units / steps.length)).unwrap_or(0.0);
    for steps in cycles.iter_mut().flat_map(&of) {
        if steps.units > NEVER_TORN + TORN * usual * steps.length {
            *steps = MarkerSteps::default();
        }
    }
}

/// A variable that changes faster than it is read can be read only while the program is not
/// running: such readings make it look too slow.
fn is_readable(readings: &[MarkerReading], index: usize) -> bool {
    let there = readings.iter().filter(|reading| reading.value(index).is_some());
    there.count() as f64 >= READABLE * readings.len() as f64
}

fn total(
    cycles: &[WindowCycle],
    of: impl Fn(&WindowCycle) -> MarkerSteps,
    left_out: Option<usize>,
) -> MarkerSteps {
    let mut sum = MarkerSteps::default();
    for (index, cycle) in cycles.iter().enumerate() {
        if left_out != Some(index) {
            sum.add(&of(cycle));
        }
    }
    sum
}

/// The longest distance where a marker advances as fast as over shorter ones.
fn longest(
    cycles: &[WindowCycle],
    of: impl Fn(&WindowCycle) -> &[MarkerSteps; SCALES],
) -> Option<usize> {
    let scale = |scale: usize| total(cycles, |cycle| of(cycle)[scale], None);
    let mut shorter = MarkerSteps::default();
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
    if shorter.units > 0.0 { found } else { None }
}

/// The steps over the longest distance, and over shorter ones as far as needed: the longer the distance, the less a
/// reading disturbs the time it measures.
fn enough(
    cycles: &[WindowCycle],
    of: impl Fn(&WindowCycle) -> &[MarkerSteps; SCALES],
    longest: usize,
    left_out: Option<usize>,
) -> MarkerSteps {
    let mut sum = MarkerSteps::default();
    for scale in (0..=longest).rev() {
        sum.add(&total(cycles, |cycle| of(cycle)[scale], left_out));
        if sum.units >= ENOUGH_UNITS {
            break;
        }
    }
    sum
}

/// Hits per step in the windows times steps per second outside.
fn rate(cycles: &[WindowCycle], scale: usize, left_out: Option<usize>) -> Option<f64> {
    let free = enough(cycles, |cycle| &cycle.free, scale, left_out);
    let window = total(cycles, |cycle| cycle.window, left_out);
    let kept = || {
        let all = cycles.iter().enumerate();
        all.filter(|(index, _)| left_out != Some(*index)).map(|(_, cycle)| cycle)
    };
    let there: f64 = kept().map(|cycle| cycle.there).sum();
    let readings: f64 = kept().map(|cycle| cycle.readings).sum();
    let possible = free.length > 0.0 && free.units > 0.0 && window.units > 0.0 && readings > 0.0;
    if !possible || !window.is_usable() {
        return None;
    }
    let speed = free.units / free.length * there / readings;
    Some(window.length / window.units * speed * 1e9)
}
