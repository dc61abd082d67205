//! The replays for a report: each timeline is learned once, its jobs are then solved from the results.
//!
//! `LearnedTimeline::of` unpacks one timeline, with the kernels of it that are collectives and the
//! changes that are asked for; afterwards no replay needs the timeline.

use super::cause::CauseReport;
use super::idle::IdleLedger;
use super::kept::KeptTimeline;
use super::ranks::{RankJob, RankJobs, shared_ops};
use super::replay::{
    DeviceRankTimes, InsertedPause, JoinedSkeletons, PauseLength, RankLedger, ReplayChange,
    ReplayJob, ReplayModel, Skeleton, StepIdle,
};
use super::timeline::{GpuPart, OpIndex, Timeline};
use super::{cause, ranks, replay};
use crate::parallel;
use crate::time::{add_to, duration_ns, sum};
use serde::Serialize;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// A process or a job that is too large to be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotReplayed {
    /// Number of times in its model: starts and ends of operations and calls of the largest process, or the rest of
    /// them where the ranks of a job wait for each other.
    pub timestamps: u64,
    /// The most that a model can have.
    pub most: u64,
}

/// Results of learning from one timeline.
#[derive(Clone, Debug)]
pub(crate) struct LearnedTimeline {
    /// The cost of its pauses, as if it ran alone; `None` without any.
    pub(crate) cause: Option<CauseReport>,
    pub(crate) skeleton: Skeleton,
}

impl LearnedTimeline {
    /// `meets`: its kernels that other ranks take part in, from the kernels at hand; more than these do not matter.
    /// `changes`: of the timeline 0. Returns why its devices were idle, too.
    fn of(
        kept: &KeptTimeline,
        meets: &[OpIndex],
        changes: &[ReplayChange],
        times: &DeviceRankTimes,
    ) -> (Self, Vec<RankLedger>) {
        let timeline = kept.whole();
        let shared = shared_ops(&timeline);
        let meets: Vec<OpIndex> = meets.iter().map(|meet| shared[meet.at()]).collect();
        let model = ReplayModel::learn(&ReplayJob::single(&timeline));
        let mut skeleton = model.skeleton(&timeline, &meets, changes);
        skeleton.renumber(|op| OpIndex::new(shared.partition_point(|shared| shared.at() < op)));
        let ledgers = model.rank_ledgers(&timeline, times);
        (Self { cause: cause::of_process(&timeline, &model), skeleton }, ledgers)
    }
}

/// The jobs of some timelines, and data learned to replay them.
#[derive(Debug, Default)]
pub struct JobReplays {
    /// The timelines that are ranks of one job. Operations are places in the part of a timeline that is at hand
    /// ([`KeptTimeline::at_hand`]).
    pub(crate) found: RankJobs,
    /// One per timeline; none where nothing paused, since learning takes long.
    pub(crate) learned: Vec<LearnedTimeline>,
    /// Why the devices of each timeline were idle; none where `not_replayed`, or if a timeline without
    /// pauses would be.
    pub(crate) ledgers: Vec<Vec<IdleLedger>>,
    /// Why they were idle in each step, all devices together; none where there are no ledgers.
    pub(crate) steps: Vec<StepIdle>,
    /// Why no job is replayed although something paused.
    pub(crate) not_replayed: Option<NotReplayed>,
}

impl JobReplays {
    /// Finds the jobs of timelines with GPU times and learns what their replays need. `changes`: will be replayed
    /// later; their timelines are places in `timelines`. `threads`: see [`parallel::map`].
    pub fn of(
        timelines: &[&KeptTimeline],
        changes: &[&ReplayChange],
        threads: NonZeroUsize,
    ) -> Self {
        Self::within(replay::MAX_NODES, timelines, changes, threads)
    }

