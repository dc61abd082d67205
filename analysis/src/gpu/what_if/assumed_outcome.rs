//! One side of a change, replayed: run and step with the replay's own error around them.

use super::{ProgramModel, plan};
use crate::gpu::replay::ReplayChange;
use crate::gpu::replays::RunLength;
use crate::report::PredictedLength;
use crate::time::{after, duration};

/// A run as it was measured, that others are compared with.
pub(super) struct RunBaseline<'a> {
    programs: &'a [ProgramModel<'a>],
    /// Error of the replay's cost of all pauses, as a share of their length; `None` if unknown.
    error_ratio: Option<f64>,
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
    pub(super) fn new(
        programs: &'a [ProgramModel<'a>],
        measured: RunLength,
        error_ratio: Option<f64>,
    ) -> Self {
        let steps = measured.step_ns.and_then(|step_ns| measured.length_ns.checked_div(step_ns));
        Self { programs, error_ratio, measured, steps: steps.unwrap_or(1).max(1) }
    }

    /// Error of the time saved by a change; `None` if unknown. `saved_pause_ns`: the pause time
    /// that it removes.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an error bar needs no more than 52 bits; casts of floats saturate"
    )]
    pub(super) fn error_ns(&self, saved_pause_ns: u64) -> Option<u64> {
        self.error_ratio.map(|ratio| (ratio.max(0.0) * saved_pause_ns as f64) as u64)
    }

    /// `new`: the run with the change. `added_ns`: time added to the whole run.
    pub(super) fn of(
        &self,
        change: &ReplayChange,
        new: RunLength,
        added_ns: u64,
    ) -> AssumedOutcome {
        let changed_ns = plan::changed_pause_ns(change, self.programs);
        let changed_ns = after(changed_ns, added_ns);
        let error_ns = self.error_ns(changed_ns);
        // Where it is unknown, nothing is added for it.
        let error = error_ns.unwrap_or_default();
        let shortens = added_ns == 0 && plan::only_shortens(change, self.programs);
        let limit_ns = shortens.then_some(changed_ns);
        let step = self.measured.step_ns.zip(new.step_ns);
        AssumedOutcome {
            run: range(self.measured.length_ns, after(new.length_ns, added_ns), error, limit_ns),
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
