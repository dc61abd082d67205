//! The verdict on two sets of runs, in a sentence.

use super::{FigureComparison, FigureId, Outcome, RateUnit, of};
use crate::units::{mean_duration, percent, signed, three_digits};

/// Why the sentence of one run has no verdict.
const ONE_RUN: &str = "The noise between runs is unknown, so there is no verdict: name several runs \
                       on each side (A... -- B...).";

/// The verdict in one sentence, with the figures that it is about. `one_run`: on a side, so that the
/// figures have neither interval nor verdict.
pub(super) fn sentence(
    outcome: Outcome,
    figure: FigureId,
    figures: &[FigureComparison],
    per: RateUnit,
    one_run: bool,
) -> String {
    let outcome = match (outcome, figure) {
        (Outcome::Unknown, _) if one_run => "One run on a side",
        (Outcome::Better, FigureId::StepTime) => "Faster",
        (Outcome::Worse, FigureId::StepTime) => "Slower",
        (Outcome::Better, FigureId::ArrivalP99) => "Requests wait less for the loop",
        (Outcome::Worse, FigureId::ArrivalP99) => "Requests wait longer for the loop",
        (Outcome::Better, _) => "Less garbage collection",
        (Outcome::Worse, _) => "More garbage collection",
        (Outcome::NoDifference, _) => {
            match of(figures, FigureId::StepCpuTime).and_then(FigureComparison::outcome) {
                Some(Outcome::Better) => "Less CPU time, no difference in step time shown",
                Some(Outcome::Worse) => "More CPU time, no difference in step time shown",
                _ => "No difference shown",
            }
        }
        (Outcome::Unknown, _) => "Not enough data for a test",
    };
    let is_run = per == RateUnit::Run;
    let parts = [
        if figure == FigureId::ArrivalP99 { change("p99", figure, figures) } else { None },
        change("CPU time of GC in the run", FigureId::GcCpuTime, figures).filter(|_| is_run),
        of(figures, FigureId::GcShare).and_then(|figure| gc_share(figure, per)),
        change("step time", FigureId::StepTime, figures),
        change("CPU time per step", FigureId::StepCpuTime, figures),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let why = if one_run { format!(" {ONE_RUN}") } else { String::new() };
    if parts.is_empty() {
        format!("{outcome}.{why}")
    } else {
        format!("{outcome}: {}.{why}", parts.join(", "))
    }
}

fn gc_share(figure: &FigureComparison, per: RateUnit) -> Option<String> {
    let (before, after) = (figure.before?, figure.after?);
    let whole = if per == RateUnit::Step { "training" } else { "the run" };
    Some(format!("GC {} -> {} of {whole}", percent(before), percent(after)))
}

/// `step time 12.1 ms -> 9.80 ms, -19 % ± 2`: half the interval.
fn change(name: &str, figure: FigureId, figures: &[FigureComparison]) -> Option<String> {
    let figure = of(figures, figure)?;
    let (before, after) = (figure.before?, figure.after?);
    let ratio = figure.change_ratio?;
    let half = match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!(" ± {}", three_digits((high - low) / 2.0 * 100.0)),
        _ => String::new(),
    };
    Some(format!(
        "{name} {} -> {}, {}{half}",
        mean_duration(before),
        mean_duration(after),
        signed(ratio.value * 100.0, " %"),
    ))
}
