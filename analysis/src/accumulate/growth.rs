//! How the heap of one process grows, as full collections show it, and how their pauses grow with it.

use crate::regression::Regression;
use crate::report::{Basis, GrowthPoint, GrowthReport, HeapTrend, Prediction, ReachesLimit, Trend};
use crate::statistics::trend::{mann_kendall, theil_sen};
use gctrace_event::{GcReason, Pause};

/// Collections kept for `over_time`.
const SERIES: usize = 64;

/// Fewer collections show no trend: of four, no order is rarer than one in twelve.
const FEWEST_FOR_TREND: usize = 5;
/// From this number of collections in the second half of the time on, only these count: set-up is no
/// leak.
const ENOUGH_IN_HALF: usize = 8;
/// A trend of a smaller p is not by chance.
const SIGNIFICANT: f64 = 0.05;
/// A rise by less than this part of the whole, over the time that it was seen, is none to act on.
const NOTABLE: f64 = 0.01;

/// A rise over less time may be set-up, or one batch after another.
const SHORTEST_S: f64 = 30.0;

/// Of the time of a trend, the share at its end that has to rise as well: set-up, imports and caches
/// that fill raise the beginning only.
const LAST_SHARE: f64 = 1.0 / 3.0;
/// It has to rise by at least this share of the whole rise per second.
const LAST_RISE: f64 = 0.5;
/// A rise is continued for at most so many times the time that it was seen.
const MOST_EXTRAPOLATED: u64 = 10;

/// A fit that explains less than half of the variance is not used for predictions.
const ENOUGH_R_SQUARED: f64 = 0.5;

/// Full collections, one at a time, in any order.
#[derive(Debug, Clone, Default)]
pub(crate) struct GrowthState {
    regression: Regression,
    points: Option<[GrowthSample; 3]>,
    series: ThinnedSeries<GrowthSample, SERIES>,
}

#[derive(Debug, Clone, Copy)]
struct GrowthSample {
    start_ns: u64,
    objects: u64,
    duration_ns: u64,
    /// Objects left by the collection.
    left: u64,
    resident_bytes: Option<u64>,
}

/// Objects that a full collection traversed: those it left and those it freed.
pub(crate) fn traversed(pause: &Pause) -> Option<u64> {
    let left = pause.heap_objects.or(pause.oldest_objects)?;
    Some(left.saturating_add(pause.collected.unwrap_or(0)))
}

impl GrowthState {
    /// Adds a full collection; `resident_bytes`: memory of the process then. Whether the trend may
    /// have changed. If the number of traversed objects is unknown, or at interpreter
    /// shutdown, it does not show growth and is ignored.
    #[expect(clippy::cast_precision_loss, reason = "a fit needs no more than 52 bits")]
    pub(crate) fn add(&mut self, pause: &Pause, resident_bytes: Option<u64>) -> bool {
        let Some(objects) = traversed(pause) else {
            return false;
        };
        if pause.reason == GcReason::Shutdown || pause.unfinished {
            return false;
        }
        let point = GrowthSample {
            start_ns: pause.start_ns,
            objects,
            duration_ns: pause.duration_ns(),
            left: objects.saturating_sub(pause.collected.unwrap_or(0)),
            resident_bytes,
        };
        self.regression.add(point.objects as f64, point.duration_ns as f64);
        let is_kept = self.series.add(point);
        let [first, last, largest] = self.points.get_or_insert([point; 3]);
        if point.start_ns < first.start_ns {
            *first = point;
        }
        if point.start_ns >= last.start_ns {
            *last = point;
        }
        if point.objects > largest.objects {
            *largest = point;
        }
        is_kept
    }

