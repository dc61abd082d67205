//! The effect of other collector settings on the run.
//!
//! Owns the list of changes and their intervals. `what_if/plan.rs` turns changes into changes of
//! pauses; [`JobReplays`] computes their effect on a run, if GPU times are known.

mod assumed_outcome;
mod collect_every;
mod garbage;
mod plan;
mod program;
mod replayed;
pub(crate) mod report;
mod words;

pub use plan::Assumption;
pub use plan::FullLengths;
pub use plan::RAISED;
pub use plan::disable;
pub use plan::freeze;
pub use plan::planned;
pub use plan::thresholds;
pub use plan::without_any;
pub use plan::without_explicit;
pub use program::ProgramModel;
pub use replayed::JobReplays;
pub use replayed::LearnedJob;

use crate::gpu::replay::ReplayChange;
use crate::report::Basis;
use crate::report::Garbage;
use crate::report::PredictedRange;
use crate::report::Saving;
use crate::report::ScenarioId;
use crate::report::WhatIf;
use assumed_outcome::RunBaseline;
use collect_every::CollectEvery;
use gctrace_event::GcReason;

/// One hour: the time over which garbage without any collection is reported.
const HOUR_NS: u64 = 3_600_000_000_000;

/// A run: how long all of it, and a step of it on the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLength {
    /// From the first start to the last end of all programs, in ns.
    pub length_ns: u64,
    /// Mean step; `None` where steps are unknown.
    pub step_ns: Option<u64>,
}

/// A change, on both sides.
struct Scenario {
    id: ScenarioId,
    change: String,
    pessimistic: ReplayChange,
    optimistic: ReplayChange,
    every: Option<CollectEvery>,
    garbage: Option<Garbage>,
    /// Time that is in neither plan, because it would occur less than twice in the recording: the
    /// lower value for the optimistic, the higher for the pessimistic version. Of the whole run.
    outside_ns: (u64, u64),
}

impl Scenario {
    /// Unknown reasons are not assumed to be explicit calls.
    fn makes_sense(&self, programs: &[ProgramModel<'_>]) -> bool {
        let calls = |program: &ProgramModel<'_>| {
            let mut reasons = program.pauses().map(|(_, pause)| pause.reason);
            reasons.any(|reason| reason == GcReason::Manual)
        };
        self.id != ScenarioId::Explicit || programs.iter().any(calls)
    }
}