    /// `most`: of the times in a model.
    fn within(
        most: u64,
        timelines: &[&KeptTimeline],
        changes: &[&ReplayChange],
        threads: NonZeroUsize,
    ) -> Self {
        let mut replays = Self { found: ranks::jobs_of(timelines), ..Self::default() };
        let paused = timelines.iter().any(|timeline| !timeline.pauses.is_empty());
        let too_large = |timestamps: Option<u64>| {
            let timestamps = timestamps?;
            if timestamps <= most {
                return None;
            }
            Some(NotReplayed { timestamps, most })
        };
        let models = timelines.iter().map(|timeline| timeline.timestamps());
        if let Some(not_replayed) = too_large(models.max()) {
            replays.not_replayed = if paused { Some(not_replayed) } else { None };
            return replays;
        }
        let at_hand: Vec<&Timeline> = timelines.iter().map(|kept| kept.at_hand()).collect();
        let times = ranks::late::times(&at_hand, &replays.found);
        if !paused {
            let parts: Vec<_> = timelines.iter().zip(&times).collect();
            let ledgers = parallel::map(&parts, threads, |(kept, times)| {
                let timeline = kept.whole();
                ReplayModel::learn(&ReplayJob::single(&timeline)).rank_ledgers(&timeline, times)
            });
            replays.explain(ledgers);
            return replays;
        }
        let mut meets: Vec<Vec<OpIndex>> = vec![Vec::new(); timelines.len()];
        for job in &replays.found.jobs {
            for member in job.meetings().flat_map(|one| &one.members) {
                let timeline = job.members[member.timeline as usize].timeline;
                meets[timeline].push(member.op);
            }
        }
        let changes = by_timeline(changes, timelines.len());
        let parts: Vec<_> = timelines.iter().zip(meets).zip(changes).zip(&times).collect();
        let learned = parallel::map(&parts, threads, |(((kept, meets), changes), times)| {
            LearnedTimeline::of(kept, meets, changes, times)
        });
        let (learned, ledgers) = learned.into_iter().unzip();
        replays.learned = learned;
        replays.explain(ledgers);
        let joined = replays.found.jobs.iter().map(|job| replays.timestamps(job));
        replays.not_replayed = too_large(joined.max());
        replays
    }

    fn explain(&mut self, ledgers: Vec<Vec<RankLedger>>) {
        let steps = ledgers.iter().map(|devices| {
            let mut sums = StepIdle::new();
            for device in devices {
                sums.resize(device.steps.len(), BTreeMap::new());
                for (sums, step) in sums.iter_mut().zip(&device.steps) {
                    for (cause, time_ns) in step {
                        add_to(sums.entry(*cause).or_default(), *time_ns);
                    }
                }
            }
            sums
        });
        self.steps = steps.collect();
        self.ledgers = ranks::late::explained(ledgers, &self.found);
    }

    /// Each timeline of some with the idle time of its steps by cause; `None` if it is unknown. The replays are of
    /// timelines with GPU times. Timelines of a part are left out: their steps are on another.
    pub(crate) fn with_steps<'a>(
        &'a self,
        timelines: &'a [KeptTimeline],
    ) -> impl Iterator<Item = (&'a KeptTimeline, Option<&'a StepIdle>)> {
        let mut steps = self.steps.iter();
        let with_steps = timelines.iter().map(move |timeline| {
            (timeline, if timeline.has_gpu_times() { steps.next() } else { None })
        });
        with_steps.filter(|(timeline, _)| timeline.gpu_part != Some(GpuPart::Kept))
    }

    /// Number of times in a joined job; at least its number of delays / `MAX_EDGES`.
    fn timestamps(&self, job: &RankJob) -> u64 {
        let members = job.members.iter();
        let skeletons = members.filter_map(|member| self.learned.get(member.timeline));
        let (mut nodes, mut edges) = (job.meetings().count() as u64, 0);
        for skeleton in skeletons.map(|skeleton| &skeleton.skeleton) {
            nodes += skeleton.nodes() as u64;
            edges += skeleton.edges() as u64;
        }
        // Into and out of a meeting, and between both.
        edges += 3 * sum(job.meetings().map(|one| one.members.len() as u64));
        nodes.max(edges / replay::MAX_EDGES)
    }

    /// A job of several ranks, joined; `None` where nothing paused, or if it is not replayed.
    pub(crate) fn joined(&self, job: &RankJob) -> Option<JoinedSkeletons<'_>> {
        if self.not_replayed.is_some() {
            return None;
        }
        let members = job.members.iter();
        let skeletons: Option<Vec<&Skeleton>> =
            members.map(|member| Some(&self.learned.get(member.timeline)?.skeleton)).collect();
        let offsets_ns: Vec<i64> = job.members.iter().map(|member| member.offset_ns).collect();
        let skeletons = skeletons?;
        Some(JoinedSkeletons::join(&skeletons, &offsets_ns, job.meetings()))
    }

    /// The cost of each timeline's pauses, if it had any, as if it ran alone.
    pub(crate) fn causes(&self) -> impl Iterator<Item = &CauseReport> {
        self.learned.iter().filter_map(|learned| learned.cause.as_ref())
    }

    /// All jobs: of several ranks, and every other timeline alone. None where nothing paused, or if
    /// one of them is not replayed.
    pub fn jobs(&self) -> Vec<JoinedSkeletons<'_>> {
        if self.not_replayed.is_some() {
            return Vec::new();
        }
        let of_ranks = self.found.jobs.iter();
        let mut jobs: Vec<JoinedSkeletons<'_>> =
            of_ranks.filter_map(|job| self.joined(job)).collect();
        let mut alone = vec![true; self.learned.len()];
        for member in self.found.jobs.iter().flat_map(|job| &job.members) {
            if let Some(alone) = alone.get_mut(member.timeline) {
                *alone = false;
            }
        }
        for (learned, alone) in self.learned.iter().zip(alone) {
            if alone {
                jobs.push(JoinedSkeletons::join(&[&learned.skeleton], &[0], &[]));
            }
        }
        jobs
    }
}

