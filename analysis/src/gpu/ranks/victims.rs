//! What pauses of one rank cost the others: the job replayed without them.

use super::RankJob;
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

/// Number of ranks whose pauses are removed one by one, those with the most pause time; those of
/// all others are removed together, so that a job of many ranks needs only some replays.
const SINGLE: usize = 16;

/// The victim matrix of a job, `None` where nothing paused.
pub(super) fn pauses(ranks: &RankJob, job: &ReplayJob<'_>) -> Option<RankPauses> {
    let mut paused: Vec<(u64, usize)> = (0..)
        .zip(&job.timelines)
        .map(|(at, timeline)| (paused_ns(timeline), at))
        .filter(|(_, at)| {
            job.timelines
                .get(*at)
                .is_some_and(|one| !one.pauses.is_empty())
        })
        .collect();
    if paused.is_empty() {
        return None;
    }
    paused.sort_by_key(|(paused_ns, at)| (std::cmp::Reverse(*paused_ns), *at));
    let paused: Vec<usize> = paused.into_iter().map(|(_, at)| at).collect();
    let (single, others) = paused.split_at(paused.len().min(SINGLE));
    let model = ReplayModel::learn(job);
    let measured = ScheduleOutcome::of(job, &model.replay(&ReplayChange::default()));
    let without = |members: &[usize]| {
        let change = ReplayChange::without(job, |at, _| members.contains(&at));
        model.replay(&change)
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
        let spans_ns = spans.fold(0, u64::saturating_add);
        Self {
            ends_ns: timelines().map(|(at, _)| schedule.end_ns(at)).collect(),
            steps: steps as u64,
            step_ns: spans_ns.checked_div(steps as u64),
        }
    }

    fn makespan_end_ns(&self) -> u64 {
        self.ends_ns.iter().max().copied().unwrap_or(0)
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
        .map(|(measured_ns, without_ns)| earlier(*measured_ns, *without_ns))
        .collect();
    let total_ns = earlier_ns.iter().fold(0, sum);
    let own = members.iter().filter_map(|at| earlier_ns.get(*at));
    let own_ns = own.fold(0, sum);
    let timelines = members.iter().filter_map(|at| job.timelines.get(*at));
    let time_ns = timelines
        .clone()
        .map(|timeline| paused_ns(timeline))
        .fold(0, u64::saturating_add);
    let numbers = members.iter().filter_map(|at| ranks.members.get(*at));
    let mut numbers: Vec<u32> = numbers.map(|member| member.rank).collect();
    numbers.sort_unstable();
    PauseSource {
        ranks: numbers,
        pauses: timelines.map(|timeline| timeline.pauses.len() as u64).sum(),
        paused_ns: time_ns,
        total_ns,
        amplification_ratio: ratio(total_ns, own_ns),
        job_earlier_ns: earlier(measured.makespan_end_ns(), without.makespan_end_ns()),
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
    let asked = timeline.ops.iter().enumerate().filter(|(_, op)| {
        let call = timeline.calls.get(op.call as usize);
        call.is_some_and(|call| (first.start_ns..=last.end_ns).contains(&call.start_ns))
    });
    let done_ns = asked.map(|(op, _)| schedule.op(at, op).1).max();
    Some(
        returned_ns
            .max(done_ns.unwrap_or(0))
            .saturating_sub(start_ns),
    )
}

/// Time in the pauses of a timeline, added.
pub(super) fn paused_ns(timeline: &Timeline) -> u64 {
    let lengths = timeline.pauses.iter().map(|pause| pause.duration_ns());
    lengths.fold(0, u64::saturating_add)
}

fn sum(sum: i64, more: &i64) -> i64 {
    sum.saturating_add(*more)
}

fn earlier(measured_ns: u64, without_ns: u64) -> i64 {
    measured_ns
        .cast_signed()
        .saturating_sub(without_ns.cast_signed())
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of times below 2^53 ns")]
fn ratio(total_ns: i64, own_ns: i64) -> Option<f64> {
    (own_ns > 0).then(|| total_ns as f64 / own_ns as f64)
}
