//! One side of a change, replayed: run and step with the replay's own error around them.

use super::Plan;
use super::Program;
use super::Rerun;
use super::Run;
use crate::report::PredictedLength;

/// A run that can be asked, and how it was.
pub(super) struct Replay<'a> {
    programs: &'a [Program<'a>],
    rerun: &'a dyn Rerun,
    pub(super) measured: Run,
    /// Steps, as many as fit into the run: what is of the whole run falls to each alike.
    steps: u64,
}

/// From and to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    least_ns: u64,
    most_ns: u64,
}

impl Range {
    /// A range that holds this and another.
    pub(super) fn around(&self, other: &Self, measured_ns: u64) -> PredictedLength {
        PredictedLength {
            measured_ns,
            at_least_ns: self.least_ns.min(other.least_ns),
            at_most_ns: self.most_ns.max(other.most_ns),
        }
    }
}

/// One side of a change.
pub(super) struct Side {
    pub(super) run: Range,
    pub(super) step: Option<Range>,
    pub(super) error_ns: Option<u64>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(programs: &'a [Program<'a>], rerun: &'a dyn Rerun) -> Self {
        let measured = rerun.run(&Plan::default());
        let steps = measured
            .step_ns
            .and_then(|step_ns| measured.length_ns.checked_div(step_ns));
        Self {
            programs,
            rerun,
            measured,
            steps: steps.unwrap_or(1).max(1),
        }
    }

    /// `added_ns`: what comes on top of the whole run.
    pub(super) fn of(&self, plan: &Plan, added_ns: u64) -> Side {
        let changed_ns = plan.changed_pause_ns(self.programs);
        let changed_ns = changed_ns.saturating_add(added_ns);
        let error_ns = self.rerun.error_ns(changed_ns);
        let error = error_ns.unwrap_or(0);
        let new = self.rerun.run(plan);
        let shortens = added_ns == 0 && plan.only_shortens(self.programs);
        let limit_ns = shortens.then_some(changed_ns);
        let step = self.measured.step_ns.zip(new.step_ns);
        Side {
            run: range(
                self.measured.length_ns,
                new.length_ns.saturating_add(added_ns),
                error,
                limit_ns,
            ),
            step: step.map(|(measured_ns, new_ns)| {
                let new_ns = new_ns.saturating_add(added_ns / self.steps);
                range(measured_ns, new_ns, error / self.steps, limit_ns)
            }),
            error_ns,
        }
    }
}

/// `limit_ns`: of a change that only shortens pauses, by how much: it makes nothing longer, and nothing shorter by more.
fn range(measured_ns: u64, new_ns: u64, error_ns: u64, limit_ns: Option<u64>) -> Range {
    let least_ns = new_ns.saturating_sub(error_ns);
    let most_ns = new_ns.saturating_add(error_ns);
    match limit_ns {
        None => Range { least_ns, most_ns },
        Some(limit_ns) => Range {
            least_ns: least_ns
                .max(measured_ns.saturating_sub(limit_ns))
                .min(new_ns),
            most_ns: most_ns.min(measured_ns).max(new_ns),
        },
    }
}
