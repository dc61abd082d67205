//! Whether a process keeps more and more: objects, resident memory, device memory.
//!
//! The warm-up never counts. A trend needs the last of the [`steady_parts`] of a series: it has to be the larger part
//! of the process's life, and to rise in both of its halves.

pub(crate) mod alive;
mod figures;

pub use self::figures::{GrowingLine, HeapTrend, MemoryRise, ReachesLimit, Trend};

use crate::figure::Basis;
use crate::time::{after, beyond, duration_ns, sum, times};
use gctrace_event::DeviceMemory;
use gctrace_stats::Estimate;
use gctrace_stats::steady::steady_parts;
use gctrace_stats::trend::{mann_kendall, theil_sen};
use std::collections::BTreeMap;

/// Fewer samples show no trend, unless they are on a line: with four, no order is rarer than one in twelve.
const FEWEST: usize = 5;
/// This many samples on a straight line are a trend whatever their p; for five samples p is 0.0275 at least.
const FEWEST_ON_A_LINE: usize = 4;
/// On a line: none is further from the line through the first and the last than this part of the rise.
const OFF_LINE: f64 = 0.1;
/// With fewer samples than this, a series that does not rise may yet do so: a wandering value and a rising one look
/// alike.
const FEWEST_TO_DENY: u64 = 8;
/// A series that rises by this part of its last value rises, straight or not, if so does its last third.
const BY_HALF: f64 = 0.5;
/// The last third has to take this part of such a rise: what fills up takes less.
const LAST_PART: f64 = 0.1;
/// A rise of resident memory by less is none to act on, in bytes.
const NOTABLE_RISE: u64 = 16 << 20;
/// Fewer readings of the C library's kept memory show one time, not the memory that it keeps.
const FEWEST_KEPT: usize = 2;
/// A trend of a smaller p is not by chance.
const SIGNIFICANT: f64 = 0.01;
/// The same of a rise that other facts have to confirm.
const SIGNIFICANT_RISE: f64 = 0.05;
/// A rise by less than this part of the whole, over the time that it was seen, is none to act on.
const NOTABLE: f64 = 0.01;
/// A rise over less time may be set-up, or one batch after another.
const SHORTEST_S: f64 = 30.0;
/// Of the life of the process, the least share that has to rise: what grows for longer than it had
/// not, set-up excepted.
const LEAST_SHARE: f64 = 0.5;
/// The last sample has to be within this share of its life. A heap that grows is collected as a whole whenever it has
/// grown by a quarter (CPython's `gc.c`), so the last time in the last fifth.
const LAST_BY: f64 = 2.0 / 3.0;
/// Of the time of a trend, the share at its end that has to rise as well.
const LAST_SHARE: f64 = 1.0 / 3.0;
/// It has to rise by at least this share of the whole rise per second.
const LAST_RISE: f64 = 0.5;
/// A rise is continued for at most this many times its observed time.
const MOST_EXTRAPOLATED: u64 = 10;

/// Bytes that PyTorch's allocators have allocated and reserved, by type and index of the device.
pub(crate) type AllocatedMemory = BTreeMap<(i8, i8), (u64, u64)>;

/// Samples of a process's memory and objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeakWatch {
    /// Objects that full collections left.
    objects: LowestSeries,
    resident: LowestSeries,
    /// Freed memory that the C library kept.
    kept: LowestSeries,
    /// As last reported.
    pub(crate) devices: AllocatedMemory,
    device: LowestSeries,
}

/// Facts about a process that its trends depend on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WatchedLife {
    /// From when it was recorded, and until when, in ns.
    pub(crate) since_ns: u64,
    pub(crate) until_ns: u64,
    /// End of its set-up, if that is known, in ns.
    pub(crate) set_up_ns: Option<u64>,
    /// When its heap was frozen, in ns; before, other objects were counted.
    pub(crate) frozen_ns: Option<u64>,
    /// Memory that it may use, in bytes.
    pub(crate) limit_bytes: Option<u64>,
}

impl LeakWatch {
    /// Adds the objects that a full collection left. Returns whether the trend may have changed, like the others.
    pub(crate) fn objects(&mut self, at_ns: u64, left: u64) -> bool {
        self.objects.add(at_ns, left)
    }

    pub(crate) fn resident(&mut self, at_ns: u64, bytes: u64) -> bool {
        self.resident.add(at_ns, bytes)
    }

    pub(crate) fn kept(&mut self, at_ns: u64, bytes: u64) {
        self.kept.add(at_ns, bytes);
    }

