//! Runs before and after a change, compared.
//!
//! Decides what is compared and how sure a difference is. Each run goes through the aggregator by itself; its
//! [`Report`] has the figures, and the training phase in parts. Parts are resampled within runs, and runs within a
//! side (`gctrace_stats`). A side with a single run has figures and no verdict.

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
use crate::report::{
    Basis, HeapTrend, PhasesReport, ProcessReport, Report, TraceReport, TrainingMark, TrainingPart,
    TrainingSeries, TurnFigures,
};
use crate::time::sum;
use gctrace_stats::bootstrap::{FEWEST, SEVERAL};
use gctrace_stats::{float, ratio};

const NS_PER_S: f64 = 1e9;

/// Compares runs: one report per run, at least one on each side.
pub fn compare(before: &[Report], after: &[Report]) -> Comparison {
    let is_same_part = is_same_part(before.iter().chain(after));
    // The whole of each run, where phases are not the same part of it.
    let whole = |reports: &[Report]| -> Vec<Option<TrainingSeries>> {
        reports.iter().map(|run| if is_same_part { None } else { Some(whole_run(run)) }).collect()
    };
    let (whole_before, whole_after) = (whole(before), whole(after));
    let of_side = |reports: &[Report], whole: &[Option<TrainingSeries>]| {
        reports.iter().zip(whole).map(|(report, whole)| compared(report, whole.as_ref())).collect()
    };
    let facts_before = RunFacts::of_side(before, &whole_before);
    let facts_after = RunFacts::of_side(after, &whole_after);
    let sides = Sides { before: &facts_before, after: &facts_after };
    let runs = || facts_before.iter().chain(&facts_after);
    let has_steps = runs().all(RunFacts::has_steps);
    let per = match (is_same_part, has_steps) {
        (false, _) => RateUnit::Run,
        (true, true) => RateUnit::Step,
        (true, false) => RateUnit::Second,
    };
    let facts = facts::compare(before, after);
    let figures = figures::figures(sides, per);
    let notes = notes(sides, per, &facts.changed, before.iter().chain(after));
    Comparison {
        schema: SCHEMA.to_owned(),
        gctrace: env!("CARGO_PKG_VERSION").to_owned(),
        verdict: verdict(&figures, per, notes.contains(&ComparisonNote::OneRun)),
        before: of_side(before, &whole_before),
        after: of_side(after, &whole_after),
        notes,
        changed: facts.changed,
        unchanged: facts.unchanged,
        unknown: facts.unknown,
        per,
        figures,
        lines: match per {
            RateUnit::Run => Vec::new(),
            _ => lines::compare(&facts_before, &facts_after, per),
        },
        idle: idle::compare(before, after),
    }
}

impl Comparison {
    /// The comparison of a figure; `None` if no run has it.
    pub fn figure(&self, figure: FigureId) -> Option<&FigureComparison> {
        of(&self.figures, figure)
    }
}

impl FigureComparison {
    /// Whether the interval excludes no difference; `None` without an interval.
    pub fn outcome(&self) -> Option<Outcome> {
        let difference = self.difference?;
        Some(match (difference.low?, difference.high?) {
            (_, high) if high < 0.0 => Outcome::Better,
            (low, _) if low > 0.0 => Outcome::Worse,
            _ => Outcome::NoDifference,
        })
    }
}

/// Facts compared of one run.
struct RunFacts<'a> {
    series: Option<&'a TrainingSeries>,
    phases: Option<&'a PhasesReport>,
    /// Cost of the pauses by replay, as a share of the run.
    gpu_cost: Option<f64>,
    /// Longest pause in training.
    longest_ns: Option<f64>,
    /// Of the busiest loop, if no steps are known.
    turns: Option<&'a TurnFigures>,
    off_cpu: Option<f64>,
    /// Most objects in the heap.
    objects: Option<f64>,
    /// Growth of the heap, in objects per second.
    growth: Option<f64>,
    arenas_bytes: Option<f64>,
}

impl<'a> RunFacts<'a> {
    /// `whole`: the series of whole runs, if these are compared.
    fn of_side(reports: &'a [Report], whole: &'a [Option<TrainingSeries>]) -> Vec<Self> {
        let runs = reports.iter().zip(whole);
        runs.map(|(report, whole)| Self::of(report, whole.as_ref())).collect()
    }

