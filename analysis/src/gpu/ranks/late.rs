//! Which rank the others waited for, and what made it late.
//!
//! Between two collectives that end together for two ranks, one of both arrives later by what its
//! device was busy or idle for longer than the other's. So the ledger of the last rank is compared
//! with that of the first one, cause by cause, from the end of the collective before; the largest
//! difference is what made it late.

use super::RankJobs;
use super::waits::{arrivals, is_last};
use crate::gpu::replay::{LateSums, RankLedger, RankTimes};
use crate::gpu::timeline::Timeline;
use crate::report::{IdleCause, IdleLedger, LateRank, RankWait};
use crate::time::{difference, signed};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Ranks that are named.
const RANKS: usize = 5;

/// For each timeline its waits for other ranks, and the intervals before it, or another one, was late.
/// `timelines`: the parts at hand.
pub(crate) fn times(timelines: &[&Timeline], found: &RankJobs) -> Vec<RankTimes> {
    let mut times = vec![RankTimes::default(); timelines.len()];
    for ranks in &found.jobs {
        let job = ranks.job(timelines);
        // By member: the collective before, and its end on the rank's own clock.
        let mut before: Vec<Option<(usize, u64)>> = vec![None; job.timelines.len()];
        for (number, collective) in job.collectives.iter().enumerate() {
            let arrivals = arrivals(collective, &job);
            let timeline = |member: usize| ranks.members[member].timeline;
            if let [others @ .., last] = arrivals.as_slice()
                && is_last(&arrivals, ranks)
            {
                let waiting = others.iter().filter(|one| one.wait_ns(last.start_ns) > 0);
                for one in waiting.clone() {
                    let wait_ns = one.wait_ns(last.start_ns);
                    let span = (one.op.start_ns, one.op.start_ns.saturating_add(wait_ns));
                    let waits = &mut times[timeline(one.member)].waits;
                    waits.entry(ranks.members[last.member].rank).or_default().push(span);
                }
                if let Some(first) = waiting.clone().next()
                    && let Some((of_last, last_ns)) = before[last.member]
                    && let Some((of_first, first_ns)) = before[first.member]
                    && of_last == of_first
                    && last_ns < last.op.start_ns
                    && first_ns < first.op.start_ns
                {
                    let late = timeline(last.member);
                    times[late].late.push((last_ns, last.op.start_ns));
                    let early = (late, (first_ns, first.op.start_ns));
                    times[timeline(first.member)].early.push(early);
                }
            }
            for arrival in arrivals {
                before[arrival.member] = Some((number, arrival.op.end_ns));
            }
        }
    }
    times
}

/// The ledgers of all timelines, with the waits for each other. Of a rank with several devices it is
/// unknown which one made it late.
pub(crate) fn explained(ledgers: Vec<Vec<RankLedger>>, found: &RankJobs) -> Vec<Vec<IdleLedger>> {
    let late: Vec<Option<LateRank>> = (0..ledgers.len()).map(|at| late(&ledgers, at)).collect();
    let mut job_of = vec![None; ledgers.len()];
    for (number, job) in found.jobs.iter().enumerate() {
        for member in &job.members {
            job_of[member.timeline] = Some(number);
        }
    }
    let by_timeline = ledgers.into_iter().enumerate().map(|(at, devices)| {
        let members = job_of[at].map_or(&[][..], |job: usize| &found.jobs[job].members);
        let ledgers = devices.into_iter().map(|RankLedger { mut ledger, sums, .. }| {
            let waits = sums.waits_ns.iter().filter(|(_, time_ns)| **time_ns > 0);
            let waits = waits.map(|(rank, time_ns)| {
                let member = members.iter().find(|member| member.rank == *rank);
                let late = member.and_then(|member| late[member.timeline].clone());
                RankWait { rank: *rank, time_ns: *time_ns, late }
            });
            ledger.rank_waits = waits.collect();
            ledger.rank_waits.sort_by_key(|wait| (Reverse(wait.time_ns), wait.rank));
            ledger.rank_waits.truncate(RANKS);
            ledger
        });
        ledgers.collect()
    });
    by_timeline.collect()
}

/// What made a timeline late.
fn late(ledgers: &[Vec<RankLedger>], at: usize) -> Option<LateRank> {
    let [late] = ledgers[at].as_slice() else {
        return None;
    };
    let early = ledgers.iter().filter_map(|devices| match devices.as_slice() {
        [only] => only.sums.early.get(&at),
        _ => None,
    });
    let early: Vec<&LateSums> = early.collect();
    let idle = |sums: &LateSums, cause| sums.idle_ns.get(&cause).copied().unwrap_or(0);
    let longer = |of: &dyn Fn(&LateSums) -> u64| {
        let early_ns: u64 = early.iter().map(|sums| of(sums)).sum();
        difference(signed(of(&late.sums.late)), signed(early_ns))
    };
    let early_causes = early.iter().flat_map(|sums| sums.idle_ns.keys());
    let causes: BTreeSet<IdleCause> =
        late.sums.late.idle_ns.keys().chain(early_causes).copied().collect();
    let mut parts = vec![(longer(&|sums| sums.busy_ns), None)];
    for cause in causes {
        parts.push((longer(&|sums| idle(sums, cause)), Some(cause)));
    }
    let late_ns: i64 = parts.iter().map(|(by_ns, _)| by_ns).sum();
    let (by_ns, cause) =
        parts.into_iter().max_by_key(|(by_ns, cause)| (*by_ns, Reverse(*cause)))?;
    (late_ns > 0 && by_ns > 0).then(|| LateRank {
        cause,
        ratio: (by_ns as f64 / late_ns as f64).min(1.0),
        place: cause.and_then(|cause| late.late_places.get(&cause).cloned()),
    })
}