    /// The least that the C library kept in the second half of the time, as the program would use the rest again;
    /// `None` if it was not read until the end.
    pub(crate) fn kept_bytes(&self) -> Option<u64> {
        let [first, last] = [self.resident.samples().next()?, self.resident.last?];
        let middle_ns = first.0 + last.0.checked_sub(first.0)? / 2;
        let late: Vec<(u64, u64)> =
            self.kept.samples().filter(|(at_ns, _)| *at_ns >= middle_ns).collect();
        let until_ns = late.last()?.0;
        let is_enough =
            late.len() >= FEWEST_KEPT && until_ns >= middle_ns + (last.0 - middle_ns) / 2;
        if is_enough { late.iter().map(|(_, bytes)| *bytes).min() } else { None }
    }

    pub(crate) fn device(&mut self, memory: &DeviceMemory) {
        let device = (memory.device_type, memory.device);
        self.devices.insert(device, (memory.allocated, memory.reserved));
        let all = sum(self.devices.values().map(|(allocated, _)| *allocated));
        self.device.add(memory.at_ns, all);
    }

    /// Resident memory and memory on devices, each the least of some time, with the last.
    pub(crate) fn memory(&self) -> [Vec<(u64, u64)>; 2] {
        [&self.resident, &self.device].map(|series| {
            let mut all: Vec<(u64, u64)> = series.samples().collect();
            if all.last() != series.last.as_ref() {
                all.extend(series.last);
            }
            all
        })
    }

    pub(crate) fn resident_samples(&self) -> impl Iterator<Item = (u64, u64)> {
        self.resident.samples()
    }

    /// By how much the resident memory rose, if it rose to the end, by half of its last value.
    fn rise(&self) -> Option<MemoryRise> {
        let samples: Vec<(u64, u64)> = self.resident.before_exit().collect();
        let (first, last) = (samples.first()?, samples.last()?);
        let middle = samples.get(samples.len() / 2)?;
        let rise = last.1.checked_sub(first.1)?;
        let late = beyond(last.1, middle.1);
        let values: Vec<f64> = samples.iter().map(|sample| point(0, 0, sample.1).1).collect();
        let is_rise = rise >= NOTABLE_RISE.max(last.1 / 2)
            && late >= rise / 4
            && matches!(mann_kendall(&values), Some(p_value) if p_value < SIGNIFICANT_RISE);
        if !is_rise {
            return None;
        }
        Some(MemoryRise {
            from_bytes: first.1,
            to_bytes: last.1,
            duration_ns: duration_ns(first.0, last.0),
        })
    }

    /// `None` without five samples of anything.
    pub(crate) fn trend(&self, life: &WatchedLife) -> Option<HeapTrend> {
        let frozen_ns = life.frozen_ns.max(life.set_up_ns);
        let objects = trend(self.objects.samples(), frozen_ns.unwrap_or(0), life);
        let set_up_ns = life.set_up_ns.unwrap_or(0);
        let resident = trend(self.resident.before_exit(), set_up_ns, life);
        let device = trend(self.device.before_exit(), set_up_ns, life);
        objects.or(resident).or(device)?;
        let resident_bytes = self.resident.last();
        Some(HeapTrend {
            basis: Basis::Inferred,
            objects,
            resident,
            device,
            outside_python: match (resident, objects) {
                (Some(resident), Some(objects)) if resident.rises && objects.rises => Some(false),
                (Some(resident), Some(objects)) if resident.rises && objects.stands_still() => {
                    Some(true)
                }
                _ => None,
            },
            rise: self.rise(),
            lines: Vec::new(),
            has_set_up: life.set_up_ns.is_some(),
            resident_bytes,
            memory_limit_bytes: life.limit_bytes,
            reaches_limit: match (resident, life.limit_bytes, resident_bytes) {
                (Some(resident), Some(limit), Some(bytes)) if resident.rises => {
                    let reaches = reaches(&resident, beyond(limit, bytes));
                    let most_ns = times(resident.duration_ns, MOST_EXTRAPOLATED);
                    if reaches.likely_ns <= most_ns { Some(reaches) } else { None }
                }
                _ => None,
            },
        })
    }
}

