//! How much of a problem the collector is.
//!
//! The limits are choices: one percent is what repeated runs of a training step differ by, and
//! 100 ms are one step of many models. Shares of less time than that, and of one or two short
//! pauses, say nothing of a longer run.

use crate::report::{Basis, GpuCost, Level, PhasesReport, Totals, TraceReport, Verdict};

/// From this share of the time on the collector is worth a look.
const NOTICEABLE: f64 = 0.01;
/// From this share on it is a problem.
const HEAVY: f64 = 0.05;
/// From this length on a single pause is felt.
const LONG_PAUSE_NS: u64 = 100_000_000;
/// Less time than this without known steps is not judged: nothing in it is as long as a pause that
/// is felt, and it is an end of start-up rather than work that repeats.
const SHORTEST_NS: u64 = LONG_PAUSE_NS;
/// From this number of pauses on they repeat. A share that is worth a look is not judged by fewer,
/// unless one of them is felt: whether another follows, and when, is unknown.
const FEWEST_PAUSES: u64 = 3;

/// `phases`: of the process that the verdict is about, whose training counts; without them, all
/// pauses of all processes count. `cost`: if GPU times are known.
pub(crate) fn verdict(
    totals: &Totals,
    phases: Option<&PhasesReport>,
    traces: &[TraceReport],
    cost: Option<&GpuCost>,
) -> Verdict {
    let is_unreported = totals.pauses.count == 0 && is_unreported(traces);
    let level = match cost {
        _ if is_unreported => Level::Unknown,
        Some(cost) => level_by_cost(cost),
        None => level(totals, phases),
    };
    Verdict {
        level,
        sentence: String::new(),
        basis: match level {
            Level::None => Basis::Measured,
            Level::Unknown if is_unreported => Basis::Inferred,
            _ if cost.is_some() => Basis::Inferred,
            _ => totals.basis,
        },
    }
}

fn level(totals: &Totals, phases: Option<&PhasesReport>) -> Level {
    let training = phases.map(|phases| &phases.training);
    let (ratio, longest_ns) = match training {
        Some(training) => (training.paused_ratio, training.longest_ns),
        None => (totals.stopped_ratio, totals.pauses.max_ns),
    };
    let (judged_ns, count) = match training {
        Some(training) => (training.duration_ns, training.pauses.count),
        None => (totals.observed_ns, totals.pauses.count),
    };
    let has_steps = phases.is_some_and(|phases| phases.steps.is_some());
    let is_felt = longest_ns >= Some(LONG_PAUSE_NS);
    match (totals.pauses.count, ratio) {
        (0, _) => Level::None,
        (_, None) => Level::Unknown,
        _ if judged_ns < SHORTEST_NS && !has_steps => Level::TooShort,
        (_, Some(NOTICEABLE..)) if count < FEWEST_PAUSES && !is_felt => Level::TooShort,
        (_, Some(HEAVY..)) => Level::Heavy,
        (_, Some(NOTICEABLE..)) => Level::Noticeable,
        _ if is_felt => Level::RareLongPauses,
        _ => Level::Negligible,
    }
}

fn level_by_cost(cost: &GpuCost) -> Level {
    match cost.ratio() {
        ratio if ratio >= HEAVY => Level::Heavy,
        ratio if ratio >= NOTICEABLE => Level::Noticeable,
        // Hidden pauses delay nothing, however long they are.
        _ if cost.longest_ns.min(cost.cost_ns) >= LONG_PAUSE_NS => Level::RareLongPauses,
        _ => Level::Negligible,
    }
}

/// Whether no trace would report a collection, had there been one.
fn is_unreported(traces: &[TraceReport]) -> bool {
    !traces.is_empty() && traces.iter().all(|trace| trace.recorded_by.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::PauseTotal;

    #[test]
    fn level_depends_on_cost_not_on_pause_length() {
        let cost = |cost_ns| GpuCost {
            run_ns: 10_000_000_000,
            cost_ns,
            error_ns: None,
            pauses: PauseTotal { count: 7, time_ns: 900_000_000 },
            longest_ns: 400_000_000,
        };
        for (cost_ns, expected) in [
            (900_000_000, Level::Heavy),
            (150_000_000, Level::Noticeable),
            (99_999_999, Level::Negligible),
            (0, Level::Negligible),
        ] {
            assert_eq!(level_by_cost(&cost(cost_ns)), expected, "{cost_ns}");
        }
        let rare = GpuCost { run_ns: 100_000_000_000, ..cost(200_000_000) };
        assert_eq!(level_by_cost(&rare), Level::RareLongPauses);
    }
}
