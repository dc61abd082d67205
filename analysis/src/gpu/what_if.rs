//! The effect of other collector settings on the run.
//!
//! Owns the list of changes and their intervals. `what_if/plan.rs` turns changes into changes of
//! pauses; [`JobReplays`](crate::gpu::replays::JobReplays) has their effect on a run, if GPU times
//! are known.

mod assumed_outcome;
mod collect_every;
mod garbage;
mod plan;
mod program;
pub(crate) mod report;

pub use plan::{
    FullLengths, RAISED, disable, freeze, planned, thresholds, without_any, without_explicit,
};
pub use program::{Assumption, ProgramModel};

use crate::gpu::replay::ReplayChange;
use crate::gpu::replays::RunLength;
use crate::report::{
    Basis, Change, Garbage, PredictedRange, PredictionMethod, Saving, SettingsReport, WhatIf,
};
use crate::time::{difference, signed, times};
use crate::words;
use assumed_outcome::RunBaseline;
use gctrace_event::GcReason;
use program::{Certainty, mean_step_ns};

/// One hour: the time over which garbage without any collection is reported.
const HOUR_NS: u64 = 3_600_000_000_000;

/// A change, on both sides.
struct Scenario {
    made: Change,
    pessimistic: ReplayChange,
    optimistic: ReplayChange,
    garbage: Option<Garbage>,
    /// Time that is in neither plan, because it would occur less than twice in the recording: the
    /// lower value for the optimistic, the higher for the pessimistic version. Of the whole run.
    outside_ns: (u64, u64),
}

impl Scenario {
    fn new(
        made: Change,
        garbage: Option<Garbage>,
        of: impl Fn(Assumption) -> ReplayChange,
    ) -> Self {
        Self {
            made,
            pessimistic: of(Assumption::Pessimistic),
            optimistic: of(Assumption::Optimistic),
            garbage,
            outside_ns: (0, 0),
        }
    }

    /// Unknown reasons are not assumed to be explicit calls.
    fn makes_sense(&self, programs: &[ProgramModel<'_>]) -> bool {
        let calls = |program: &ProgramModel<'_>| {
            let mut reasons = program.pauses().map(|(_, pause)| pause.reason);
            reasons.any(|reason| reason == GcReason::Manual)
        };
        self.made != Change::Explicit || programs.iter().any(calls)
    }
}