/// The trend of the steady part of a series from a time on.
fn trend(
    samples: impl Iterator<Item = (u64, u64)>,
    from_ns: u64,
    life: &WatchedLife,
) -> Option<Trend> {
    let samples = samples.filter(|(at_ns, _)| *at_ns >= from_ns);
    let points: Vec<(f64, f64)> =
        samples.map(|(at_ns, value)| point(life.since_ns, at_ns, value)).collect();
    // A last part that is too short to count as at rest has a trend together with earlier parts.
    let parts = steady_parts(&points);
    let mut long = parts.iter().rev().filter_map(|from| {
        let steady = points.get(*from..)?;
        if steady.len() >= FEWEST || is_line(steady) { Some(steady) } else { None }
    });
    let climbs = climbs(&points);
    let steady = if climbs { points.as_slice() } else { long.next()? };
    let is_last = climbs || parts.last() == Some(&(points.len() - steady.len()));
    let (first_s, (last_s, last)) = (steady.first()?.0, *steady.last()?);
    let slope = theil_sen(steady)?;
    let values: Vec<f64> = steady.iter().map(|point| point.1).collect();
    let p_value = mann_kendall(&values)?;
    let length_s = last_s - first_s;
    let until_s = point(life.since_ns, life.until_ns, 0).0.max(last_s);
    let begin_s = point(life.since_ns, from_ns, 0).0;
    let is_long = length_s >= SHORTEST_S && length_s >= (until_s - begin_s) * LEAST_SHARE;
    let is_line = is_line(steady);
    let is_no_chance = p_value < SIGNIFICANT && slope.low > 0.0 && (climbs || both_rise(steady));
    let grows = (is_line || is_no_chance)
        && is_long
        && last_s - begin_s >= (until_s - begin_s) * LAST_BY
        && slope.value * length_s >= last * NOTABLE;
    let goes_on = matches!(last_slope(steady), Some(end) if end.value >= slope.value * LAST_RISE);
    let rises = grows && is_last && (climbs || goes_on);
    let late = points.partition_point(|(at_s, _)| *at_s < (begin_s + until_s) / 2.0);
    let late = gctrace_units::part(&points, late..);
    Some(Trend {
        samples: steady.len() as u64,
        since_ns: seconds(first_s),
        duration_ns: seconds(length_s),
        per_s: slope.value,
        at_least_per_s: slope.low,
        at_most_per_s: slope.high,
        p_value,
        rises,
        is_unclear: !rises && ((steady.len() as u64) < FEWEST_TO_DENY || length_s < SHORTEST_S),
        slows: !rises
            && last_s - begin_s >= (until_s - begin_s) * LAST_BY
            && until_s - begin_s >= 2.0 * SHORTEST_S
            && rises_throughout(late),
    })
}

/// Whether points are on a line that rises.
fn is_line(points: &[(f64, f64)]) -> bool {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return false };
    let (length_s, rise) = (last.0 - first.0, last.1 - first.1);
    let is_near = |point: &(f64, f64)| {
        let on_line = first.1 + rise * (point.0 - first.0) / length_s;
        (point.1 - on_line).abs() <= rise * OFF_LINE
    };
    points.len() >= FEWEST_ON_A_LINE
        && rise >= last.1 * OFF_LINE
        && length_s > 0.0
        && points.iter().all(is_near)
}

/// Whether a series rises by half of its last value, to its end, however crooked: load changes how fast a leak is.
fn climbs(points: &[(f64, f64)]) -> bool {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return false };
    let rise = last.1 - first.1;
    let from_s = last.0 - (last.0 - first.0) * LAST_SHARE;
    let late = points.get(points.partition_point(|(at_s, _)| *at_s < from_s)..);
    let late_rise = || Some(late?.last()?.1 - late?.first()?.1);
    let values: Vec<f64> = points.iter().map(|point| point.1).collect();
    rise >= last.1 * BY_HALF
        && matches!(late_rise(), Some(late) if late >= rise * LAST_PART)
        && points.len() as u64 >= FEWEST_TO_DENY
        && matches!(mann_kendall(&values), Some(p_value) if p_value < SIGNIFICANT)
}

/// The trend of a part of a growing whole, over the time of the whole's own trend: whether it rises by more than
/// chance, in both halves. The trend of a sample wanders, so no straight line is required.
pub(super) fn part_trend(
    series: &LowestSeries,
    whole: &Trend,
    life: &WatchedLife,
) -> Option<Trend> {
    let from_ns = after(life.since_ns, whole.since_ns);
    let samples = series.samples().filter(|(at_ns, _)| *at_ns >= from_ns);
    let points: Vec<(f64, f64)> =
        samples.map(|(at_ns, value)| point(life.since_ns, at_ns, value)).collect();
    let (first_s, last_s) = (points.first()?.0, points.last()?.0);
    let slope = theil_sen(&points)?;
    let values: Vec<f64> = points.iter().map(|point| point.1).collect();
    Some(Trend {
        samples: points.len() as u64,
        since_ns: seconds(first_s),
        duration_ns: seconds(last_s - first_s),
        per_s: slope.value,
        at_least_per_s: slope.low,
        at_most_per_s: slope.high,
        p_value: mann_kendall(&values)?,
        rises: rises_throughout(&points),
        is_unclear: false,
        slows: false,
    })
}

/// A point of a series: the time in s from another on, and the value.
fn point(from_ns: u64, at_ns: u64, value: u64) -> (f64, f64) {
    (duration_ns(from_ns, at_ns) as f64 / 1e9, value as f64)
}

