//! The pauses of a run under a remedy.

use super::collector::traversing_moved_ns;
use super::curves::RecordedCurves;
use super::explicit::ExplicitCalls;
use super::price::natural;
use super::{CostAssumption, PartsLeft, PricedRemedy, RecordedRun, float};
use crate::report::AdviceId;
use crate::spans::PauseSpan;
use crate::time::sum;
use gctrace_event::GcReason;

/// Threshold 0 is raised so often: at most so many collections become one.
const MOST_IN_ONE: usize = 10;
/// Collections become one as long as it takes this part of one of them.
const LEAST_OF_ONE: f64 = 0.75;

/// Pauses that differ from the recorded ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangedPauses {
    /// New lengths, by place in [`RecordedRun::pauses`], in ns; 0 removes a pause.
    pub(crate) lengths: Vec<(usize, u64)>,
    /// Start and length of pauses that are added, in ns.
    pub(crate) added: Vec<(u64, u64)>,
}

/// Kinds of collections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Younger,
    Full,
    Explicit,
}

/// See [`super::changed_pauses`]. `own`: the remedies of this run.
pub(super) fn changed(
    run: &RecordedRun<'_>,
    curves: &RecordedCurves,
    remedy: &PricedRemedy,
    own: &[PricedRemedy],
    steps: &[(u64, u64)],
) -> [ChangedPauses; 3] {
    let interval = remedy.settings.collect_every_steps;
    let left = match own.iter().find(|own| own.id == remedy.id) {
        Some(own) => own.left,
        // All processes of a job follow the plan of one.
        None if interval.is_some() => remedy.left,
        None => PartsLeft::ALL,
    };
    let in_training =
        matches!(remedy.id, AdviceId::Freeze | AdviceId::FreezeBeforeFork | AdviceId::Planned);
    let from_ns = if in_training { run.training_ns.0 } else { 0 };
    // Others stay apart: each takes its part.
    let merges = remedy.id == AdviceId::RaiseThreshold;
    let kinds = kinds(run);
    let of = |kind| {
        let kinds = kinds.iter().filter(move |one| one.1 == kind);
        let places = kinds.map(|(place, _)| *place);
        places.filter(|place| run.pauses[*place].start_ns >= from_ns).collect::<Vec<usize>>()
    };
    let (younger, full, explicit) = (of(Kind::Younger), of(Kind::Full), of(Kind::Explicit));
    CostAssumption::ALL.map(|assumption| {
        let mut changed = ChangedPauses::default();
        let full_part = left.full.at(assumption);
        let fulls = if merges { becoming_one(full_part) } else { 1 };
        let youngest = if merges { MOST_IN_ONE } else { 1 };
        changed.scale(run.pauses, &younger, youngest, left.younger.at(assumption));
        changed.scale(run.pauses, &full, fulls, full_part);
        changed.scale(run.pauses, &explicit, 1, left.explicit.at(assumption));
        if let Some(interval) = interval {
            changed.plan(run, curves, interval, steps, assumption);
        }
        changed
    })
}

/// Places of the pauses that a setting affects, with their kind.
fn kinds(run: &RecordedRun<'_>) -> Vec<(usize, Kind)> {
    let mut reasons = ExplicitCalls::under(run.thresholds);
    let pauses = run.pauses.iter().enumerate();
    let affected = pauses.filter(|(_, pause)| pause.reason != GcReason::Shutdown);
    let kind = affected.map(|(place, pause)| {
        let explicit = reasons.is_explicit(pause.generation, pause.reason);
        let kind = match (explicit, pause.generation) {
            (true, _) => Kind::Explicit,
            (false, 2) => Kind::Full,
            (false, _) => Kind::Younger,
        };
        (place, kind)
    });
    kind.collect()
}

/// How many full collections become one if all take that part of their time.
fn becoming_one(part: f64) -> usize {
    let mut counts = (1..=10_u8).take(MOST_IN_ONE);
    counts.find(|count| part * f64::from(*count) >= LEAST_OF_ONE).map_or(MOST_IN_ONE, usize::from)
}

impl ChangedPauses {
    /// Pauses at these places, so many at a time, become one at the time of the last, with a part of
    /// their time.
    fn scale(&mut self, pauses: &[PauseSpan], places: &[usize], together: usize, part: f64) {
        if part == 1.0 && together == 1 {
            return;
        }
        for group in places.chunks(together.max(1)) {
            let Some((last, before)) = group.split_last() else {
                continue;
            };
            let time_ns = sum(group.iter().map(|place| pauses[*place].duration_ns()));
            self.lengths.extend(before.iter().map(|place| (*place, 0)));
            self.lengths.push((*last, natural(float(time_ns) * part)));
        }
    }

    /// A full collection at the start of every step of training whose number is divisible by the
    /// interval: through what is alive then, and the garbage of an interval.
    fn plan(
        &mut self,
        run: &RecordedRun<'_>,
        curves: &RecordedCurves,
        interval: u64,
        steps: &[(u64, u64)],
        assumption: CostAssumption,
    ) {
        let (start_ns, end_ns) = run.training_ns;
        let inside = steps.iter().filter(|(_, at_ns)| (start_ns..end_ns).contains(at_ns)).skip(1);
        let due: Vec<u64> = inside
            .filter(|(number, _)| number.is_multiple_of(interval.max(1)))
            .map(|(_, at_ns)| *at_ns)
            .collect();
        let each = curves.garbage() / float(due.len().max(1) as u64);
        let (mut window, mut pauses) = (0.0, kinds(run).into_iter().peekable());
        for at_ns in due {
            let before = |(place, _): &(usize, Kind)| run.pauses[*place].start_ns <= at_ns;
            while let Some((_, kind)) = pauses.next_if(before) {
                window += f64::from(u8::from(kind != Kind::Explicit));
            }
            let time_ns = traversing_moved_ns(curves.live_ns(window), assumption)
                + curves.to_free_ns(each, assumption);
            self.added.push((at_ns, natural(time_ns)));
        }
    }
}