    /// `None` for fewer than two collections. `frozen_ns` and `memory_limit_bytes`: see
    /// [`GrowthState::trend`].
    pub(crate) fn report(
        &self,
        started_ns: u64,
        frozen_ns: Option<u64>,
        memory_limit_bytes: Option<u64>,
    ) -> Option<GrowthReport> {
        let points = self.points.filter(|_| self.regression.count() > 1)?;
        let report = |point: GrowthSample| GrowthPoint {
            after_start_ns: point.start_ns.saturating_sub(started_ns),
            objects: point.objects,
            duration_ns: point.duration_ns,
        };
        let [first, last, largest] = points.map(report);
        let mut over_time: Vec<GrowthPoint> =
            self.series.points().iter().copied().map(report).collect();
        over_time.push(last);
        over_time.sort_by_key(|point| point.after_start_ns);
        over_time.dedup();
        let line = self.regression.line();
        Some(GrowthReport {
            basis: Basis::Inferred,
            collections: self.regression.count(),
            first,
            last,
            largest,
            over_time,
            ns_per_million_objects: line.map(|line| line.slope * 1e6),
            r_squared: line.map(|line| line.r_squared),
            trend: self.trend(frozen_ns, memory_limit_bytes),
            at_twice_the_heap: self.prediction(largest.objects.saturating_mul(2)),
        })
    }

    /// Whether the heap keeps growing; `None` for too few collections. `frozen_ns`: when it was
    /// frozen, before which other objects were counted; `memory_limit_bytes`: of the process.
    pub(crate) fn trend(
        &self,
        frozen_ns: Option<u64>,
        memory_limit_bytes: Option<u64>,
    ) -> Option<HeapTrend> {
        let from_ns = frozen_ns.unwrap_or(0);
        let mut points: Vec<GrowthSample> = self.series.points().to_vec();
        points.retain(|point| point.start_ns >= from_ns);
        points.sort_by_key(|point| point.start_ns);
        let (first_ns, last_ns) = (points.first()?.start_ns, points.last()?.start_ns);
        let half_ns = u64::midpoint(first_ns, last_ns);
        let half = points.partition_point(|point| point.start_ns < half_ns);
        if points.len() - half >= ENOUGH_IN_HALF {
            points.drain(..half);
        }
        if points.len() < FEWEST_FOR_TREND {
            return None;
        }
        let since_ns = points.first()?.start_ns;
        let objects = points.iter().map(|point| (point.start_ns, point.left));
        let bytes = points.iter().filter_map(|point| Some((point.start_ns, point.resident_bytes?)));
        let bytes: Vec<(u64, u64)> = bytes.collect();
        let of_bytes = trend(&bytes).filter(|_| bytes.len() >= FEWEST_FOR_TREND);
        let resident_bytes = bytes.last().map(|(_, bytes)| *bytes);
        Some(HeapTrend {
            basis: Basis::Inferred,
            collections: points.len() as u64,
            duration_ns: last_ns.saturating_sub(since_ns),
            objects: trend(&objects.collect::<Vec<_>>())?,
            resident: of_bytes,
            resident_bytes,
            memory_limit_bytes,
            reaches_limit: resident_bytes.and_then(|now| {
                let left = memory_limit_bytes?.saturating_sub(now);
                let seen_ns = last_ns.saturating_sub(since_ns);
                let reaches = of_bytes?.reaches(left)?;
                (reaches.likely_ns <= seen_ns.saturating_mul(MOST_EXTRAPOLATED)).then_some(reaches)
            }),
        })
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a prediction needs no more than 52 bits; casts of floats saturate"
    )]
    fn prediction(&self, objects: u64) -> Option<Prediction> {
        let line = self.regression.line()?;
        if line.r_squared < ENOUGH_R_SQUARED || line.slope <= 0.0 {
            return None;
        }
        Some(Prediction {
            basis: Basis::Predicted,
            objects,
            duration_ns: line.at(objects as f64).max(0.0) as u64,
        })
    }
}