/// All changes for programs of one job. Empty where no pause could be changed.
#[must_use]
pub fn predict(programs: &[ProgramModel<'_>], replays: Option<&JobReplays<'_>>) -> Vec<WhatIf> {
    let scenarios = [
        Some(of_freeze(programs)),
        Some(of_thresholds(programs)),
        of_planned(programs),
        Some(of_disable(programs)),
        Some(of_explicit(programs)),
    ];
    let scenarios = scenarios.into_iter().flatten();
    // If the reason of collections is unknown, one version may be empty.
    let changing =
        scenarios.filter(|own| !own.optimistic.lengths.is_empty() && own.makes_sense(programs));
    let replay = replays.map(|replays| RunBaseline::new(programs, replays));
    changing
        .map(|scenario| outcome(scenario, programs, replay.as_ref()))
        .collect()
}

fn both(of: impl Fn(Assumption) -> ReplayChange) -> (ReplayChange, ReplayChange) {
    (of(Assumption::Pessimistic), of(Assumption::Optimistic))
}

fn of_freeze(programs: &[ProgramModel<'_>]) -> Scenario {
    let (pessimistic, optimistic) = both(|side| freeze(programs, side));
    Scenario {
        id: ScenarioId::Freeze,
        change: words::freeze(programs),
        pessimistic,
        optimistic,
        every: None,
        garbage: None,
        outside_ns: (0, 0),
    }
}

fn of_thresholds(programs: &[ProgramModel<'_>]) -> Scenario {
    let (pessimistic, optimistic) = both(|side| thresholds(programs, side));
    let between_ns = garbage::between_collections_ns(programs);
    Scenario {
        id: ScenarioId::Thresholds,
        change: words::thresholds(programs),
        pessimistic,
        optimistic,
        every: None,
        garbage: garbage::over(programs, between_ns.saturating_mul(RAISED as u64)),
        outside_ns: (0, 0),
    }
}

fn of_disable(programs: &[ProgramModel<'_>]) -> Scenario {
    let (pessimistic, optimistic) = both(|side| disable(programs, side));
    Scenario {
        id: ScenarioId::Disable,
        change: words::disable(),
        pessimistic,
        optimistic,
        every: None,
        garbage: garbage::over(programs, HOUR_NS),
        outside_ns: (0, 0),
    }
}

fn of_explicit(programs: &[ProgramModel<'_>]) -> Scenario {
    let (pessimistic, optimistic) = both(|side| without_explicit(programs, side));
    Scenario {
        id: ScenarioId::Explicit,
        change: words::without_explicit(),
        pessimistic,
        optimistic,
        every: None,
        garbage: None,
        outside_ns: (0, 0),
    }
}

fn of_planned(programs: &[ProgramModel<'_>]) -> Option<Scenario> {
    let lengths = FullLengths::of(programs)?;
    let every = collect_every::choose(programs, &lengths)?;
    let step_ns = programs
        .iter()
        .filter_map(collect_every::mean_step_ns)
        .max()?;
    let (pessimistic, optimistic) = both(|side| planned(programs, &lengths, every.steps, side));
    let between_ns = step_ns.saturating_mul(every.steps);
    let (shorter_ns, longer_ns) = lengths.range();
    let steps = programs.iter().map(|own| own.steps().len() as u64).max()?;
    let interval = every.steps.max(1);
    let in_proportion = |length_ns: u64| length_ns.saturating_mul(steps) / interval;
    let mut scenario = Scenario {
        id: ScenarioId::Planned,
        change: words::planned(every.steps),
        pessimistic,
        optimistic,
        garbage: garbage::over(programs, between_ns),
        outside_ns: (0, 0),
        every: Some(every),
    };
    // Too few to represent a long run: their share is added instead.
    if scenario.pessimistic.inserted.len() < 2 * programs.len() {
        scenario.pessimistic.inserted.clear();
        scenario.optimistic.inserted.clear();
        scenario.outside_ns = (in_proportion(shorter_ns), in_proportion(longer_ns));
    }
    Some(scenario)
}

fn outcome(
    scenario: Scenario,
    programs: &[ProgramModel<'_>],
    replay: Option<&RunBaseline<'_>>,
) -> WhatIf {
    let (added_min, added_max) = scenario.outside_ns;
    let processes = signed(programs.len() as u64);
    let less = |change: &ReplayChange, added_ns: u64| {
        let added_ns = signed(added_ns).saturating_mul(processes);
        plan::saved_pause_ns(change, programs).saturating_sub(added_ns)
    };
    let pause_time_saved_ns = ordered(
        less(&scenario.pessimistic, added_max),
        less(&scenario.optimistic, added_min),
    );
    let mut outcome = WhatIf {
        id: scenario.id,
        basis: Basis::Predicted,
        method: "pause-time".to_owned(),
        pause_time_saved_ns,
        saved_ns: Saving {
            at_least_ns: None,
            at_most_ns: pause_time_saved_ns.at_most_ns,
        },
        run: None,
        step: None,
        replay_error_ns: None,
        assumes: words::assumes(scenario.id, replay.is_some()),
        risk: words::risk(scenario.id, programs, scenario.garbage.as_ref()),
        garbage: scenario.garbage,
        every_steps: scenario.every.as_ref().map(|every| every.steps),
        why_every: scenario.every.as_ref().map(|every| every.why.clone()),
        change: scenario.change.clone(),
    };
    if let Some(replay) = replay {
        replayed(&mut outcome, &scenario, replay);
    }
    outcome
}

fn ordered(one: i64, other: i64) -> PredictedRange {
    PredictedRange {
        at_least_ns: one.min(other),
        at_most_ns: one.max(other),
    }
}

/// Fills in the figures that need a replay.
fn replayed(outcome: &mut WhatIf, scenario: &Scenario, replay: &RunBaseline<'_>) {
    let (added_min, added_max) = scenario.outside_ns;
    let worse = replay.of(&scenario.pessimistic, added_max);
    let better = replay.of(&scenario.optimistic, added_min);
    let run = worse.run.around(&better.run, replay.measured.length_ns);
    let saved = |ns: u64| signed(run.measured_ns).saturating_sub(signed(ns));
    outcome.method = "replay".to_owned();
    outcome.saved_ns = Saving {
        at_least_ns: Some(saved(run.at_most_ns)),
        at_most_ns: saved(run.at_least_ns),
    };
    let steps = worse.step.zip(better.step).zip(replay.measured.step_ns);
    outcome.step = steps.map(|((worse, better), step_ns)| worse.around(&better, step_ns));
    outcome.run = Some(run);
    outcome.replay_error_ns = worse.error_ns.max(better.error_ns);
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}
