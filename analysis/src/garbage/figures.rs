//! From sums of garbage to the report: shares, estimates for all collections, figures per step.

use super::per_step::StepTicks;
use super::report::{
    BirthLine, BirthLines, GarbageCycle, GarbageEstimate, GarbageKind, GarbageReport, MainCycles,
    PerStep,
};
use super::shape::GarbageEdge;
use super::table::RowSums as _;
use super::{Counted, CycleSums, GarbageSums, KindSums, shape, words};
use crate::figure::{Basis, Location};
use crate::paths;
use crate::spans::StepSpan;
use crate::time::sum;
use gctrace_event::KindName;
use gctrace_stats::{rate, ratio};
use gctrace_units::if_known;

/// Most cycles that a verdict sums up: it is about a few cycles or none.
const MAIN_CYCLES: usize = 8;
/// Least share of the garbage, from 0 to 1, that the cycles of a verdict leave.
const MOSTLY: f64 = 0.5;
/// An estimate needs no examined collection of a generation that freed less than this part of all
/// objects.
const NEGLIGIBLE: f64 = 0.01;
/// Kinds of objects in a report.
pub(super) const KINDS_REPORTED: usize = 64;
/// Cycles in a report.
pub(super) const CYCLES_REPORTED: usize = 32;

impl GarbageSums {
    /// `None` if no collection was examined. `observed_ns`: how long the process was recorded;
    /// `steps`: its training steps, of one thread by start.
    pub(crate) fn report(
        &self,
        observed_ns: u64,
        device_bytes: Option<u64>,
        steps: &[StepSpan],
    ) -> Option<GarbageReport> {
        if self.totals.examined == 0 {
            return None;
        }
        let (examined, collected) = self.freed();
        let view = ReportView {
            sums: self,
            basis: if examined < collected { Basis::Inferred } else { Basis::Measured },
            observed_ns,
            ticks: StepTicks::of(&self.garbage, steps),
            born: self.born(),
        };
        let mut kinds: Vec<GarbageKind> = Vec::new();
        for (kind, sums) in self.kinds.ranked() {
            if kinds.len() < KINDS_REPORTED && sums.objects.total() > 0 {
                kinds.push(view.kind(kind, sums));
            }
        }
        let cycles = self.cycle_garbage.map(|_| {
            let ranked = self.cycles.ranked().into_iter().take(CYCLES_REPORTED);
            ranked.map(|(edges, sums)| view.cycle(edges, sums)).collect::<Vec<GarbageCycle>>()
        });
        let listed = sum(kinds.iter().map(|kind| kind.objects));
        let in_cycles = cycles.iter().flatten();
        let in_cycles =
            sum(in_cycles.map(|in_cycle| in_cycle.objects.saturating_add(in_cycle.held_objects)));
        let cycle_garbage = self.cycle_garbage.unwrap_or(0);
        let verdict = cycles.as_ref().and_then(|cycles| view.main_cycles(cycles));
        Some(GarbageReport {
            collections: self.totals.collections.max(self.totals.examined),
            examined_ratio: ratio(examined, collected),
            device_bytes,
            kinds,
            other_objects: self.totals.objects.saturating_sub(listed),
            cycles,
            cycle_garbage,
            other_cycle_objects: cycle_garbage.saturating_sub(in_cycles),
            steps: if view.ticks.is_some() { Some(steps.len() as u64) } else { None },
            verdict,
            ..self.totals.clone()
        })
    }

    /// By type, the lines that sampled objects were born at.
    fn born(&self) -> Vec<(&str, BirthLine)> {
        let mut lines = Vec::new();
        for (born, sums) in self.kinds.ranked() {
            if sums.births > 0 {
                let location = Location {
                    library: paths::is_library(if_known(born.file.as_deref())),
                    file: if_known(born.file.clone()),
                    function: if_known(born.function.clone()),
                    line: born.line,
                };
                let line = BirthLine { location, samples: sums.births };
                lines.push((born.type_name.as_str(), line));
            }
        }
        lines
    }
}

/// What the rows of a report share.
struct ReportView<'a> {
    sums: &'a GarbageSums,
    basis: Basis,
    observed_ns: u64,
    ticks: Option<StepTicks>,
    /// Lines by type.
    born: Vec<(&'a str, BirthLine)>,
}

