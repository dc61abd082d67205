//! The figures of two sides, their differences, and how sure these are.

use super::RunFacts;
use super::report::{FigureComparison, FigureId, Interval, RateUnit};
use crate::report::{Basis, TrainingPart, TurnFigures};
use gctrace_stats::{Estimate, bootstrap, float};

const NS_PER_S: f64 = 1e9;
/// A resample with a figure below this share of the figure itself is as good as 0.
const LEAST_RATIO: f64 = 1e-6;

/// Both sides of a comparison.
#[derive(Clone, Copy)]
pub(super) struct Sides<'a> {
    pub(super) before: &'a [RunFacts<'a>],
    pub(super) after: &'a [RunFacts<'a>],
}

/// A figure of the parts of training: one sum divided by another.
type PartFigure = (fn(&TrainingPart) -> f64, fn(&TrainingPart) -> f64);

/// A figure of turns.
type TurnFigure = (FigureId, fn(&TurnFigures) -> Option<f64>);

/// All of turns.
const TURNS: [TurnFigure; 3] = [
    (FigureId::TurnP99, |turns| turns.p99_ns.map(float)),
    (FigureId::TurnLongest, |turns| Some(float(turns.longest_ns))),
    (FigureId::ArrivalP99, |turns| turns.lag_p99_ns.map(float)),
];

/// All figures, in the order of the text.
pub(super) fn figures(sides: Sides<'_>, per: RateUnit) -> Vec<FigureComparison> {
    let mut figures = Vec::new();
    let cpu_time = sides.of_cpu_time(FigureId::GcCpuTime, per, |part| part.paused_cpu_ns);
    let (of_run, of_part) = match per {
        RateUnit::Run => (Some(cpu_time), None),
        RateUnit::Step | RateUnit::Second => (None, Some(cpu_time)),
    };
    figures.extend(of_run);
    if per == RateUnit::Step {
        let length: PartFigure = (|part| float(part.duration_ns), |part| float(part.steps));
        figures.push(sides.of_parts(FigureId::StepTime, None, length));
        figures.push(sides.of_cpu_time(FigureId::StepCpuTime, per, |part| part.cpu_ns));
    }
    let share: PartFigure = (|part| float(part.paused_ns), |part| float(part.duration_ns));
    figures.push(sides.of_parts(FigureId::GcShare, None, share));
    figures.extend(of_part);
    figures.push(sides.of_runs(FigureId::GpuCost, Basis::Inferred, |run| run.gpu_cost));
    for generation in 0..4u8 {
        let seen = |run: &RunFacts<'_>| run.has_generation(generation);
        if sides.before.iter().chain(sides.after).any(seen) {
            figures.extend(sides.of_generation(generation, per));
        }
    }
    figures.push(sides.of_runs(FigureId::Longest, Basis::Measured, |run| run.longest_ns));
    for (figure, of) in TURNS {
        figures.push(sides.of_runs(figure, Basis::Measured, |run| of(run.turns?)));
    }
    figures.push(sides.of_runs(FigureId::OffCpuShare, Basis::Measured, |run| run.off_cpu));
    figures.push(sides.of_runs(FigureId::Objects, Basis::Measured, |run| run.objects));
    figures.push(sides.of_runs(FigureId::HeapGrowth, Basis::Measured, |run| run.growth));
    figures.push(sides.of_runs(FigureId::Arenas, Basis::Measured, |run| run.arenas_bytes));
    figures.retain(|figure| figure.before.is_some() || figure.after.is_some());
    figures
}

/// Steps or seconds of a part.
pub(super) fn units(per: RateUnit) -> fn(&TrainingPart) -> f64 {
    match per {
        RateUnit::Step => |part| float(part.steps),
        RateUnit::Second => |part| float(part.duration_ns) / NS_PER_S,
        RateUnit::Run => |_| 1.0,
    }
}