/// The trend of a series of times and values, in order.
#[expect(clippy::cast_precision_loss, reason = "a trend needs no more than 52 bits")]
fn trend(series: &[(u64, u64)]) -> Option<Trend> {
    let first_ns = series.first()?.0;
    let seconds = |at_ns: u64| at_ns.saturating_sub(first_ns) as f64 / 1e9;
    let points: Vec<(f64, f64)> =
        series.iter().map(|(at_ns, value)| (seconds(*at_ns), *value as f64)).collect();
    let slope = theil_sen(&points)?;
    let values: Vec<f64> = points.iter().map(|point| point.1).collect();
    let p_value = mann_kendall(&values)?;
    let (last_s, last) = *points.last()?;
    Some(Trend {
        per_s: slope.value,
        at_least_per_s: slope.low,
        at_most_per_s: slope.high,
        p_value,
        rises: p_value < SIGNIFICANT
            && slope.low > 0.0
            && last_s >= SHORTEST_S
            && slope.value * last_s >= last * NOTABLE
            && last_slope(&points).is_some_and(|last| last >= slope.value * LAST_RISE),
    })
}

/// The slope of the end of a series, with the last point before it; `None` for fewer than two points.
fn last_slope(points: &[(f64, f64)]) -> Option<f64> {
    let (first_s, last_s) = (points.first()?.0, points.last()?.0);
    let from_s = last_s - (last_s - first_s) * LAST_SHARE;
    let before = points.partition_point(|(at_s, _)| *at_s < from_s);
    Some(theil_sen(points.get(before.saturating_sub(1)..)?)?.value)
}

impl Trend {
    /// When it has risen by so much; `None` unless it rises.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a prediction needs no more than 52 bits; casts of floats saturate"
    )]
    fn reaches(&self, more: u64) -> Option<ReachesLimit> {
        let after_ns = |per_s: f64| (more as f64 / per_s * 1e9) as u64;
        self.rises.then(|| ReachesLimit {
            basis: Basis::Predicted,
            at_least_ns: after_ns(self.at_most_per_s),
            likely_ns: after_ns(self.per_s),
            at_most_ns: after_ns(self.at_least_per_s),
        })
    }
}

/// A series of any length in bounded memory: every n-th entry, n doubled whenever there is no more
/// room; at most `ROOM` of them, evenly.
#[derive(Debug, Clone)]
pub(crate) struct ThinnedSeries<T, const ROOM: usize> {
    points: Vec<T>,
    every: u64,
    seen: u64,
}

impl<T, const ROOM: usize> Default for ThinnedSeries<T, ROOM> {
    fn default() -> Self {
        Self { points: Vec::new(), every: 1, seen: 0 }
    }
}

impl<T: Copy, const ROOM: usize> ThinnedSeries<T, ROOM> {
    /// Whether the entry was kept.
    pub(crate) fn add(&mut self, point: T) -> bool {
        let is_kept = self.seen.is_multiple_of(self.every);
        if is_kept {
            if self.points.len() >= ROOM {
                let mut index = 0usize;
                self.points.retain(|_| {
                    index += 1;
                    !index.is_multiple_of(2)
                });
                self.every *= 2;
            }
            // Also right after thinning: the series is even, so this point is in step.
            self.points.push(point);
        }
        self.seen += 1;
        is_kept
    }

    /// Whether every entry was kept.
    pub(crate) fn is_whole(&self) -> bool {
        self.every == 1
    }

    /// The entries kept, in the order in which they were added.
    pub(crate) fn points(&self) -> &[T] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(points: impl Iterator<Item = (u64, u64, u64)>) -> GrowthState {
        let mut state = GrowthState::default();
        for (at_s, left, bytes) in points {
            let pause = Pause {
                start_ns: at_s * 1_000_000_000,
                end_ns: at_s * 1_000_000_000 + 5,
                generation: 2,
                collected: Some(77),
                oldest_objects: Some(left),
                ..Pause::default()
            };
            state.add(&pause, Some(bytes));
        }
        state
    }

    /// Set-up for 100 s, then 10 objects and 1 MiB per second, with steps down now and then.
    fn leaking(n: u64) -> (u64, u64, u64) {
        let at_s = n * 10;
        let noise = (n * 7) % 5 * 30;
        match at_s {
            0..100 => (at_s, at_s * 10_000, at_s << 24),
            _ => (at_s, 1_000_000 + at_s * 10 + noise, (1 << 30) + (at_s << 20)),
        }
    }