/// All changes for programs of one job. Empty where no pause could be changed.
fn scenarios(programs: &[ProgramModel<'_>]) -> Vec<Scenario> {
    let Some(first) = programs.first() else {
        return Vec::new();
    };
    let scenarios = [
        Some(of_freeze(programs)),
        Some(of_thresholds(first, programs)),
        of_planned(programs),
        Some(of_disable(programs)),
        Some(of_explicit(programs)),
    ];
    let scenarios = scenarios.into_iter().flatten();
    // If the reason of collections is unknown, one version may be empty.
    let changing = scenarios.filter(|scenario| {
        !scenario.optimistic.lengths.is_empty() && scenario.makes_sense(programs)
    });
    changing.collect()
}

fn of_freeze(programs: &[ProgramModel<'_>]) -> Scenario {
    let made = Change::Freeze {
        after_step: programs.iter().any(|program| program.steps().len() > 1),
        more_frequent: more_frequent(programs),
    };
    Scenario::new(made, None, |side| freeze(programs, side))
}

/// The full collections that `gc.freeze()` may cause, and those that ran, in the process with most
/// of the former; `None` unless these are more than twice as many. CPython's rule (`gc.c`,
/// `gc_select_generation`, 3.8 - 3.13 and from 3.14.5 on) compares with the objects of the oldest
/// generation, which frozen ones have left.
fn more_frequent(programs: &[ProgramModel<'_>]) -> Option<(u64, u64)> {
    let counts = programs.iter().map(|program| {
        let automatic_of = |generation| {
            let pauses = program.pauses();
            pauses
                .filter(|(_, pause)| {
                    pause.generation == generation && program.automatic(pause) != Certainty::No
                })
                .count() as u64
        };
        ((automatic_of(2) + automatic_of(1)) / program.middle_per_full(), automatic_of(2))
    });
    let most = counts.max_by_key(|(most, _)| *most);
    most.filter(|(most, full)| *most > full * 2)
}

fn of_thresholds(first: &ProgramModel<'_>, programs: &[ProgramModel<'_>]) -> Scenario {
    let between_ns = garbage::between_collections_ns(programs);
    let garbage = garbage::over(programs, times(between_ns, RAISED as u64));
    let made = Change::Thresholds(SettingsReport::raised(first.thresholds));
    Scenario::new(made, garbage, |side| thresholds(programs, side))
}

fn of_disable(programs: &[ProgramModel<'_>]) -> Scenario {
    let garbage = garbage::over(programs, HOUR_NS);
    Scenario::new(Change::Disable, garbage, |side| disable(programs, side))
}

fn of_explicit(programs: &[ProgramModel<'_>]) -> Scenario {
    Scenario::new(Change::Explicit, None, |side| without_explicit(programs, side))
}

fn of_planned(programs: &[ProgramModel<'_>]) -> Option<Scenario> {
    let lengths = FullLengths::of(programs)?;
    let every = collect_every::choose(programs, &lengths)?;
    let step_ns = programs.iter().filter_map(mean_step_ns).max()?;
    let (shorter_ns, longer_ns) = lengths.range();
    let steps = programs.iter().map(|program| program.steps().len() as u64).max()?;
    let in_proportion = |length_ns: u64| times(length_ns, steps) / every.steps;
    let garbage = garbage::over(programs, times(step_ns, every.steps));
    let mut scenario = Scenario::new(Change::Planned(every), garbage, |side| {
        planned(programs, &lengths, every.steps, side)
    });
    // Too few to represent a long run: their share is added instead.
    if scenario.pessimistic.inserted.len() < 2 * programs.len() {
        scenario.pessimistic.inserted.clear();
        scenario.optimistic.inserted.clear();
        scenario.outside_ns = (in_proportion(shorter_ns), in_proportion(longer_ns));
    }
    Some(scenario)
}

/// `replay`: the run as measured, and on the pessimistic and the optimistic side.
fn outcome(
    scenario: Scenario,
    programs: &[ProgramModel<'_>],
    replay: Option<(&RunBaseline<'_>, [RunLength; 2])>,
) -> WhatIf {
    let (added_min, added_max) = scenario.outside_ns;
    let processes = programs.len() as u64;
    let less = |change: &ReplayChange, added_ns: u64| {
        let added_ns = signed(times(added_ns, processes));
        difference(plan::saved_pause_ns(change, programs), added_ns)
    };
    let pause_time_saved_ns =
        ordered(less(&scenario.pessimistic, added_max), less(&scenario.optimistic, added_min));
    let mut outcome = WhatIf {
        id: scenario.made.id(),
        basis: Basis::Predicted,
        method: PredictionMethod::PauseTime,
        pause_time_saved_ns,
        saved_ns: Saving { at_least_ns: None, at_most_ns: pause_time_saved_ns.at_most_ns },
        run: None,
        step: None,
        replay_error_ns: None,
        assumes: words::what_if::assumes(&scenario.made, replay.is_some()),
        risk: words::what_if::risk(&scenario.made, scenario.garbage),
        garbage: scenario.garbage,
        every_steps: match scenario.made {
            Change::Planned(every) => Some(every.steps),
            _ => None,
        },
        why_every: match &scenario.made {
            Change::Planned(every) => Some(words::what_if::why_every(every)),
            _ => None,
        },
        change: words::what_if::change(&scenario.made),
    };
    if let Some((replay, runs)) = replay {
        replayed(&mut outcome, &scenario, replay, runs);
    }
    outcome
}

fn ordered(one: i64, other: i64) -> PredictedRange {
    PredictedRange { at_least_ns: one.min(other), at_most_ns: one.max(other) }
}

/// Fills in the figures that need a replay.
fn replayed(
    outcome: &mut WhatIf,
    scenario: &Scenario,
    replay: &RunBaseline<'_>,
    [pessimistic, optimistic]: [RunLength; 2],
) {
    let (added_min, added_max) = scenario.outside_ns;
    let worse = replay.of(&scenario.pessimistic, pessimistic, added_max);
    let better = replay.of(&scenario.optimistic, optimistic, added_min);
    let run = worse.run.around(&better.run, replay.measured.length_ns);
    let saved = |ns: u64| signed(run.measured_ns) - signed(ns);
    outcome.method = PredictionMethod::Replay;
    outcome.saved_ns =
        Saving { at_least_ns: Some(saved(run.at_most_ns)), at_most_ns: saved(run.at_least_ns) };
    let steps = worse.step.zip(better.step).zip(replay.measured.step_ns);
    outcome.step = steps.map(|((worse, better), step_ns)| worse.around(&better, step_ns));
    outcome.run = Some(run);
    outcome.replay_error_ns = worse.error_ns.max(better.error_ns);
}