impl ReportView<'_> {
    fn kind(&self, kind: &KindName, sums: &KindSums) -> GarbageKind {
        let objects = sums.objects.total();
        let estimate = self.estimate(&sums.objects, 1.0);
        GarbageKind {
            name: self.sums.classes.shown(kind),
            births: self.births(kind),
            objects,
            bytes: sums.bytes,
            ratio: ratio(objects, self.sums.totals.objects).unwrap_or(0.0).min(1.0),
            estimate,
            per_step: self.per_step(&sums.objects, estimate),
        }
    }

    /// Where objects of a type without code were born.
    fn births(&self, kind: &KindName) -> Option<BirthLines> {
        let is_own = |(type_name, _): &&(&str, BirthLine)| {
            kind.function.is_none() && *type_name == kind.type_name
        };
        let born = self.born.iter().filter(is_own);
        BirthLines::of(born.map(|(_, line)| line.clone()))
    }

    fn cycle(&self, edges: &[GarbageEdge], sums: &CycleSums) -> GarbageCycle {
        let estimate = self.estimate(&sums.count, self.of_cycles());
        let shown = |edge: &GarbageEdge| GarbageEdge {
            kind: self.sums.classes.shown(&edge.kind),
            name: edge.name.clone(),
        };
        let edges: Vec<GarbageEdge> = edges.iter().map(shown).collect();
        GarbageCycle {
            shape: shape::shape(&edges),
            location: shape::location(&edges),
            edges,
            count: sums.count.total(),
            objects: sums.objects,
            held_objects: sums.held_objects,
            bytes: sums.bytes,
            ratio: match self.sums.cycle_garbage {
                Some(all) => ratio(sums.weight(), all).unwrap_or(0.0).min(1.0),
                None => 0.0,
            },
            estimate,
            per_step: self.per_step(&sums.count, estimate),
        }
    }

    /// All examined garbage as a multiple of the garbage with examined cycles: cycles of large garbage are not
    /// examined.
    fn of_cycles(&self) -> f64 {
        let Some(with_cycles) = self.sums.cycle_garbage else { return 1.0 };
        ratio(self.sums.totals.objects, with_cycles).unwrap_or(1.0).max(1.0)
    }

    /// The count over all collections: each generation's, scaled by the objects that all its
    /// collections freed per object that the examined ones did, and then by `times`. `None` if a
    /// generation that freed much was not examined.
    fn estimate(&self, counted: &Counted, times: f64) -> Option<GarbageEstimate> {
        let all = self.sums.freed().1;
        let mut count = 0.0;
        for (objects, stratum) in counted.by_generation.iter().zip(&self.sums.strata) {
            count += match ratio(stratum.collected, stratum.examined) {
                Some(times) => *objects as f64 * times.max(1.0),
                None if matches!(ratio(stratum.collected, all), Some(of) if of > NEGLIGIBLE) => {
                    return None;
                }
                None => *objects as f64,
            };
        }
        let basis = match self.basis {
            Basis::Measured if times <= 1.0 => Basis::Measured,
            _ => Basis::Inferred,
        };
        let count = match basis {
            Basis::Measured => counted.total(),
            _ => (count * times) as u64,
        };
        Some(GarbageEstimate { basis, count, per_s: rate(count, self.observed_ns) })
    }

    /// The fewest cycles that leave nearly all garbage, or else up to [`MAIN_CYCLES`] that leave at
    /// least half of it; `None` if they leave less.
    fn main_cycles(&self, cycles: &[GarbageCycle]) -> Option<MainCycles> {
        // With steps only the garbage of training counts: imports leave some once.
        let all = self.ticks.as_ref().map(|ticks| ticks.per_step(&self.sums.garbage));
        let times = self.scale();
        let share = |cycle: &GarbageCycle| match all {
            None => cycle.ratio,
            Some(all) => {
                let objects = cycle.objects.saturating_add(cycle.held_objects);
                let each = ratio(objects, cycle.count).unwrap_or(0.0);
                let mean = if let Some(per_step) = cycle.per_step { per_step.mean } else { 0.0 };
                let garbage = if let Some((mean, _)) = all { mean * times } else { 0.0 };
                if garbage > 0.0 { each * mean / garbage } else { 0.0 }
            }
        };
        let mut order: Vec<(usize, f64)> = cycles.iter().map(share).enumerate().collect();
        order.sort_by(|one, other| other.1.total_cmp(&one.1));
        let basis = match self.basis {
            Basis::Measured if self.of_cycles() <= 1.0 => Basis::Measured,
            _ => Basis::Inferred,
        };
        let per_step = PerStep { basis, mean: 0.0, constant: true };
        let mut main = MainCycles {
            cycles: Vec::new(),
            ratio: 0.0,
            per_step: if all.is_some() { Some(per_step) } else { None },
            per_s: Some(0.0),
            basis,
            sentence: String::new(),
        };
        for (index, share) in order.into_iter().take(MAIN_CYCLES) {
            let goes_on = share > 0.0 && !main.is_all();
            let (Some(cycle), true) = (cycles.get(index), goes_on) else { break };
            main.cycles.push(index);
            main.ratio = (main.ratio + share).min(1.0);
            main.per_s = match (main.per_s, cycle.estimate) {
                (Some(sum), Some(GarbageEstimate { per_s: Some(rate), .. })) => Some(sum + rate),
                _ => None,
            };
            if let (Some(sum), Some(per_step)) = (main.per_step.as_mut(), cycle.per_step) {
                sum.mean += per_step.mean;
                sum.constant &= per_step.constant;
            }
        }
        if main.ratio < MOSTLY {
            return None;
        }
        let sentence = words::verdict(cycles, &main);
        Some(MainCycles { sentence, ..main })
    }

    /// The garbage of all collections as a multiple of the garbage of the examined ones.
    fn scale(&self) -> f64 {
        let (examined, collected) = self.sums.freed();
        ratio(collected, examined).unwrap_or(1.0).max(1.0)
    }

    fn per_step(&self, counted: &Counted, estimate: Option<GarbageEstimate>) -> Option<PerStep> {
        let (mean, constant) = self.ticks.as_ref()?.per_step(&counted.series)?;
        let estimate = estimate?;
        let times = ratio(estimate.count, counted.total())?;
        Some(PerStep { basis: estimate.basis, mean: mean * times, constant })
    }
}