impl Sides<'_> {
    fn of_generation(&self, generation: u8, per: RateUnit) -> [FigureComparison; 2] {
        let number = if generation < 3 { Some(generation) } else { None };
        let over = units(per);
        let index = usize::from(generation);
        let count = move |part: &TrainingPart| {
            let sum = part.by_generation.get(index);
            if let Some(sum) = sum { float(sum.count) } else { 0.0 }
        };
        let time = move |part: &TrainingPart| {
            let sum = part.by_generation.get(index);
            if let Some(sum) = sum { float(sum.time_ns) } else { 0.0 }
        };
        [
            self.of_parts(FigureId::Pauses, number, (count, over)),
            self.of_parts(FigureId::PauseTime, number, (time, over)),
        ]
    }

    /// A figure that each part of training has: the noise within and between several runs is known.
    fn of_parts<N, D>(
        &self,
        figure: FigureId,
        generation: Option<u8>,
        (part, whole): (N, D),
    ) -> FigureComparison
    where
        N: Fn(&TrainingPart) -> f64,
        D: Fn(&TrainingPart) -> f64,
    {
        let values = |runs: &[RunFacts<'_>]| -> Option<Vec<Vec<f64>>> {
            let of_run = |run: &RunFacts<'_>| {
                linearized(run.series.map(|series| &series.parts)?, &part, &whole)
            };
            runs.iter().map(of_run).collect()
        };
        let (before, after) = (values(self.before), values(self.after));
        let mean = |runs: &Option<Vec<Vec<f64>>>| mean_of_runs(runs.as_ref()?);
        let mut found = FigureComparison::of(figure, Basis::Measured, mean(&before), mean(&after));
        found.generation = generation;
        if let (Some(before), Some(after)) = (before, after) {
            if before.iter().chain(&after).all(|parts| parts.len() == 1) {
                // Whole runs.
                let (before, after) = (before.concat(), after.concat());
                found.set_intervals(bootstrap::difference(&after, &before), None);
                found.p = gctrace_stats::welch(&after, &before).filter(|_| found.is_sure());
                return found;
            }
            let difference = bootstrap::nested(&after, &before, |after, before| after - before);
            // A resample may have none of the rare events: the interval has no upper end then.
            let least = mean_of_runs(&before).unwrap_or(0.0) * LEAST_RATIO;
            let ratio = bootstrap::nested(&after, &before, |after, before| {
                if before > least { after / before - 1.0 } else { f64::INFINITY }
            });
            found.set_intervals(difference, ratio.filter(|ratio| ratio.high.is_finite()));
            found.p = if difference.is_some() { p_of_runs(&before, &after) } else { None };
        }
        found
    }

    /// Over the runs: full collections are in few parts, so that resampled parts vary more than runs.
    fn of_cpu_time(
        &self,
        figure: FigureId,
        per: RateUnit,
        of: fn(&TrainingPart) -> Option<u64>,
    ) -> FigureComparison {
        self.of_runs(figure, Basis::Measured, |run| run.cpu_ns(per, of))
    }

    /// A figure of whole runs: only several runs show its noise.
    fn of_runs(
        &self,
        figure: FigureId,
        basis: Basis,
        value: impl Fn(&RunFacts<'_>) -> Option<f64>,
    ) -> FigureComparison {
        let values = |runs: &[RunFacts<'_>]| runs.iter().map(&value).collect::<Option<Vec<f64>>>();
        let (before, after) = (values(self.before), values(self.after));
        let mean = |runs: &Option<Vec<f64>>| gctrace_stats::mean(runs.as_deref()?);
        let mut found = FigureComparison::of(figure, basis, mean(&before), mean(&after));
        if let (Some(before), Some(after)) = (before, after) {
            found.set_intervals(bootstrap::difference(&after, &before), None);
            found.p = if found.is_sure() { gctrace_stats::welch(&after, &before) } else { None };
        }
        found
    }
}

impl FigureComparison {
    fn of(figure: FigureId, basis: Basis, before: Option<f64>, after: Option<f64>) -> Self {
        let both = before.zip(after);
        let exact = |value: f64| Interval { value, low: None, high: None };
        Self {
            figure,
            generation: None,
            basis,
            before,
            after,
            difference: both.map(|(before, after)| exact(after - before)),
            change_ratio: both
                .filter(|(before, _)| *before != 0.0)
                .map(|(before, after)| exact(after / before - 1.0)),
            p: None,
        }
    }

    /// Whether the difference has an interval.
    fn is_sure(&self) -> bool {
        matches!(self.difference, Some(difference) if difference.low.is_some())
    }

    /// Sets the intervals. Without an interval of the ratio, the difference's is divided by
    /// `before`.
    fn set_intervals(&mut self, difference: Option<Estimate>, ratio: Option<Estimate>) {
        let finite = |interval: &mut Option<Interval>, (low, high): (f64, f64)| {
            if let Some(interval) = interval
                && low.is_finite()
                && high.is_finite()
            {
                interval.low = Some(low);
                interval.high = Some(high);
            }
        };
        let Some(found) = difference else {
            return;
        };
        finite(&mut self.difference, (found.low, found.high));
        let before = self.before.unwrap_or(f64::NAN);
        let ends = ratio
            .map_or((found.low / before, found.high / before), |ratio| (ratio.low, ratio.high));
        finite(&mut self.change_ratio, ends);
        // What is never negative falls by no more than all of it.
        if let Some(Interval { value: -1.0.., low: Some(low), .. }) = &mut self.change_ratio {
            *low = low.max(-1.0);
        }
    }
}

/// Values with the ratio of the sums as mean; they spread as the ratio does (the delta method): A. C. Davison and D.
/// V. Hinkley, Bootstrap Methods and Their Application, 1997, section 2.7.2. `None` if there is nothing to divide by.
fn linearized(
    parts: &[TrainingPart],
    part: impl Fn(&TrainingPart) -> f64,
    whole: impl Fn(&TrainingPart) -> f64,
) -> Option<Vec<f64>> {
    let total: f64 = parts.iter().map(&whole).sum();
    if total <= 0.0 {
        return None;
    }
    let ratio = parts.iter().map(&part).sum::<f64>() / total;
    let mean = total / float(parts.len() as u64);
    let residual = |training_part: &TrainingPart| {
        ratio + (part(training_part) - ratio * whole(training_part)) / mean
    };
    Some(parts.iter().map(residual).collect())
}

fn mean_of_runs(runs: &[Vec<f64>]) -> Option<f64> {
    let means: Option<Vec<f64>> = runs.iter().map(|run| gctrace_stats::mean(run)).collect();
    gctrace_stats::mean(&means?)
}

fn p_of_runs(before: &[Vec<f64>], after: &[Vec<f64>]) -> Option<f64> {
    let means = |runs: &[Vec<f64>]| -> Option<Vec<f64>> {
        runs.iter().map(|run| gctrace_stats::mean(run)).collect()
    };
    gctrace_stats::welch(&means(after)?, &means(before)?)
}
