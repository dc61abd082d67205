//! How much of a problem the collector is.
//!
//! The limits are choices: repeated runs of a training step differ by one percent, and 100 ms are one step of many
//! models. Shares of a shorter time, and of one or two short pauses, say nothing of a longer run.
//!
//! What requests notice is a shorter pause: a service whose loop is held up by collections has long pauses from 10 ms on.
//!
//! A share is CPU time of the collections, of the time without their threads' waits for a CPU. For a program that
//! makes up for such waits (a timer, a GPU) it is up to duration / (duration - waits) too high. Where the waits are
//! unknown, all of the time is taken to wait as the pauses did. That is right for work on the CPU, and too high by up
//! to that factor for a program that waits for something else.

use crate::report::{
    Basis, GpuCost, JudgedPhase, Level, LoopReport, PhaseReport, PhasesReport, Totals, TraceReport,
    TrainingMark, Verdict,
};
use crate::turns::held;
use std::cmp::Ordering;

/// From this share of the time on the collector is worth a look.
const NOTICEABLE: f64 = 0.01;
/// From this share on it is a problem.
const HEAVY: f64 = 0.05;
/// From this length on a single pause is felt.
const LONG_PAUSE_NS: u64 = 100_000_000;
/// Less time than this without known steps is not judged: nothing in it is as long as a pause that
/// is felt, and it is an end of start-up rather than work that repeats.
const SHORTEST_NS: u64 = LONG_PAUSE_NS;
/// From this share of the whole run on a start-up is worth a look: repeated starts differ by more
/// than steps do.
const NOTICEABLE_START: f64 = 0.02;

/// `phases`: of the process that the verdict is about; without them, all pauses of all processes
/// count. `cost`: if GPU times are known. `service`: the loop of a program without steps.
pub(crate) fn verdict(
    totals: &Totals,
    phases: Option<&PhasesReport>,
    traces: &[TraceReport],
    cost: Option<&GpuCost>,
    service: Option<&LoopReport>,
) -> Verdict {
    let is_unreported = totals.pauses.count == 0 && is_unreported(traces);
    let level = match cost {
        _ if is_unreported => Level::Unknown,
        Some(cost) => level_by_cost(cost),
        None => match level(totals, phases) {
            Level::Negligible | Level::TooShort if holds_up(totals, phases, service) => {
                Level::RareLongPauses
            }
            level => level,
        },
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

/// Whether collections of the judged process hold up the loop of a service.
fn holds_up(totals: &Totals, phases: Option<&PhasesReport>, service: Option<&LoopReport>) -> bool {
    let longest_ns = match phases {
        Some(phases) => phases.training.longest_collection_ns(),
        None => totals.pauses.max_ns,
    };
    longest_ns >= Some(held::LONG_NS) && service.is_some_and(LoopReport::is_held_up_by_collections)
}

fn level(totals: &Totals, phases: Option<&PhasesReport>) -> Level {
    match (totals.pauses.count, phases) {
        (0, _) => Level::None,
        (_, Some(phases)) => judge(phases).0,
        (count, None) => {
            let (ratio, longest_ns) = (totals.stopped_ratio, totals.pauses.max_ns);
            level_of_share(ratio, longest_ns, count, totals.observed_ns, false)
        }
    }
}

/// The level of a share of some time; `longest_ns` and `count`: of its pauses.
fn level_of_share(
    ratio: Option<f64>,
    longest_ns: Option<u64>,
    count: u64,
    judged_ns: u64,
    has_steps: bool,
) -> Level {
    let is_felt = longest_ns >= Some(LONG_PAUSE_NS);
    match ratio {
        None => Level::Unknown,
        _ if judged_ns < SHORTEST_NS && !has_steps => Level::TooShort,
        _ if count < PhaseReport::FEWEST_PAUSES && is_felt => Level::RareLongPauses,
        Some(NOTICEABLE..) if count < PhaseReport::FEWEST_PAUSES => Level::TooShort,
        Some(HEAVY..) => Level::Heavy,
        Some(NOTICEABLE..) => Level::Noticeable,
        _ if is_felt => Level::RareLongPauses,
        _ => Level::Negligible,
    }
}

/// The level of training alone.
fn training_level(phases: &PhasesReport) -> Level {
    let training = &phases.training;
    let (ratio, count) = (training.paused_ratio, training.pauses.count);
    // The repeated work of workers is not as short as one of them.
    let judged_ns = training.unhindered_ns().max(phases.workers.unhindered_ns);
    let longest_ns = training.longest_collection_ns();
    level_of_share(ratio, longest_ns, count, judged_ns, phases.steps.is_some())
}

/// The level of start-up: its cost to the run as recorded. Of a service, and with steps, it is no more than noticeable:
/// other runs are longer.
fn start_up_level(phases: &PhasesReport) -> Level {
    let start_up = &phases.start_up;
    let is_felt = start_up.collected_ns() >= LONG_PAUSE_NS;
    let is_whole = phases.steps.is_none() && phases.training_by != TrainingMark::Loop;
    match phases.start_up_ratio() {
        Some(NOTICEABLE_START..)
            if is_felt && start_up.pauses.count < PhaseReport::FEWEST_PAUSES =>
        {
            Level::RareLongPauses
        }
        Some(NOTICEABLE_START..) if !is_felt => Level::TooShort,
        Some(HEAVY..) if is_whole => Level::Heavy,
        Some(NOTICEABLE_START..) => Level::Noticeable,
        _ => Level::Negligible,
    }
}

/// The worse phase, with its level; if both are equally bad, the loop of a service, else the phase with more time to
/// save.
fn judge(phases: &PhasesReport) -> (Level, JudgedPhase) {
    let (training, start_up) = (training_level(phases), start_up_level(phases));
    let by_time = match phases.training_by {
        TrainingMark::Loop => Ordering::Greater,
        _ => phases.training.collected_ns().cmp(&phases.start_up.collected_ns()),
    };
    let training_is_worse = badness(training).cmp(&badness(start_up)).then(by_time).is_ge();
    if training_is_worse || start_up == Level::Negligible {
        (training, JudgedPhase::Training)
    } else {
        (start_up, JudgedPhase::StartUp)
    }
}

/// The phase that the verdict is about.
pub(crate) fn judged_phase(phases: &PhasesReport) -> JudgedPhase {
    judge(phases).1
}

/// Key to find the worst process: level, then training before start-up, then paused time.
pub(crate) fn weight(phases: &PhasesReport) -> (u8, JudgedPhase, u64) {
    let (level, judged) = judge(phases);
    let phase = match judged {
        JudgedPhase::StartUp => &phases.start_up,
        JudgedPhase::Training => &phases.training,
    };
    (badness(level), judged, phase.collected_ns())
}

/// Levels in order.
fn badness(level: Level) -> u8 {
    match level {
        Level::None | Level::Negligible => 0,
        Level::Unknown | Level::TooShort => 1,
        Level::RareLongPauses => 2,
        Level::Noticeable => 3,
        Level::Heavy => 4,
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