    #[test]
    fn a_leak_has_a_slope_and_an_end() {
        let state = state((0..60).map(leaking));
        let limit = (1 << 30) + (600 << 20) + (1_800 << 20);
        let trend = state.trend(None, Some(limit)).unwrap();
        assert!((trend.objects.per_s - 10.0).abs() < 1.0, "{trend:?}");
        // 295 s of ten a second are 0.3 % of the heap: no leak that matters here.
        assert!(!trend.objects.rises, "{trend:?}");
        let resident = trend.resident.unwrap();
        assert!((resident.per_s - 1_048_576.0).abs() < 1.0, "{resident:?}");
        assert!(resident.rises && resident.p_value < 1e-6);
        let ends = trend.reaches_limit.unwrap();
        let after_ns = 1_810_000_000_000;
        assert!(ends.likely_ns.abs_diff(after_ns) < after_ns / 100, "{ends:?}");
        assert!(ends.at_least_ns <= ends.likely_ns && ends.likely_ns <= ends.at_most_ns);
        assert_eq!(state.trend(None, None).unwrap().reaches_limit, None, "no limit known");
    }

    #[test]
    fn set_up_is_no_leak_and_neither_is_a_level() {
        let state = state((0..60).map(|n| match n {
            0..20 => (n * 10, n * 50_000, n << 25),
            _ => (n * 10, 1_000_000 + n * 7 % 5, 20 << 25),
        }));
        let trend = state.trend(None, Some(1 << 40)).unwrap();
        assert!(!trend.objects.rises && !trend.resident.unwrap().rises, "{trend:?}");
        assert_eq!(trend.reaches_limit, None);
    }

    /// CPython's 25 % rule: full collections while the heap is built, and few once it is flat.
    #[test]
    fn growth_that_ends_is_set_up() {
        for until_s in [4, 20, 26] {
            let built = (0..until_s).step_by(2).map(|at_s| (at_s, at_s * 10_000, at_s << 26));
            let flat =
                (until_s..=40).step_by(7).map(|at_s| (at_s, until_s * 10_000, until_s << 26));
            let trend = state(built.chain(flat)).trend(None, Some(1 << 40)).unwrap();
            assert!(!trend.rises(), "{until_s} s: {trend:?}");
        }
    }

    /// The same rule, and a heap that grows all the time: each full collection comes at 1.25 times
    /// the heap of the one before.
    #[test]
    fn growth_that_goes_on_is_seen_at_few_collections() {
        let at_s = (0..18).map(|n| (f64::powi(1.25, n) * 2.0) as u64);
        let trend = state(at_s.map(|at_s| (at_s, at_s * 10_000, at_s << 26))).trend(None, None);
        assert!(trend.unwrap().objects.rises, "{trend:?}");
    }

    #[test]
    fn a_limit_is_predicted_for_ten_times_what_was_seen_at_most() {
        let growing = || (0..40).map(|n| (n * 10, n * 10_000, n << 20));
        let predicted = |limit| state(growing()).trend(None, Some(limit)).unwrap().reaches_limit;
        // 390 s of 100 KiB per second.
        assert!(predicted(139 << 20).is_some());
        assert_eq!(predicted((39 << 20) + (1 << 30)), None);
    }

    #[test]
    fn few_collections_show_no_trend() {
        assert_eq!(state((0..4).map(leaking)).trend(None, None), None);
        let frozen_ns = Some(560_000_000_000);
        assert_eq!(state((0..60).map(leaking)).trend(frozen_ns, None), None);
    }

    #[test]
    fn the_series_spans_the_run_evenly() {
        const ROOM: usize = 64;
        let mut series = ThinnedSeries::<u64, ROOM>::default();
        for n in 0..10_000 {
            series.add(n);
        }
        let kept = series.points();
        assert!(kept.len() <= ROOM && kept.len() > ROOM / 2, "{kept:?}");
        let step = kept[1] - kept[0];
        assert!(kept.windows(2).all(|pair| pair[1] - pair[0] == step), "{kept:?}");
        assert_eq!(kept[0], 0);
        assert!(kept.last().unwrap() + step >= 10_000);
    }
}