    fn of(report: &'a Report, whole: Option<&'a TrainingSeries>) -> Self {
        let process = judged(report);
        let phases = report.phases.as_ref();
        let (growth, cpu) = match process {
            Some(process) => (process.growth.as_ref(), process.pauses.cpu.as_ref()),
            None => (None, None),
        };
        let longest = match whole {
            Some(_) => process.map(|process| process.pauses.max_ns.unwrap_or(0)),
            None => phases.map(|phases| phases.training.longest_ns.unwrap_or(0)),
        };
        Self {
            series: whole.or(report.series.as_ref()),
            phases,
            gpu_cost: report.gpu_cost.as_ref().map(|cost| cost.ratio()),
            longest_ns: longest.map(float),
            turns: report.service_loop().map(|of| &of.figures),
            off_cpu: cpu.map(|cpu| cpu.off_cpu_ratio),
            objects: growth.map(|growth| float(growth.largest.objects)),
            growth: process.and_then(Self::objects_per_s),
            arenas_bytes: process.and_then(Self::arenas_bytes),
        }
    }

    fn objects_per_s(process: &ProcessReport) -> Option<f64> {
        let growth = process.growth.as_ref()?;
        if let Some(HeapTrend { objects: Some(objects), .. }) = &process.trend {
            return Some(objects.per_s);
        }
        let (first, last) = (growth.first, growth.last);
        let seconds = float(last.after_start_ns.checked_sub(first.after_start_ns)?);
        let more = float(last.objects) - float(first.objects);
        if seconds > 0.0 { Some(more / (seconds / NS_PER_S)) } else { None }
    }

    fn arenas_bytes(process: &ProcessReport) -> Option<f64> {
        let bytes = process.pressure.as_ref()?.arenas.as_ref()?.peak_balance_bytes?;
        Some(float(bytes.max(0).unsigned_abs()))
    }

    fn has_steps(&self) -> bool {
        matches!(self.series, Some(series) if series.steps() > 0)
    }

    /// Steps or seconds of training.
    fn training_units(&self, per: RateUnit) -> Option<f64> {
        let phases = self.phases?;
        Some(match per {
            RateUnit::Step => float(phases.steps?),
            RateUnit::Second => float(phases.training.duration_ns) / NS_PER_S,
            RateUnit::Run => 1.0,
        })
    }

