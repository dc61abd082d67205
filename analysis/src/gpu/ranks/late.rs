//! The rank that the others waited for, and why it was late.
//!
//! Between two collectives that end together for two ranks, one of both arrives later by the extra time that its
//! device was busy or idle. So the ledger of the last rank is compared with the ledger of the first one,
//! cause by cause, from the end of the collective before; the largest difference made it late.

use super::RankJobs;
use super::waits::{RankArrival, arrivals, is_last};
use crate::gpu::idle::{IdleCause, IdleLedger, LateRank, RankWait};
use crate::gpu::replay::{DeviceRankTimes, LateSums, RankLedger, RankTimes, ReplayJob};
use crate::gpu::timeline::Timeline;
use crate::time::{after, difference, signed};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

/// Ranks that are named.
const RANKS: usize = 5;

/// For each timeline its waits for other ranks, and the intervals before it, or another one, was late.
/// `timelines`: the parts at hand.
pub(crate) fn times(timelines: &[&Timeline], found: &RankJobs) -> Vec<DeviceRankTimes> {
    let mut times = vec![DeviceRankTimes::default(); timelines.len()];
    for ranks in &found.jobs {
        let job = ranks.job(timelines);
        // By member: the collective before, and its end on the rank's own clock.
        let mut before: Vec<Option<(usize, u64)>> = vec![None; job.timelines.len()];
        for (number, collective) in job.collectives.iter().enumerate() {
            let arrivals = arrivals(collective, &job);
            let timeline = |arrival: &RankArrival| ranks.members[arrival.member].timeline;
            if let [others @ .., last] = arrivals.as_slice()
                && is_last(&arrivals, ranks)
            {
                let waiting = others.iter().filter(|one| one.wait_ns(last.start_ns) > 0);
                for one in waiting.clone() {
                    let wait_ns = one.wait_ns(last.start_ns);
                    let span = (one.op.start_ns, after(one.op.start_ns, wait_ns));
                    let rank = ranks.members[last.member].rank;
                    on_device(&mut times[timeline(one)], &job, one).waits.push((span, rank));
                }
                if let Some(first) = waiting.clone().next()
                    && let Some((of_last, last_ns)) = before[last.member]
                    && let Some((of_first, first_ns)) = before[first.member]
                    && of_last == of_first
                    && last_ns < last.op.start_ns
                    && first_ns < first.op.start_ns
                {
                    let late = on_device(&mut times[timeline(last)], &job, last);
                    late.late.push((last_ns, last.op.start_ns));
                    let early = (timeline(last), (first_ns, first.op.start_ns));
                    on_device(&mut times[timeline(first)], &job, first).early.push(early);
                }
            }
            for arrival in arrivals {
                before[arrival.member] = Some((number, arrival.op.end_ns));
            }
        }
    }
    times
}

/// The times of a rank's device in a collective.
fn on_device<'a>(
    times: &'a mut DeviceRankTimes,
    job: &ReplayJob<'_>,
    arrival: &RankArrival,
) -> &'a mut RankTimes {
    let streams = &job.timelines[arrival.member].streams;
    times.entry(streams[arrival.op.stream].device).or_default()
}

/// The ledgers of all timelines, with the waits for each other.
pub(crate) fn explained(ledgers: Vec<Vec<RankLedger>>, found: &RankJobs) -> Vec<Vec<IdleLedger>> {
    let late = late(&ledgers);
    let mut job_of = vec![None; ledgers.len()];
    let timelines_of = found.jobs.iter().map(|job| {
        let members = job.members.iter();
        members.map(|member| (member.rank, member.timeline)).collect::<HashMap<u32, usize>>()
    });
    let timelines_of: Vec<HashMap<u32, usize>> = timelines_of.collect();
    for (number, job) in found.jobs.iter().enumerate() {
        for member in &job.members {
            job_of[member.timeline] = Some(number);
        }
    }
    let by_timeline = ledgers.into_iter().zip(job_of).map(|(devices, job)| {
        let timelines = job.and_then(|job: usize| timelines_of.get(job));
        let ledgers = devices.into_iter().map(|RankLedger { mut ledger, sums, .. }| {
            let mut waits: Vec<(u32, u64)> = sums.waits_ns.into_iter().collect();
            waits.retain(|(_, time_ns)| *time_ns > 0);
            waits.sort_by_key(|(rank, time_ns)| (Reverse(*time_ns), *rank));
            let waits = waits.into_iter().take(RANKS).map(|(rank, time_ns)| {
                let why = || late[*timelines?.get(&rank)?].clone();
                RankWait { rank, time_ns, late: why() }
            });
            ledger.rank_waits = waits.collect();
            ledger
        });
        ledgers.collect()
    });
    by_timeline.collect()
}

/// Why each timeline was late, on the devices that made it late.
fn late(ledgers: &[Vec<RankLedger>]) -> Vec<Option<LateRank>> {
    let mut early: Vec<Vec<&LateSums>> = vec![Vec::new(); ledgers.len()];
    for (of, sums) in ledgers.iter().flatten().flat_map(|device| &device.sums.early) {
        early[*of].push(sums);
    }
    ledgers.iter().zip(early).map(|(devices, early)| cause(devices, &early)).collect()
}

/// `early`: what the devices of others did meanwhile that were the first.
fn cause(devices: &[RankLedger], early: &[&LateSums]) -> Option<LateRank> {
    let late = devices.iter().map(|device| &device.sums.late);
    let late: Vec<&LateSums> = late.collect();
    let idle = |sums: &LateSums, cause| gctrace_units::met(sums.idle_ns.get(&cause));
    let longer = |of: &dyn Fn(&LateSums) -> u64| {
        let total = |of_all: &[&LateSums]| signed(of_all.iter().map(|sums| of(sums)).sum());
        difference(total(&late), total(early))
    };
    let causes = late.iter().chain(early).flat_map(|sums| sums.idle_ns.keys());
    let causes: BTreeSet<IdleCause> = causes.copied().collect();
    let mut parts = vec![(longer(&|sums| sums.busy_ns), None)];
    for cause in causes {
        parts.push((longer(&|sums| idle(sums, cause)), Some(cause)));
    }
    let late_ns: i64 = parts.iter().map(|(by_ns, _)| by_ns).sum();
    let (by_ns, cause) =
        parts.into_iter().max_by_key(|(by_ns, cause)| (*by_ns, Reverse(*cause)))?;
    let place = cause.and_then(|cause| {
        let most = devices.iter().max_by_key(|device| idle(&device.sums.late, cause))?;
        most.late_places.get(&cause).cloned()
    });
    if late_ns > 0 && by_ns > 0 {
        Some(LateRank { cause, ratio: (by_ns as f64 / late_ns as f64).min(1.0), place })
    } else {
        None
    }
}
