//! How the pauses of full collections of one process grow with its heap.

use crate::bounded::ThinnedSeries;
use crate::figure::Basis;
use crate::regression::Regression;
use crate::time::{beyond, duration_ns, sum, times};
use gctrace_event::{GcReason, Pause};
use serde::Serialize;

/// How the pause of a full collection grows with the heap of one process. Collections at
/// interpreter shutdown are omitted.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrowthReport {
    /// Basis of the fit: inferred, as it assumes that the pause is linear in the number of objects.
    pub basis: Basis,
    /// Number of full collections with a known number of objects.
    pub collections: u64,
    /// The first of these collections, by start.
    pub first: GrowthPoint,
    /// The last of these collections, by start.
    pub last: GrowthPoint,
    /// The one with the most objects.
    pub largest: GrowthPoint,
    /// At most 64 of these collections, evenly spaced in the series, in order of time.
    pub over_time: Vec<GrowthPoint>,
    /// Slope of the fit: additional ns per million additional objects; `null` if the heap hardly
    /// changed.
    pub ns_per_million_objects: Option<f64>,
    /// Coefficient of determination of the fit, 0 to 1; `null` without a fit.
    pub r_squared: Option<f64>,
    /// Predicted pause for a heap twice as large as the largest; `null` if `r_squared` is below
    /// 0.5.
    pub at_twice_the_heap: Option<Prediction>,
}

impl GrowthReport {
    /// The collection nearest to this share of the time between the first and the last.
    pub fn at(&self, ratio: f64) -> GrowthPoint {
        let span = self.last.after_start_ns - self.first.after_start_ns;
        let at_ns = self.first.after_start_ns + (span as f64 * ratio) as u64;
        let distance = |point: &&GrowthPoint| point.after_start_ns.abs_diff(at_ns);
        *self.over_time.iter().min_by_key(distance).unwrap_or(&self.last)
    }
}

/// One full collection of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrowthPoint {
    /// Start, in ns after the start of the recording.
    pub after_start_ns: u64,
    /// Objects traversed: those left plus those freed.
    pub objects: u64,
    /// Length of the pause, in ns.
    pub duration_ns: u64,
}

/// A predicted pause of a full collection.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Prediction {
    /// Always predicted, by the linear fit of the recorded collections.
    pub basis: Basis,
    /// Number of objects in the predicted heap: twice the largest recorded.
    pub objects: u64,
    /// Length of a full collection of that heap, in ns.
    pub duration_ns: u64,
}

/// Collections kept for `over_time`.
const SERIES: usize = 64;

/// A fit that explains less than half of the variance is not used for predictions.
const ENOUGH_R_SQUARED: f64 = 0.5;

/// Full collections, one at a time, in any order.
#[derive(Debug, Clone, Default)]
pub(crate) struct GrowthState {
    regression: Regression,
    /// With starts on the clock of the trace, as all points here.
    points: Option<[GrowthPoint; 3]>,
    series: ThinnedSeries<GrowthPoint, SERIES>,
}

/// Objects that a full collection traversed: those it left and those it freed.
pub(crate) fn traversed(pause: &Pause) -> Option<u64> {
    let left = pause.heap_objects.or(pause.oldest_objects)?;
    Some(sum([left].into_iter().chain(pause.collected)))
}

impl GrowthState {
    /// Adds a full collection, and returns the objects that it left. If the number of traversed objects
    /// is unknown, or at interpreter shutdown, it does not show growth and is ignored.
    pub(crate) fn add(&mut self, pause: &Pause) -> Option<u64> {
        let objects = traversed(pause)?;
        if pause.reason == GcReason::Shutdown || pause.unfinished {
            return None;
        }
        let (after_start_ns, duration_ns) = (pause.start_ns, pause.duration_ns());
        let point = GrowthPoint { after_start_ns, objects, duration_ns };
        self.regression.add(point.objects as f64, point.duration_ns as f64);
        self.series.add(point);
        let [first, last, largest] = self.points.get_or_insert([point; 3]);
        if point.after_start_ns < first.after_start_ns {
            *first = point;
        }
        if point.after_start_ns >= last.after_start_ns {
            *last = point;
        }
        if point.objects > largest.objects {
            *largest = point;
        }
        Some(if let Some(freed) = pause.collected { beyond(objects, freed) } else { objects })
    }

    /// The most objects that a collection traversed; `None` without any.
    pub(crate) fn largest(&self) -> Option<u64> {
        self.points.map(|[.., largest]| largest.objects)
    }

    /// `None` for fewer than two collections.
    pub(crate) fn report(&self, started_ns: u64) -> Option<GrowthReport> {
        if self.regression.count() <= 1 {
            return None;
        }
        let points = self.points?;
        let report = |point: GrowthPoint| GrowthPoint {
            after_start_ns: duration_ns(started_ns, point.after_start_ns),
            ..point
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
            at_twice_the_heap: self.prediction(times(largest.objects, 2)),
        })
    }

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