    /// CPU time in the parts, in ns per step or second; `None` if it is unknown for one part.
    fn cpu_ns(&self, per: RateUnit, of: fn(&TrainingPart) -> Option<u64>) -> Option<f64> {
        let parts = &self.series?.parts;
        let cpu_ns: Option<Vec<u64>> = parts.iter().map(of).collect();
        let units: f64 = parts.iter().map(figures::units(per)).sum();
        let cpu_ns = float(sum(cpu_ns?));
        if units > 0.0 { Some(cpu_ns / units) } else { None }
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

/// Whether the series of all reports are of the same part of the program: between the same marks of steps, or, where
/// no steps are known, after the same border, in recordings of the same mode.
fn is_same_part<'a>(mut reports: impl Iterator<Item = &'a Report>) -> bool {
    let part = |report: &Report| {
        let series = report.series.as_ref()?;
        let recorded = match report.traces.first() {
            Some(trace) if series.steps() == 0 => trace.recorded.as_ref(),
            _ => None,
        };
        Some((series.training_by, recorded.map(|recorded| recorded.mode.as_ref().to_owned())))
    };
    let first = reports.next().and_then(part);
    first.is_some() && reports.all(|report| part(report) == first)
}

/// The whole run of the judged process as one part. Without any collection there is no process: the run as recorded.
fn whole_run(report: &Report) -> TrainingSeries {
    let part = match judged(report) {
        Some(process) => TrainingPart {
            duration_ns: process.observed_ns,
            paused_ns: process.paused_ns,
            paused_cpu_ns: match &process.pauses.cpu {
                Some(cpu) if cpu.pauses == process.pauses.count => Some(cpu.on_cpu_ns),
                _ => None,
            },
            by_generation: process.by_generation,
            ..TrainingPart::default()
        },
        None => TrainingPart {
            duration_ns: report.traces.first().map_or(0, |trace| trace.duration_ns),
            paused_cpu_ns: Some(0),
            ..TrainingPart::default()
        },
    };
    let series = report.series.as_ref();
    TrainingSeries {
        training_by: TrainingMark::WholeRun,
        frozen: series.and_then(|series| series.frozen),
        parts: vec![part],
    }
}

fn compared(report: &Report, whole: Option<&TrainingSeries>) -> ComparedRun {
    let series = whole.or(report.series.as_ref());
    let parts = || series.iter().flat_map(|series| &series.parts);
    let steps = series.map(TrainingSeries::steps).filter(|steps| *steps > 0);
    let training_ns = sum(parts().map(|part| part.duration_ns));
    let paused_ns = sum(parts().map(|part| part.paused_ns));
    let (started_unix_ns, git_commit) = match report.traces.first() {
        Some(trace) => (trace.started_unix_ns, trace.git_commit.clone()),
        None => (None, None),
    };
    let lengths: Vec<f64> = parts()
        .filter(|part| part.steps > 0)
        .map(|part| float(part.duration_ns) / float(part.steps))
        .collect();
    ComparedRun {
        started_unix_ns,
        git_commit,
        step_mean_ns: steps.map(|steps| float(training_ns) / float(steps)),
        step_sd_ns: gctrace_stats::standard_deviation(&lengths),
        gc_ratio: ratio(paused_ns, training_ns),
        files: report.traces.iter().map(|trace| trace.file.clone()).collect(),
        pid: judged(report).map(|process| process.pid),
        training_by: series.map(|series| series.training_by),
        steps,
        training_ns,
        parts: parts().count() as u64,
    }
}

/// Rests on step time; without steps on the time that requests wait for a loop; without loops on the share of GC, for
/// whole runs on CPU time.
fn verdict(figures: &[FigureComparison], per: RateUnit, one_run: bool) -> ComparisonVerdict {
    let is_known = |figure: &FigureComparison| figure.before.is_some() && figure.after.is_some();
    let order = [FigureId::StepTime, FigureId::ArrivalP99, FigureId::GcCpuTime, FigureId::GcShare];
    let mut order = order.into_iter().filter_map(|id| of(figures, id));
    let rests_on = order.find(|found| match found.figure {
        FigureId::ArrivalP99 => is_known(found),
        FigureId::GcCpuTime => per == RateUnit::Run && is_known(found),
        _ => true,
    });
    let (outcome, figure) = match rests_on {
        Some(found) => (found.outcome().unwrap_or(Outcome::Unknown), found.figure),
        None => (Outcome::Unknown, FigureId::GcShare),
    };
    ComparisonVerdict {
        outcome,
        figure,
        sentence: sentence::sentence(outcome, figure, figures, per, one_run),
        basis: Basis::Inferred,
    }
}

fn of(figures: &[FigureComparison], figure: FigureId) -> Option<&FigureComparison> {
    figures.iter().find(|compared| compared.figure == figure)
}

fn notes<'a>(
    sides: Sides<'_>,
    per: RateUnit,
    changed: &[FactChange],
    mut reports: impl Iterator<Item = &'a Report>,
) -> Vec<ComparisonNote> {
    let runs = || sides.before.iter().chain(sides.after);
    let one_run = sides.before.len().min(sides.after.len()) < SEVERAL;
    let known = |run: &RunFacts<'_>| run.series.is_some();
    let short = |run: &RunFacts<'_>| match run.series {
        Some(series) => series.parts.len() < FEWEST,
        None => false,
    };
    let incomplete = |report: &Report| report.traces.iter().any(TraceReport::is_incomplete);
    let found = [
        (ComparisonNote::NoTraining, !runs().all(known)),
        (ComparisonNote::NoSteps, per == RateUnit::Second && !runs().all(RunFacts::has_steps)),
        (ComparisonNote::DifferentPhases, per == RateUnit::Run),
        (ComparisonNote::TooShort, per != RateUnit::Run && !one_run && runs().any(short)),
        (ComparisonNote::OneRun, one_run),
        (ComparisonNote::Incomplete, reports.any(incomplete)),
        (
            ComparisonNote::DifferentCommands,
            changed.iter().any(|change| change.fact == FactId::Command),
        ),
    ];
    let found = found.into_iter();
    found.filter_map(|(note, applies)| if applies { Some(note) } else { None }).collect()
}
