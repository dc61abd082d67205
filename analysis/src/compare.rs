//! Runs before and after a change, compared.
//!
//! Owns what is compared and how sure a difference is. Each run goes through the aggregator by
//! itself; its [`Report`] has the figures, and the training phase in parts. Parts are resampled
//! within runs, and runs within a side (`statistics.rs`); of one run on a side there are figures and
//! no verdict.

mod facts;
mod figures;
mod idle;
mod lines;
mod report;
mod sentence;
mod series;

pub use report::{
    ComparedRun, Comparison, ComparisonNote, ComparisonVerdict, FactChange, FactId,
    FigureComparison, FigureId, IdleComparison, Interval, LineChange, LineComparison, Outcome,
    RateUnit, SCHEMA,
};

use self::figures::Sides;
use crate::report::{Basis, PhasesReport, ProcessReport, Report, TrainingPart, TrainingSeries};
use crate::statistics;
use crate::statistics::bootstrap::{FEWEST, SEVERAL};
use crate::time::stats::ratio;
use crate::time::sum;

const NS_PER_S: f64 = 1e9;

/// Compares runs: one report per run, at least one on each side.
#[must_use]
pub fn compare(before: &[Report], after: &[Report]) -> Comparison {
    let of_side = |reports: &'_ [Report]| reports.iter().map(compared).collect();
    let facts_before: Vec<RunFacts<'_>> = before.iter().map(RunFacts::of).collect();
    let facts_after: Vec<RunFacts<'_>> = after.iter().map(RunFacts::of).collect();
    let sides = Sides { before: &facts_before, after: &facts_after };
    let runs = || facts_before.iter().chain(&facts_after);
    let has_steps = runs().all(|run| run.series.is_some_and(|series| series.steps() > 0));
    let per = if has_steps { RateUnit::Step } else { RateUnit::Second };
    let facts = facts::compare(before, after);
    let figures = figures::figures(sides, per, has_steps && !different_marks(sides));
    let notes = notes(sides, &facts.changed, before.iter().chain(after));
    Comparison {
        schema: SCHEMA.to_owned(),
        gctrace: env!("CARGO_PKG_VERSION").to_owned(),
        verdict: verdict(&figures, notes.contains(&ComparisonNote::OneRun)),
        before: of_side(before),
        after: of_side(after),
        notes,
        changed: facts.changed,
        unchanged: facts.unchanged,
        unknown: facts.unknown,
        per,
        figures,
        lines: lines::compare(&facts_before, &facts_after, per),
        idle: idle::compare(before, after),
    }
}

impl Comparison {
    /// The comparison of a figure; `None` if no run has it.
    #[must_use]
    pub fn figure(&self, figure: FigureId) -> Option<&FigureComparison> {
        of(&self.figures, figure)
    }
}

impl FigureComparison {
    /// Whether the interval excludes no difference; `None` without an interval.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        let difference = self.difference?;
        Some(match (difference.low?, difference.high?) {
            (_, high) if high < 0.0 => Outcome::Better,
            (low, _) if low > 0.0 => Outcome::Worse,
            _ => Outcome::NoDifference,
        })
    }
}

/// What is compared of one run.
struct RunFacts<'a> {
    series: Option<&'a TrainingSeries>,
    phases: Option<&'a PhasesReport>,
    /// Cost of the pauses by replay, as a share of the run.
    gpu_cost: Option<f64>,
    /// Longest pause in training.
    longest_ns: Option<f64>,
    off_cpu: Option<f64>,
    /// Most objects in the heap.
    objects: Option<f64>,
    /// Growth of the heap, in objects per second.
    growth: Option<f64>,
    arenas_bytes: Option<f64>,
}

impl<'a> RunFacts<'a> {
    fn of(report: &'a Report) -> Self {
        let process = judged(report);
        let phases = report.phases.as_ref();
        let growth = process.and_then(|process| process.growth.as_ref());
        let arenas = process.and_then(|process| process.pressure.as_ref()?.arenas.as_ref());
        let cpu = process.and_then(|process| process.pauses.cpu.as_ref());
        let longest = phases.map(|phases| phases.training.longest_ns.unwrap_or(0));
        Self {
            series: report.series.as_ref(),
            phases,
            gpu_cost: report.gpu_cost.as_ref().map(|cost| cost.ratio()),
            longest_ns: longest.map(float),
            off_cpu: cpu.map(|cpu| cpu.off_cpu_ratio),
            objects: growth.map(|growth| float(growth.largest.objects)),
            growth: growth.and_then(|growth| {
                let trend = process.and_then(|process| process.trend.as_ref());
                if let Some(objects) = trend.and_then(|trend| trend.objects) {
                    return Some(objects.per_s);
                }
                let (first, last) = (growth.first, growth.last);
                let seconds = float(last.after_start_ns.checked_sub(first.after_start_ns)?);
                let more = float(last.objects) - float(first.objects);
                (seconds > 0.0).then(|| more / (seconds / NS_PER_S))
            }),
            arenas_bytes: arenas
                .and_then(|arenas| arenas.peak_balance_bytes)
                .map(|bytes| float(bytes.max(0).unsigned_abs())),
        }
    }

