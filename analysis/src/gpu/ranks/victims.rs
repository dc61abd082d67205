//! What pauses of one rank cost the others: the job replayed without them.

use super::RankJob;
use crate::accumulate::sum;
use crate::gpu::index::Index;
use crate::gpu::pause_span::PauseSpan;
use crate::gpu::replay::ReplayChange;
use crate::gpu::replay::ReplayJob;
use crate::gpu::replay::ReplayModel;
use crate::gpu::replay::ReplaySchedule;
use crate::gpu::replay::StepEvidence;
use crate::gpu::timeline::Timeline;
use crate::report::Basis;
use crate::report::PauseSource;
use crate::report::RankPauses;
use crate::report::StepEffect;
use crate::time::duration;
use crate::time::later;
use crate::time::since;

/// Number of ranks whose pauses are removed one by one, those with the most pause time; those of
/// all others are removed together, so that a job of many ranks needs only some replays.
const SINGLE: usize = 16;

/// The victim matrix of a job, `None` where nothing paused or the job is too large to be replayed.
pub(super) fn pauses(ranks: &RankJob, job: &ReplayJob<'_>) -> Option<RankPauses> {
    let mut paused: Vec<(u64, usize)> = (0..)
        .zip(&job.timelines)
        .filter(|(_, timeline)| !timeline.pauses.is_empty())
        .map(|(at, timeline)| (paused_ns(timeline), at))
        .collect();
    if paused.is_empty() || !job.fits() {
        return None;
    }
    paused.sort_by_key(|(paused_ns, at)| (std::cmp::Reverse(*paused_ns), *at));
    let paused: Vec<usize> = paused.into_iter().map(|(_, at)| at).collect();
    let (single, others) = paused.split_at(paused.len().min(SINGLE));
    let model = ReplayModel::learn(job);
    let measured = ScheduleOutcome::of(job, &model.replay(&ReplayChange::default()));
    let without = |members: &[usize]| {
        let mut removed = vec![false; job.timelines.len()];
        for at in members {
            removed[*at] = true;
        }
        model.replay(&ReplayChange::without(job, |at, _| removed[at]))
    };
    let source = |members: &[usize], schedule: &ReplaySchedule| {
        let outcome = ScheduleOutcome::of(job, schedule);
        source(ranks, job, members, &measured, &outcome)
    };
    let mut sources: Vec<PauseSource> = Vec::new();
    for members in single.chunks(1).chain([others]) {
        if !members.is_empty() {
            sources.push(source(members, &without(members)));
        }
    }
    sources.sort_by_key(|source| std::cmp::Reverse(source.total_ns));
    let without_all = without(&paused);
    Some(RankPauses {
        basis: Basis::Inferred,
        victims: ranks.members.iter().map(|member| member.rank).collect(),
        sources,
        all: source(&paused, &without_all),
        all_standard_error_ns: standard_error_ns(job, &without_all),
    })
}

/// Standard error of the cost of all pauses, in ns; `None` without enough steps.
fn standard_error_ns(job: &ReplayJob<'_>, without_all: &ReplaySchedule) -> Option<u64> {
    let timelines = job.timelines.iter().enumerate();
    let errors = timelines.filter_map(|(at, timeline)| {
        let evidence = StepEvidence::collect(timeline, at, without_all)?;
        Some(evidence.standard_error_ns)
    });
    errors.max()
}

/// The part of a schedule that is compared.
struct ScheduleOutcome {
    /// When each rank ends.
    ends_ns: Vec<u64>,
    steps: u64,
    /// Mean time of a step.
    step_ns: Option<u64>,
}

impl ScheduleOutcome {
    fn of(job: &ReplayJob<'_>, schedule: &ReplaySchedule) -> Self {
        let timelines = || job.timelines.iter().enumerate();
        let steps: usize = timelines().map(|(_, timeline)| timeline.steps.len()).sum();
        let spans = timelines().filter_map(|(at, timeline)| stepping(timeline, at, schedule));
        Self {
            ends_ns: timelines().map(|(at, _)| schedule.end_ns(at)).collect(),
            steps: steps as u64,
            step_ns: sum(spans).checked_div(steps as u64),
        }
    }

    fn makespan_end_ns(&self) -> u64 {
        self.ends_ns.iter().copied().fold(0, u64::max)
    }
}

/// The row of some members, with their pauses removed in `without`.
fn source(
    ranks: &RankJob,
    job: &ReplayJob<'_>,
    members: &[usize],
    measured: &ScheduleOutcome,
    without: &ScheduleOutcome,
) -> PauseSource {
    let ends = measured.ends_ns.iter().zip(&without.ends_ns);
    let earlier_ns: Vec<i64> = ends
        .map(|(measured_ns, without_ns)| since(*measured_ns, *without_ns))
        .collect();
    let total_ns = earlier_ns.iter().copied().fold(0, later);
    let own_ns = members.iter().map(|at| earlier_ns[*at]).fold(0, later);
    let timelines = members.iter().map(|at| job.timelines[*at]);
    let numbers = members.iter().map(|at| ranks.members[*at].rank);
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    PauseSource {
        ranks: numbers,
        pauses: timelines
            .clone()
            .map(|timeline| timeline.pauses.len() as u64)
            .sum(),
        paused_ns: sum(timelines.map(paused_ns)),
        total_ns,
        amplification_ratio: ratio(total_ns, own_ns),
        job_earlier_ns: since(measured.makespan_end_ns(), without.makespan_end_ns()),
        steps: measured
            .step_ns
            .zip(without.step_ns)
            .map(|(mean_ns, mean_without_ns)| StepEffect {
                steps: measured.steps,
                mean_ns,
                mean_without_ns,
            }),
        earlier_ns,
    }
}

/// Time from the start of the first step of a rank until everything launched in its steps has
/// finished: if the host runs ahead, a step ends long before its work.
fn stepping(timeline: &Timeline, at: usize, schedule: &ReplaySchedule) -> Option<u64> {
    let first = timeline.steps.first()?;
    let last = timeline.steps.iter().max_by_key(|step| step.end_ns)?;
    let start_ns = schedule.timestamp(at, first.thread, first.start_ns);
    let returned_ns = schedule.timestamp(at, last.thread, last.end_ns);
    let asked = Index::enumerate(&timeline.ops).filter(|(_, op)| {
        let call = timeline.call(op);
        call.is_some_and(|call| (first.start_ns..=last.end_ns).contains(&call.start_ns))
    });
    let ends_ns = asked.map(|(op, _)| schedule.op(at, op).1);
    Some(duration(start_ns, ends_ns.fold(returned_ns, u64::max)))
}

/// Time in the pauses of a timeline, added.
pub(super) fn paused_ns(timeline: &Timeline) -> u64 {
    sum(timeline.pauses.iter().map(PauseSpan::duration_ns))
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of times below 2^53 ns")]
fn ratio(total_ns: i64, own_ns: i64) -> Option<f64> {
    (own_ns > 0).then(|| total_ns as f64 / own_ns as f64)
}
