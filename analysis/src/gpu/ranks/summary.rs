//! From timelines to the report's part about ranks.

use super::communicators::{CommunicatorKind, Communicators};
use super::spread::RankSpread;
use super::victims::RankPauses;
use super::waits::{BusyTimes, JobWaits, MemberWaits, RankReport, UsefulBusy, WaitEnds};
use super::{RankJob, RankJobs, RankMember, victims, waits};
use crate::figure::Basis;
use crate::gpu::kept::KeptTimeline;
use crate::gpu::replay::ReplayJob;
use crate::gpu::replays::JobReplays;
use crate::gpu::timeline::Timeline;
use crate::time::difference;
use serde::Serialize;
use std::num::NonZeroUsize;

/// Ranks of distributed jobs, if the traces contain GPU times of at least two ranks. Ranks belong
/// to one job if they ran the same collectives, matched by communicator and sequence number if the
/// profiler recorded these (PyTorch 2.12 and later), otherwise by kernel and order.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RanksReport {
    /// Always inferred: clocks of different traces are aligned by the ends of collectives. These are assumed to be
    /// simultaneous on all ranks.
    pub basis: Basis,
    /// Jobs with at least two ranks in the traces.
    pub jobs: Vec<RankedJob>,
    /// Ranks with collectives that match no other rank in the traces.
    pub unrelated: Vec<UnrelatedRank>,
}

/// A rank that belongs to no job with other ranks.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnrelatedRank {
    /// Index of its trace in `traces`, from 0.
    pub trace: u64,
    /// Number of the rank in its job, from 0.
    pub rank: u32,
}

/// A job and the waits of its ranks for each other.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankedJob {
    /// The ranks of the job that are in the traces, ascending; if `traces_left_out` is not 0, only ranks of the
    /// described traces.
    pub ranks: Vec<RankReport>,
    /// How the figures of the ranks are distributed, over all of them; empty for fewer than eight.
    pub spread: Vec<RankSpread>,
    /// How many collectives could be matched.
    pub collectives: CollectivesReport,
    /// What the pauses of each rank cost all ranks; `null` if no rank paused.
    pub pauses: Option<RankPauses>,
    /// How long the ranks waited for each other by communicator, in kinds, the longest first; at most 16. Inferred.
    /// If `traces_left_out` is not 0, empty for jobs without a described trace.
    pub communicators: Vec<CommunicatorKind>,
}

/// How the kernels of collectives were matched across ranks.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CollectivesReport {
    /// Collectives found on at least two ranks.
    pub matched: u64,
    /// Number of these collectives found on all ranks of the job that are in the traces.
    pub on_all_ranks: u64,
    /// Kernels of collectives found on one rank only.
    pub kernels_unmatched: u64,
    /// Number of these kernels from the time when not all ranks were recorded.
    pub kernels_unmatched_outside: u64,
    /// Kernels that may be of one collective with kernels of other ranks, or not: the profiler
    /// named no communicator, and groups of ranks that run the same program in step end together,
    /// too. They are in no other figure.
    pub kernels_ambiguous: u64,
    /// Kernels that send to or receive from single ranks.
    pub point_to_point: u64,
    /// Number of these kernels with the other side found.
    pub point_to_point_matched: u64,
    /// Matched collectives without a last rank, because the last two ranks started closer together than the error of
    /// the clocks.
    pub last_undecided: u64,
}

/// The report on timelines of one or more jobs, `None` where fewer than two have a rank.
pub fn report(timelines: &[&Timeline]) -> Option<RanksReport> {
    let kept = timelines.iter().map(|timeline| (*timeline).clone().into());
    let kept: Vec<KeptTimeline> = kept.collect();
    let kept: Vec<&KeptTimeline> = kept.iter().collect();
    let replays = JobReplays::of(&kept, &[], NonZeroUsize::MIN);
    let waits = waits(&kept, &replays.found);
    let mut busy = vec![BusyTimes::default(); kept.len()];
    for (at, ends) in wait_ends(&replays.found, &waits) {
        busy[at] = waits::busy(timelines[at], ends);
    }
    report_of(&kept, &replays, &waits, &busy)
}

/// The waits of the ranks of each job.
pub(crate) fn waits(timelines: &[&KeptTimeline], found: &RankJobs) -> Vec<JobWaits> {
    let at_hand: Vec<&Timeline> = timelines.iter().map(|kept| kept.at_hand()).collect();
    let jobs = found.jobs.iter();
    jobs.map(|ranks| waits::waits(ranks, &ranks.job(&at_hand))).collect()
}