    /// Steps or seconds of training.
    fn training_units(&self, per: RateUnit) -> Option<f64> {
        let phases = self.phases?;
        Some(match per {
            RateUnit::Step => float(phases.steps?),
            RateUnit::Second => float(phases.training.duration_ns) / NS_PER_S,
        })
    }

    /// CPU time in the parts, in ns per step or second; `None` if that of one is unknown.
    fn cpu_ns(&self, per: RateUnit, of: fn(&TrainingPart) -> Option<u64>) -> Option<f64> {
        let parts = &self.series?.parts;
        let cpu_ns: Option<Vec<u64>> = parts.iter().map(of).collect();
        let units: f64 = parts.iter().map(figures::units(per)).sum();
        Some(float(sum(cpu_ns?))).filter(|_| units > 0.0).map(|cpu_ns| cpu_ns / units)
    }

    fn has_generation(&self, generation: u8) -> bool {
        let parts = self.series.iter().flat_map(|series| &series.parts);
        let mut sums = parts.filter_map(|part| part.by_generation.get(usize::from(generation)));
        sums.any(|sum| sum.count > 0)
    }
}

/// The process that the verdict of a report is about.
fn judged(report: &Report) -> Option<&ProcessReport> {
    let phases = report.phases.as_ref();
    let mut processes = report.processes.iter();
    match phases {
        Some(phases) => {
            processes.find(|process| process.trace == phases.trace && process.pid == phases.pid)
        }
        None => processes.next(),
    }
}

fn compared(report: &Report) -> ComparedRun {
    let series = report.series.as_ref();
    let parts = || series.iter().flat_map(|series| &series.parts);
    let steps = series.map(TrainingSeries::steps).filter(|steps| *steps > 0);
    let training_ns = sum(parts().map(|part| part.duration_ns));
    let paused_ns = sum(parts().map(|part| part.paused_ns));
    let trace = report.traces.first();
    let lengths: Vec<f64> = parts()
        .filter(|part| part.steps > 0)
        .map(|part| float(part.duration_ns) / float(part.steps))
        .collect();
    ComparedRun {
        started_unix_ns: trace.and_then(|trace| trace.started_unix_ns),
        git_commit: trace.and_then(|trace| trace.git_commit.clone()),
        step_mean_ns: steps.map(|steps| float(training_ns) / float(steps)),
        step_sd_ns: statistics::standard_deviation(&lengths),
        gc_ratio: ratio(paused_ns, training_ns),
        files: report.traces.iter().map(|trace| trace.file.clone()).collect(),
        pid: judged(report).map(|process| process.pid),
        training_by: series.map(|series| series.training_by),
        steps,
        training_ns,
        parts: parts().count() as u64,
    }
}

/// Rests on step time; if that is not compared, on the share of GC.
fn verdict(figures: &[FigureComparison], one_run: bool) -> ComparisonVerdict {
    let rests_on = of(figures, FigureId::StepTime).or_else(|| of(figures, FigureId::GcShare));
    let outcome = rests_on.and_then(FigureComparison::outcome).unwrap_or(Outcome::Unknown);
    let figure = rests_on.map_or(FigureId::GcShare, |figure| figure.figure);
    ComparisonVerdict {
        outcome,
        figure,
        sentence: sentence::sentence(outcome, figure, figures, one_run),
        basis: Basis::Inferred,
    }
}

fn of(figures: &[FigureComparison], figure: FigureId) -> Option<&FigureComparison> {
    figures.iter().find(|compared| compared.figure == figure)
}

fn different_marks(sides: Sides<'_>) -> bool {
    let runs = sides.before.iter().chain(sides.after);
    let mut marks = runs.filter_map(|run| Some(run.series?.training_by));
    let first = marks.next();
    marks.any(|mark| Some(mark) != first)
}

fn notes<'a>(
    sides: Sides<'_>,
    changed: &[FactChange],
    mut reports: impl Iterator<Item = &'a Report>,
) -> Vec<ComparisonNote> {
    let runs = || sides.before.iter().chain(sides.after);
    let one_run = sides.before.len().min(sides.after.len()) < SEVERAL;
    let known = |run: &RunFacts<'_>| run.series.is_some();
    let steps = |run: &RunFacts<'_>| run.series.is_some_and(|series| series.steps() > 0);
    let short = |run: &RunFacts<'_>| run.series.is_some_and(|series| series.parts.len() < FEWEST);
    let incomplete = |report: &Report| {
        report
            .traces
            .iter()
            .any(|trace| trace.cut_at.is_some() || trace.damage.is_some() || trace.lost > 0)
    };
    let found = [
        (ComparisonNote::NoTraining, !runs().all(known)),
        (ComparisonNote::NoSteps, !runs().all(steps)),
        (ComparisonNote::DifferentMarks, runs().all(steps) && different_marks(sides)),
        (ComparisonNote::TooShort, !one_run && runs().any(short)),
        (ComparisonNote::OneRun, one_run),
        (ComparisonNote::Incomplete, reports.any(incomplete)),
        (
            ComparisonNote::DifferentCommands,
            changed.iter().any(|change| change.fact == FactId::Command),
        ),
    ];
    let found = found.into_iter().filter(|(_, applies)| *applies);
    found.map(|(note, _)| note).collect()
}

#[expect(clippy::cast_precision_loss, reason = "figures are compared to some digits")]
fn float(number: u64) -> f64 {
    number as f64
}
