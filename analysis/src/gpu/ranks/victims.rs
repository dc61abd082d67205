//! What pauses of one rank cost the others: the job replayed without them.

use super::RankJob;
use crate::gpu::replay::Change;
use crate::gpu::replay::Job;
use crate::gpu::replay::Model;
use crate::gpu::replay::Schedule;
use crate::gpu::replay::StepEvidence;
use crate::gpu::timeline::Timeline;
use crate::report::Basis;
use crate::report::PauseSource;
use crate::report::RankPauses;
use crate::report::StepEffect;

/// Ranks whose pauses are removed one by one, those with most time in pauses; those of all others
/// are removed together, so that a job of many ranks takes no longer than some replays of it.
const SINGLE: usize = 16;

/// The victim matrix of a job, `None` where nothing paused.
pub(super) fn pauses(ranks: &RankJob, job: &Job<'_>) -> Option<RankPauses> {
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
    let model = Model::learn(job);
    let without = Without {
        ranks,
        job,
        measured: model.replay(&Change::default()),
        model: &model,
    };
    let mut sources: Vec<PauseSource> = single.iter().map(|at| without.of(&[*at])).collect();
    if !others.is_empty() {
        sources.push(without.of(others));
    }
    sources.sort_by_key(|source| std::cmp::Reverse(source.total_ns));
    Some(RankPauses {
        basis: Basis::Inferred,
        victims: ranks.members.iter().map(|member| member.rank).collect(),
        sources,
        all: without.of(&paused),
        all_standard_error_ns: standard_error_ns(job, &model),
    })
}

/// Of the cost of all pauses.
fn standard_error_ns(job: &Job<'_>, model: &Model) -> Option<u64> {
    let without = model.replay(&Change::without_all(job));
    let errors = job
        .timelines
        .iter()
        .enumerate()
        .filter_map(|(at, timeline)| {
            let evidence = StepEvidence::collect(timeline, at, &without)?;
            Some(evidence.standard_error_ns)
        });
    errors.max()
}

/// Replays without pauses, against the measured schedule.
struct Without<'a> {
    ranks: &'a RankJob,
    job: &'a Job<'a>,
    model: &'a Model,
    measured: Schedule,
}

impl Without<'_> {
    /// Without the pauses of some members.
    fn of(&self, members: &[usize]) -> PauseSource {
        let change = Change::without(self.job, |at, _| members.contains(&at));
        let without = self.model.replay(&change);
        let earlier_ns: Vec<i64> = (0..self.job.timelines.len())
            .map(|at| earlier(self.measured.end_ns(at), without.end_ns(at)))
            .collect();
        let total_ns = earlier_ns.iter().fold(0, sum);
        let own = members.iter().filter_map(|at| earlier_ns.get(*at));
        let own_ns = own.fold(0, sum);
        let mut pauses = 0;
        let mut time_ns: u64 = 0;
        for timeline in members.iter().filter_map(|at| self.job.timelines.get(*at)) {
            pauses += timeline.pauses.len() as u64;
            time_ns = time_ns.saturating_add(paused_ns(timeline));
        }
        let mut ranks: Vec<u32> = members
            .iter()
            .filter_map(|at| Some(self.ranks.members.get(*at)?.rank))
            .collect();
        ranks.sort_unstable();
        PauseSource {
            ranks,
            pauses,
            paused_ns: time_ns,
            total_ns,
            amplification_ratio: ratio(total_ns, own_ns),
            job_earlier_ns: earlier(self.measured.makespan_end_ns(), without.makespan_end_ns()),
            steps: self.steps(&without),
            earlier_ns,
        }
    }

    fn steps(&self, without: &Schedule) -> Option<StepEffect> {
        let timelines = || self.job.timelines.iter().enumerate();
        let steps: usize = timelines().map(|(_, timeline)| timeline.steps.len()).sum();
        let steps = steps as u64;
        let mean = |schedule: &Schedule| {
            let spans = timelines().filter_map(|(at, timeline)| stepping(timeline, at, schedule));
            spans.fold(0, u64::saturating_add).checked_div(steps)
        };
        Some(StepEffect {
            steps,
            mean_ns: mean(&self.measured)?,
            mean_without_ns: mean(without)?,
        })
    }
}

/// Time from the begin of the first step of a rank until all is done that was asked for in steps:
/// where the host runs ahead, a step is over long before its work is.
fn stepping(timeline: &Timeline, at: usize, schedule: &Schedule) -> Option<u64> {
    let first = timeline.steps.first()?;
    let last = timeline.steps.iter().max_by_key(|step| step.end_ns)?;
    let begin_ns = schedule.moment(at, first.thread, first.begin_ns);
    let returned_ns = schedule.moment(at, last.thread, last.end_ns);
    let asked = timeline.ops.iter().enumerate().filter(|(_, op)| {
        let call = timeline.calls.get(op.call as usize);
        call.is_some_and(|call| (first.begin_ns..=last.end_ns).contains(&call.begin_ns))
    });
    let done_ns = asked.map(|(op, _)| schedule.op(at, op).1).max();
    Some(
        returned_ns
            .max(done_ns.unwrap_or(0))
            .saturating_sub(begin_ns),
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