/// For each timeline in a job, when its operations stopped waiting.
pub(crate) fn wait_ends<'a>(
    found: &'a RankJobs,
    waits: &'a [JobWaits],
) -> impl Iterator<Item = (usize, &'a WaitEnds)> {
    let jobs = found.jobs.iter().zip(waits);
    jobs.flat_map(|(ranks, waits)| {
        let members = ranks.members.iter().zip(&waits.members);
        members.map(|(member, waits)| (member.timeline, &waits.waited_until_ns))
    })
}

/// The same with the replays of these timelines, and their ranks' waits ([`waits()`]). `busy`: by
/// timeline.
pub(crate) fn report_of(
    timelines: &[&KeptTimeline],
    replays: &JobReplays,
    waits: &[JobWaits],
    busy: &[BusyTimes],
) -> Option<RanksReport> {
    let at_hand: Vec<&Timeline> = timelines.iter().map(|kept| kept.at_hand()).collect();
    let found = &replays.found;
    let members: usize = found.jobs.iter().map(|job| job.members.len()).sum();
    if members + found.alone.len() < 2 {
        return None;
    }
    let unrelated = found.alone.iter().filter_map(|at| {
        let timeline = timelines[*at];
        Some(UnrelatedRank { trace: timeline.trace as u64, rank: timeline.rank? })
    });
    Some(RanksReport {
        basis: Basis::Inferred,
        unrelated: unrelated.collect(),
        jobs: found
            .jobs
            .iter()
            .zip(waits)
            .map(|(ranks, waits)| ranked(ranks, &ranks.job(&at_hand), replays, waits, busy))
            .collect(),
    })
}

fn ranked(
    ranks: &RankJob,
    job: &ReplayJob<'_>,
    replays: &JobReplays,
    waits: &JobWaits,
    busy: &[BusyTimes],
) -> RankedJob {
    let communicators = Communicators::of(ranks, job);
    let joined = replays.joined(ranks);
    let without = joined.and_then(|joined| victims::pauses(ranks, &communicators, &joined));
    let (pauses, shorter) = without.unzip();
    let everybody = ranks.members.len();
    let on_all_ranks = ranks.collectives.iter();
    let on_all_ranks = on_all_ranks.filter(|one| one.members.len() == everybody);
    RankedJob {
        // Filled in with the hosts; timelines do not know these (`Analysis::report`).
        spread: Vec::new(),
        collectives: CollectivesReport {
            matched: ranks.collectives.len() as u64,
            on_all_ranks: on_all_ranks.count() as u64,
            kernels_unmatched: ranks.unmatched,
            kernels_unmatched_outside: ranks.unmatched_outside,
            kernels_ambiguous: ranks.ambiguous,
            point_to_point_matched: 2 * ranks.transfers.len() as u64,
            point_to_point: ranks.members.iter().map(|one| one.point_to_point).sum(),
            last_undecided: waits.undecided,
        },
        ranks: ranks
            .members
            .iter()
            .zip(&job.timelines)
            .zip(&waits.members)
            .map(|((member, timeline), waits)| {
                rank(ranks, member, timeline, waits, &busy[member.timeline])
            })
            .collect(),
        pauses,
        communicators: communicators
            .report(&communicators.sums(waits.collectives_ns.iter().copied()), shorter.as_ref()),
    }
}

fn rank(
    ranks: &RankJob,
    member: &RankMember,
    timeline: &Timeline,
    waits: &MemberWaits,
    busy: &BusyTimes,
) -> RankReport {
    let first_ns = ranks.members[0].offset_ns;
    let aligned = member.aligned_by > 0;
    RankReport {
        rank: member.rank,
        trace: timeline.trace as u64,
        pid: timeline.pid,
        clock_offset_ns: difference(member.offset_ns, first_ns),
        clock_error_ns: if aligned { Some(member.error_ns) } else { None },
        clock_collectives: member.aligned_by,
        clock_ambiguous: member.ambiguous,
        pauses: timeline.pauses.len() as u64,
        paused_ns: victims::paused_ns(timeline),
        devices: busy
            .iter()
            .map(|(device, (busy_ns, useful_busy_ns))| UsefulBusy {
                device: *device,
                busy_ns: *busy_ns,
                useful_busy_ns: *useful_busy_ns,
            })
            .collect(),
        ..waits.report.clone()
    }
}