/// Whether the slopes of both halves of a series are above 0, by their intervals.
fn both_rise(points: &[(f64, f64)]) -> bool {
    let middle = points.len() / 2;
    let halves =
        [points.get(..=middle), points.get(middle..)].map(|half| Some(theil_sen(half?)?.low));
    halves.iter().all(|low| matches!(low, Some(low) if *low > 0.0))
}

/// Whether all of a series rises by more than chance, however fast, and notably.
fn rises_throughout(points: &[(f64, f64)]) -> bool {
    let values: Vec<f64> = points.iter().map(|point| point.1).collect();
    let (Some(slope), Some(p_value)) = (theil_sen(points), mann_kendall(&values)) else {
        return false;
    };
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return false };
    points.len() >= FEWEST
        && p_value < SIGNIFICANT
        && slope.low > 0.0
        && slope.value * (last.0 - first.0) >= last.1 * NOTABLE
        && both_rise(points)
}

/// The slope of the end of a series, with the last point before it; `None` for fewer than two points.
fn last_slope(points: &[(f64, f64)]) -> Option<Estimate> {
    let (first_s, last_s) = (points.first()?.0, points.last()?.0);
    let from_s = last_s - (last_s - first_s) * LAST_SHARE;
    let before = points.partition_point(|(at_s, _)| *at_s < from_s);
    theil_sen(points.get(before.saturating_sub(1)..)?)
}

fn seconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// When a trend that rises has risen by so much.
fn reaches(trend: &Trend, more: u64) -> ReachesLimit {
    let after_ns = |per_s: f64| seconds(point(0, 0, more).1 / per_s);
    ReachesLimit {
        basis: Basis::Predicted,
        at_least_ns: after_ns(trend.at_most_per_s),
        likely_ns: after_ns(trend.per_s),
        at_most_ns: after_ns(trend.at_least_per_s),
    }
}

/// Length of the first times of a series, in ns.
const FIRST_SLOT_NS: u64 = 1_000_000_000;
/// A process that exits adds a reading or two, one per second.
const MOST_OF_EXIT: usize = 2;
/// Samples of a series at most: the slopes of a trend are its square.
const MOST_SAMPLES: usize = 64;

/// The lowest value of each of at most 64 times of equal length: the remainder when temporary work is done. This
/// length doubles as the series grows. In any order.
#[derive(Clone, Debug)]
pub(super) struct LowestSeries {
    slot_ns: u64,
    /// By number of the time since 0: the lowest value, and when it was.
    slots: BTreeMap<u64, (u64, u64)>,
    last: Option<(u64, u64)>,
}

impl Default for LowestSeries {
    fn default() -> Self {
        Self { slot_ns: FIRST_SLOT_NS, slots: BTreeMap::new(), last: None }
    }
}

impl LowestSeries {
    /// Whether a new time began.
    pub(super) fn add(&mut self, at_ns: u64, value: u64) -> bool {
        if self.last.is_none_or(|(last_ns, _)| last_ns <= at_ns) {
            self.last = Some((at_ns, value));
        }
        let slots = self.slots.len();
        Self::put(&mut self.slots, at_ns / self.slot_ns, (at_ns, value));
        let is_new = self.slots.len() > slots;
        while self.slots.len() > MOST_SAMPLES {
            self.slot_ns = times(self.slot_ns, 2);
            for (_, sample) in std::mem::take(&mut self.slots) {
                Self::put(&mut self.slots, sample.0 / self.slot_ns, sample);
            }
        }
        is_new
    }

    fn put(slots: &mut BTreeMap<u64, (u64, u64)>, slot: u64, sample: (u64, u64)) {
        let kept = slots.entry(slot).or_insert(sample);
        if sample.1 < kept.1 {
            *kept = sample;
        }
    }

    /// Times and values, in order.
    fn samples(&self) -> impl Iterator<Item = (u64, u64)> {
        self.slots.values().copied()
    }

    /// The same without the last falling ones, at most [`MOST_OF_EXIT`]: a process that exits frees its memory, and a
    /// line does not end in that.
    fn before_exit(&self) -> impl Iterator<Item = (u64, u64)> {
        let last: Vec<u64> = self.slots.values().rev().map(|(_, value)| *value).collect();
        let falls = |pair: &&[u64]| matches!(pair, [after, before] if after < before);
        let falls = last.windows(2).take(MOST_OF_EXIT).take_while(falls).count();
        self.samples().take(last.len().saturating_sub(falls))
    }

    /// The latest value.
    pub(super) fn last(&self) -> Option<u64> {
        Some(self.last?.1)
    }
}

#[cfg(test)]
pub(super) mod tests;
