//! One side of a change, replayed: run and step with the replay's own error around them.

use super::JobReplays;
use super::ProgramModel;
use super::RunLength;
use super::plan;
use crate::gpu::replay::ReplayChange;
use crate::report::PredictedLength;
use crate::time::after;
use crate::time::duration;

/// The replays of a run, and the run as it was measured.
pub(super) struct RunBaseline<'a> {
    programs: &'a [ProgramModel<'a>],
    replays: &'a JobReplays<'a>,
    pub(super) measured: RunLength,
    /// Number of steps that fit into the run, among which changes of the whole run are divided
    /// equally.
    steps: u64,
}

/// A range of lengths in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct LengthRange {
    min_ns: u64,
    max_ns: u64,
}

impl LengthRange {
    /// The smallest range that contains both.
    pub(super) fn around(&self, other: &Self, measured_ns: u64) -> PredictedLength {
        PredictedLength {
            measured_ns,
            at_least_ns: self.min_ns.min(other.min_ns),
            at_most_ns: self.max_ns.max(other.max_ns),
        }
    }
}

/// One side of a change.
pub(super) struct AssumedOutcome {
    pub(super) run: LengthRange,
    pub(super) step: Option<LengthRange>,
    pub(super) error_ns: Option<u64>,
}

impl<'a> RunBaseline<'a> {
    pub(super) fn new(programs: &'a [ProgramModel<'a>], replays: &'a JobReplays<'a>) -> Self {
        let measured = replays.run(&ReplayChange::default());
        let steps = measured
            .step_ns
            .and_then(|step_ns| measured.length_ns.checked_div(step_ns));
        Self {
            programs,
            replays,
            measured,
            steps: steps.unwrap_or(1).max(1),
        }
    }

    /// `added_ns`: time added to the whole run.
    pub(super) fn of(&self, change: &ReplayChange, added_ns: u64) -> AssumedOutcome {
        let changed_ns = plan::changed_pause_ns(change, self.programs);
        let changed_ns = after(changed_ns, added_ns);
        let error_ns = self.replays.error_ns(changed_ns);
        // Where it is unknown, nothing is added for it.
        let error = error_ns.unwrap_or_default();
        let new = self.replays.run(change);
        let shortens = added_ns == 0 && plan::only_shortens(change, self.programs);
        let limit_ns = shortens.then_some(changed_ns);
        let step = self.measured.step_ns.zip(new.step_ns);
        AssumedOutcome {
            run: range(
                self.measured.length_ns,
                after(new.length_ns, added_ns),
                error,
                limit_ns,
            ),
            step: step.map(|(measured_ns, new_ns)| {
                let new_ns = after(new_ns, added_ns / self.steps);
                range(measured_ns, new_ns, error / self.steps, limit_ns)
            }),
            error_ns,
        }
    }
}

/// `limit_ns`: for a change that only shortens pauses, by how much: it makes nothing longer, and
/// shortens nothing by more.
fn range(measured_ns: u64, new_ns: u64, error_ns: u64, limit_ns: Option<u64>) -> LengthRange {
    let min_ns = duration(error_ns, new_ns);
    let max_ns = after(new_ns, error_ns);
    match limit_ns {
        None => LengthRange { min_ns, max_ns },
        Some(limit_ns) => LengthRange {
            min_ns: min_ns.max(duration(limit_ns, measured_ns)).min(new_ns),
            max_ns: max_ns.min(measured_ns).max(new_ns),
        },
    }
}
