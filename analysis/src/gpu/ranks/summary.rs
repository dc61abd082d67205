//! From timelines to the report's part about ranks.

use super::RankJob;
use super::RankMember;
use super::communicators::Communicators;
use super::victims;
use super::waits;
use super::waits::MemberWaits;
use crate::gpu::replay::ReplayJob;
use crate::gpu::replays::JobReplays;
use crate::gpu::timeline::Timeline;
use crate::report::Basis;
use crate::report::CollectivesReport;
use crate::report::RankReport;
use crate::report::RankedJob;
use crate::report::RanksReport;
use crate::report::UnrelatedRank;
use crate::report::UsefulBusy;
use crate::time::difference;
use std::num::NonZeroUsize;

/// The report on timelines of one or more jobs, `None` where fewer than two have a rank.
#[must_use]
pub fn report(timelines: &[&Timeline]) -> Option<RanksReport> {
    report_of(
        timelines,
        &JobReplays::of(timelines, &[], NonZeroUsize::MIN),
    )
}

/// The same with the replays of these timelines.
pub(crate) fn report_of(timelines: &[&Timeline], replays: &JobReplays) -> Option<RanksReport> {
    let found = &replays.found;
    let members: usize = found.jobs.iter().map(|job| job.members.len()).sum();
    if members + found.alone.len() < 2 {
        return None;
    }
    let unrelated = found.alone.iter().filter_map(|at| {
        let timeline = timelines[*at];
        Some(UnrelatedRank {
            trace: timeline.trace as u64,
            rank: timeline.rank?,
        })
    });
    Some(RanksReport {
        basis: Basis::Inferred,
        unrelated: unrelated.collect(),
        jobs: found
            .jobs
            .iter()
            .map(|ranks| ranked(ranks, &ranks.job(timelines), replays))
            .collect(),
    })
}

fn ranked(ranks: &RankJob, job: &ReplayJob<'_>, replays: &JobReplays) -> RankedJob {
    let waits = waits::waits(ranks, job);
    let communicators = Communicators::of(ranks, job);
    let joined = replays.joined(ranks);
    let without = joined.and_then(|joined| victims::pauses(ranks, &communicators, &joined));
    let (pauses, shorter) = without.unzip();
    let everybody = ranks.members.len();
    let on_all_ranks = ranks.collectives.iter();
    let on_all_ranks = on_all_ranks.filter(|one| one.members.len() == everybody);
    RankedJob {
        // With the hosts, which timelines do not know (`Analysis::report`).
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
            .map(|((member, timeline), waits)| rank(ranks, member, timeline, waits))
            .collect(),
        pauses,
        communicators: communicators.report(
            &communicators.sums(waits.collectives_ns.iter().copied()),
            shorter.as_ref(),
        ),
    }
}

fn rank(
    ranks: &RankJob,
    member: &RankMember,
    timeline: &Timeline,
    waits: &MemberWaits,
) -> RankReport {
    let first_ns = ranks.members[0].offset_ns;
    let aligned = member.aligned_by > 0;
    RankReport {
        rank: member.rank,
        trace: timeline.trace as u64,
        pid: timeline.pid,
        clock_offset_ns: difference(member.offset_ns, first_ns),
        clock_error_ns: aligned.then_some(member.error_ns),
        clock_collectives: member.aligned_by,
        clock_ambiguous: member.ambiguous,
        pauses: timeline.pauses.len() as u64,
        paused_ns: victims::paused_ns(timeline),
        collectives: waits.collectives,
        peer_wait_ns: waits.wait_ns,
        transfer_ns: waits.transfer_ns,
        last: waits.last,
        last_after_pause: waits.last_after_pause,
        devices: waits
            .devices
            .iter()
            .map(|(device, (busy_ns, useful_busy_ns))| UsefulBusy {
                device: *device,
                busy_ns: *busy_ns,
                useful_busy_ns: *useful_busy_ns,
            })
            .collect(),
    }
}
