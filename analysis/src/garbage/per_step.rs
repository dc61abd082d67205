//! Objects freed per training step.

use crate::bounded::ThinnedSeries;
use crate::spans::StepSpan;
use gctrace_stats::float;

/// Entries kept of a series.
const SERIES: usize = 128;
/// Fewer examined collections do not show whether each step frees the same.
const FEWEST_COLLECTIONS: usize = 9;
/// Largest deviation of a quarter of the steps from all that counts as the same.
const SAME: f64 = 0.1;

/// A running count of what examined collections freed.
#[derive(Clone, Debug, Default)]
pub(crate) struct CountSeries {
    /// Time of a collection, and the count with it.
    points: ThinnedSeries<(u64, u64), SERIES>,
    last: (u64, u64),
}

impl CountSeries {
    /// Adds what one collection freed; times ascend but for a few.
    pub(super) fn add(&mut self, at_ns: u64, count: u64) {
        self.last = (at_ns, self.last.1.saturating_add(count));
        self.points.add(self.last);
    }

    /// The count up to and including a time.
    fn at(&self, at_ns: u64) -> f64 {
        let points = self.points.points();
        let behind = points.partition_point(|(point_ns, _)| *point_ns <= at_ns);
        let before = gctrace_units::part(points, ..behind).last();
        let Some((from_ns, from)) = before.copied() else { return 0.0 };
        let next = points.get(behind).copied().unwrap_or(self.last);
        if self.points.is_whole() || next.0 <= from_ns {
            return if at_ns >= self.last.0 { float(self.last.1) } else { float(from) };
        }
        let share = float(at_ns.min(next.0) - from_ns) / float(next.0 - from_ns);
        float(from) + (float(next.1) - float(from)) * share
    }
}

/// The examined collections in training, by steps.
#[derive(Clone, Debug)]
pub(super) struct StepTicks {
    /// Time of a collection, and the steps before it.
    ticks: Vec<(u64, f64)>,
}

impl StepTicks {
    /// `examined`: of all examined collections; `steps`: of one thread, by start. `None` if fewer
    /// than two collections are within the steps.
    pub(super) fn of(examined: &CountSeries, steps: &[StepSpan]) -> Option<Self> {
        let (first, last) = (steps.first()?, steps.last()?);
        let points = examined.points.points().iter().chain([&examined.last]);
        let mut ticks: Vec<(u64, f64)> = Vec::new();
        for (at_ns, _) in points {
            if (first.start_ns..=last.end_ns).contains(at_ns) {
                ticks.push((*at_ns, steps_before(steps, *at_ns)));
            }
        }
        ticks.sort_by_key(|(at_ns, _)| *at_ns);
        ticks.dedup_by_key(|(at_ns, _)| *at_ns);
        if ticks.len() > 1 { Some(Self { ticks }) } else { None }
    }

    /// Mean count per step, and whether it is the same throughout; `None` if the collections are
    /// within one step.
    pub(super) fn per_step(&self, counts: &CountSeries) -> Option<(f64, bool)> {
        let (first, last) = (*self.ticks.first()?, *self.ticks.last()?);
        let rate = |from: (u64, f64), to: (u64, f64)| {
            let steps = to.1 - from.1;
            if steps > 0.0 { Some((counts.at(to.0) - counts.at(from.0)) / steps) } else { None }
        };
        if last.1 - first.1 < 1.0 {
            return None;
        }
        let mean = rate(first, last)?;
        let quarter = self.ticks.len() / 4;
        let same = (0..4).all(|index| {
            let to = match index {
                3 => Some(&last),
                _ => self.ticks.get((index + 1) * quarter),
            };
            let (Some(from), Some(to)) = (self.ticks.get(index * quarter), to) else {
                return false;
            };
            let Some(quarter_rate) = rate(*from, *to) else { return false };
            (quarter_rate - mean).abs() <= mean * SAME
        });
        let constant = same && mean > 0.0 && self.ticks.len() >= FEWEST_COLLECTIONS;
        Some((mean, constant))
    }
}

/// Steps before a time, including the elapsed part of the current step.
fn steps_before(steps: &[StepSpan], at_ns: u64) -> f64 {
    let begun = steps.partition_point(|step| step.start_ns <= at_ns);
    let Some(last) = gctrace_units::part(steps, ..begun).last() else { return 0.0 };
    let length_ns = float(last.end_ns.saturating_sub(last.start_ns).max(1));
    let within = float(at_ns.saturating_sub(last.start_ns)) / length_ns;
    float(begun as u64 - 1) + within.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::StepSource;
    use crate::spans::index::Index;

    fn steps(count: u64) -> Vec<StepSpan> {
        let step = |number| StepSpan {
            start_ns: 1_000 + number * 100,
            end_ns: 1_100 + number * 100,
            thread: Index::new(0),
            cpu_ns: None,
            number,
            source: StepSource::BackwardPass,
        };
        (0..count).map(step).collect()
    }

    /// A collection every 250 ns from `from_ns` on frees the objects made since the last one.
    fn freed(collections: u64, per_step: impl Fn(u64) -> u64) -> CountSeries {
        let mut series = CountSeries::default();
        series.add(500, 77);
        for index in 1..=collections {
            let at_ns = 1_000 + index * 250;
            series.add(at_ns, per_step(index) * 5 / 2);
        }
        series
    }

    #[test]
    fn as_many_in_every_step() {
        for collections in [20, 40, 400, 4_000] {
            let counts = freed(collections, |_| 6);
            let steps = steps(collections * 5 / 2);
            let ticks = StepTicks::of(&counts, &steps).unwrap();
            let (mean, constant) = ticks.per_step(&counts).unwrap();
            assert!((mean - 6.0).abs() < 0.01, "{collections}: {mean}");
            assert!(constant, "{collections}");
        }
    }

    #[test]
    fn more_and_more_is_not_the_same_in_every_step() {
        let counts = freed(40, |index| index);
        let steps = steps(100);
        let ticks = StepTicks::of(&counts, &steps).unwrap();
        let (mean, constant) = ticks.per_step(&counts).unwrap();
        assert!((15.0..25.0).contains(&mean), "{mean}");
        assert!(!constant);
    }

    #[test]
    fn collections_outside_of_the_steps_show_nothing() {
        let counts = freed(0, |_| 0);
        assert!(StepTicks::of(&counts, &steps(100)).is_none());
        assert!(StepTicks::of(&counts, &[]).is_none());
        let within_one = freed(40, |_| 6);
        assert!(StepTicks::of(&within_one, &steps(3)).is_none());
    }
}