/// From the first start to the last end of all programs in one scenario, in ns, of jobs with all their ranks.
/// Jobs that have nothing to do with each other: the longest.
pub(crate) fn run_length_ns(jobs: &[JoinedSkeletons<'_>], scenario: usize) -> u64 {
    let length_ns = |job: &JoinedSkeletons<'_>| {
        let replay = job.replay(|_| scenario);
        let ends_ns = (0..job.ranks()).map(|rank| replay.end_ns(rank));
        duration_ns(job.start_ns(), ends_ns.fold(0, u64::max))
    };
    jobs.iter().map(length_ns).fold(0, u64::max)
}

/// For each timeline the part of each change that is about it.
fn by_timeline(changes: &[&ReplayChange], timelines: usize) -> Vec<Vec<ReplayChange>> {
    let mut parts = vec![vec![ReplayChange::default(); changes.len()]; timelines];
    for (at, change) in changes.iter().enumerate() {
        for length in &change.lengths {
            let lengths = &mut parts[length.timeline as usize][at].lengths;
            lengths.push(PauseLength { timeline: 0, ..*length });
        }
        for inserted in &change.inserted {
            let pauses = &mut parts[inserted.timeline as usize][at].inserted;
            pauses.push(InsertedPause { timeline: 0, ..*inserted });
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::collect::{TimelineCollector, TimelineContext};
    use gctrace_event::{GpuOp, Pause};

    /// Two processes with two operations and a pause each.
    #[test]
    fn what_is_too_large_is_not_replayed() {
        let timelines: Vec<KeptTimeline> = (0..2)
            .flat_map(|trace| {
                let mut collector = TimelineCollector::default();
                for start_ns in [10_000, 20_000] {
                    collector.add_op(&GpuOp {
                        pid: Some(7),
                        start_ns,
                        end_ns: start_ns + 5_000,
                        ..GpuOp::default()
                    });
                }
                collector.add_pause(&Pause {
                    pid: 7,
                    start_ns: 12_000,
                    end_ns: 13_000,
                    ..Pause::default()
                });
                let timelines =
                    collector.finish(&TimelineContext { trace, ..TimelineContext::default() });
                timelines.into_iter().map(KeptTimeline::from)
            })
            .collect();
        let timelines: Vec<&KeptTimeline> = timelines.iter().collect();
        let of = |most| JobReplays::within(most, &timelines, &[], NonZeroUsize::MIN);
        // Starts and ends of two operations, and the start of everything.
        let large = of(4);
        let not_replayed = NotReplayed { timestamps: 5, most: 4 };
        assert_eq!(large.not_replayed, Some(not_replayed));
        assert_eq!((large.jobs().len(), large.causes().count()), (0, 0));
        let fits = of(5);
        assert_eq!(fits.not_replayed, None);
        assert_eq!((fits.jobs().len(), fits.causes().count()), (2, 2));
    }
}
