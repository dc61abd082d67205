//! How the pauses of full collections of one process grow with its heap.

use crate::regression::Regression;
use crate::report::{Basis, GrowthPoint, GrowthReport, Prediction};
use crate::time::duration;
use gctrace_event::{GcReason, Pause};

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
    Some(left.saturating_add(pause.collected.unwrap_or(0)))
}

impl GrowthState {
    /// Adds a full collection, and returns the objects that it left. If the number of traversed objects
    /// is unknown, or at interpreter shutdown, it does not show growth and is ignored.
    #[expect(clippy::cast_precision_loss, reason = "a fit needs no more than 52 bits")]
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
        Some(objects.saturating_sub(pause.collected.unwrap_or(0)))
    }

    /// The most objects that a collection traversed; `None` without any.
    pub(crate) fn largest(&self) -> Option<u64> {
        self.points.map(|[.., largest]| largest.objects)
    }

    /// `None` for fewer than two collections.
    pub(crate) fn report(&self, started_ns: u64) -> Option<GrowthReport> {
        let points = self.points.filter(|_| self.regression.count() > 1)?;
        let report = |point: GrowthPoint| GrowthPoint {
            after_start_ns: duration(started_ns, point.after_start_ns),
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
            at_twice_the_heap: self.prediction(largest.objects.saturating_mul(2)),
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
    pub(crate) fn add(&mut self, point: T) {
        if self.seen.is_multiple_of(self.every) {
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
