//! The replays behind a report: each timeline is learned once, its jobs are then solved from what
//! was learned.
//!
//! `LearnedTimeline::of` needs one timeline, the kernels of it that are collectives and the changes
//! that are asked for; afterwards no replay needs the timeline.

use super::cause;
use super::ranks;
use super::ranks::RankJob;
use super::ranks::RankJobs;
use super::replay::InsertedPause;
use super::replay::JoinedReplay;
use super::replay::JoinedSkeletons;
use super::replay::PauseLength;
use super::replay::ReplayChange;
use super::replay::ReplayJob;
use super::replay::ReplayModel;
use super::replay::Skeleton;
use super::timeline::OpIndex;
use super::timeline::Timeline;
use crate::parallel;
use crate::report::CauseReport;
use crate::time::duration;
use std::num::NonZeroUsize;

/// What is learned of one timeline.
#[derive(Clone, Debug)]
pub(crate) struct LearnedTimeline {
    /// The cost of its pauses, as if it ran alone; `None` without any.
    pub(crate) cause: Option<CauseReport>,
    pub(crate) skeleton: Skeleton,
}

impl LearnedTimeline {
    /// `meets`: its kernels that other ranks take part in; more than these do not matter. `changes`:
    /// of the timeline 0.
    fn of(timeline: &Timeline, meets: &[OpIndex], changes: &[ReplayChange]) -> Self {
        let model = ReplayModel::learn(&ReplayJob::single(timeline));
        Self {
            cause: cause::of_process(timeline, &model),
            skeleton: model.skeleton(timeline, meets, changes),
        }
    }
}

/// The jobs of some timelines, and what was learned to replay them.
#[derive(Debug, Default)]
pub struct JobReplays {
    /// Which of the timelines are ranks of one job.
    pub(crate) found: RankJobs,
    /// One per timeline; none where nothing paused, since learning takes long.
    pub(crate) learned: Vec<LearnedTimeline>,
}

/// A run: how long all of it, and a step of it on the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLength {
    /// From the first start to the last end of all programs, in ns.
    pub length_ns: u64,
    /// Mean step; `None` where steps are unknown.
    pub step_ns: Option<u64>,
}

impl JobReplays {
    /// Finds the jobs of timelines with GPU times and learns what their replays need. `changes`:
    /// whose effect will be asked for; their timelines are places in `timelines`. `threads`: see
    /// [`parallel::map`].
    #[must_use]
    pub fn of(timelines: &[&Timeline], changes: &[&ReplayChange], threads: NonZeroUsize) -> Self {
        let found = ranks::jobs(timelines);
        if timelines.iter().all(|timeline| timeline.pauses.is_empty()) {
            return Self {
                found,
                learned: Vec::new(),
            };
        }
        let mut meets: Vec<Vec<OpIndex>> = vec![Vec::new(); timelines.len()];
        for job in &found.jobs {
            for member in job.collectives.iter().flat_map(|one| &one.members) {
                let timeline = job.members[member.timeline as usize].timeline;
                meets[timeline].push(member.op);
            }
        }
        let changes = by_timeline(changes, timelines.len());
        let parts: Vec<_> = timelines.iter().zip(meets).zip(changes).collect();
        Self {
            learned: parallel::map(&parts, threads, |((timeline, meets), changes)| {
                LearnedTimeline::of(timeline, meets, changes)
            }),
            found,
        }
    }

    /// A job of several ranks, joined; `None` where nothing paused.
    pub(crate) fn joined(&self, job: &RankJob) -> Option<JoinedSkeletons<'_>> {
        let members = job.members.iter();
        let skeletons: Option<Vec<&Skeleton>> = members
            .map(|member| Some(&self.learned.get(member.timeline)?.skeleton))
            .collect();
        let offsets_ns: Vec<i64> = job.members.iter().map(|member| member.offset_ns).collect();
        let skeletons = skeletons?;
        Some(JoinedSkeletons::join(
            &skeletons,
            &offsets_ns,
            &job.collectives,
        ))
    }

    /// What the pauses of each timeline cost that had some, as if it ran alone.
    pub(crate) fn causes(&self) -> impl Iterator<Item = &CauseReport> {
        self.learned.iter().filter_map(|own| own.cause.as_ref())
    }

    /// All jobs: those of several ranks, and every other timeline alone. None where nothing paused.
    #[must_use]
    pub fn jobs(&self) -> Vec<JoinedSkeletons<'_>> {
        let of_ranks = self.found.jobs.iter();
        let mut jobs: Vec<JoinedSkeletons<'_>> =
            of_ranks.filter_map(|job| self.joined(job)).collect();
        let mut alone = vec![true; self.learned.len()];
        for member in self.found.jobs.iter().flat_map(|job| &job.members) {
            if let Some(alone) = alone.get_mut(member.timeline) {
                *alone = false;
            }
        }
        let alone = self.learned.iter().zip(alone).filter(|(_, alone)| *alone);
        jobs.extend(alone.map(|(own, _)| JoinedSkeletons::join(&[&own.skeleton], &[0], &[])));
        jobs
    }
}

impl RunLength {
    /// The run of jobs with all their ranks in one scenario. Jobs that have nothing to do with each
    /// other: the longest.
    #[must_use]
    pub fn of(jobs: &[JoinedSkeletons<'_>], scenario: usize) -> Self {
        let runs = jobs.iter().map(|job| Self::of_job(job, scenario));
        let all: Vec<Self> = runs.collect();
        let steps: Vec<u64> = all.iter().filter_map(|run| run.step_ns).collect();
        Self {
            length_ns: all.iter().map(|run| run.length_ns).fold(0, u64::max),
            step_ns: mean(&steps),
        }
    }

    fn of_job(job: &JoinedSkeletons<'_>, scenario: usize) -> Self {
        let replay = job.replay(|_| scenario);
        let ends_ns = (0..job.ranks()).map(|rank| replay.end_ns(rank));
        let steps: Vec<u64> = (0..job.ranks())
            .filter_map(|rank| mean_step_ns(&replay, rank))
            .collect();
        Self {
            length_ns: duration(job.start_ns(), ends_ns.fold(0, u64::max)),
            step_ns: mean(&steps),
        }
    }
}

/// Mean step of a rank; `None` with fewer than two.
fn mean_step_ns(replay: &JoinedReplay<'_>, rank: usize) -> Option<u64> {
    let steps: Vec<(u64, u64)> = replay.steps_ns(rank).collect();
    let [(start_ns, _), .., (_, end_ns)] = steps.as_slice() else {
        return None;
    };
    Some(duration(*start_ns, *end_ns) / steps.len() as u64)
}

fn mean(values: &[u64]) -> Option<u64> {
    let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
    let mean = sum.checked_div(values.len() as u128)?;
    u64::try_from(mean).ok()
}

/// For each timeline the part of each change that is about it.
fn by_timeline(changes: &[&ReplayChange], timelines: usize) -> Vec<Vec<ReplayChange>> {
    let mut parts = vec![vec![ReplayChange::default(); changes.len()]; timelines];
    for (at, change) in changes.iter().enumerate() {
        for length in &change.lengths {
            let own = &mut parts[length.timeline as usize][at].lengths;
            own.push(PauseLength {
                timeline: 0,
                ..*length
            });
        }
        for inserted in &change.inserted {
            let own = &mut parts[inserted.timeline as usize][at].inserted;
            own.push(InsertedPause {
                timeline: 0,
                ..*inserted
            });
        }
    }
    parts
}
