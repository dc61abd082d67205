//! What ranks waited for each other in collectives, and which of them was last.

use super::RankJob;
use crate::gpu::replay::ReplayCollective;
use crate::gpu::replay::ReplayJob;
use crate::gpu::timeline::Op;
use crate::gpu::timeline::Timeline;
use crate::time::intervals::Intervals;
use std::collections::BTreeMap;
use std::collections::HashMap;

/// The waits of a job.
#[derive(Clone, Debug, Default)]
pub(super) struct JobWaits {
    /// In the order of the members.
    pub(super) members: Vec<MemberWaits>,
    /// Collectives in which the error of the clocks hides which rank was last.
    pub(super) undecided: u64,
}

/// The waits of one rank.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberWaits {
    pub(super) collectives: u64,
    /// Time in collectives before the last rank had started, in ns.
    pub(super) wait_ns: u64,
    /// In collectives, from then on.
    pub(super) transfer_ns: u64,
    pub(super) last: u64,
    /// Of `last`, with a pause since the collective before.
    pub(super) last_after_pause: u64,
    /// Per device: busy and useful busy time.
    pub(super) devices: BTreeMap<u32, (u64, u64)>,
    /// End of the collective before, on the rank's own clock.
    before_ns: u64,
    /// Wait of each operation, in ns.
    waits: HashMap<u32, u64>,
}

/// One rank in one collective.
#[derive(Clone, Copy, Debug)]
struct RankArrival {
    member: usize,
    op_index: u32,
    op: Op,
    /// On the common clock.
    start_ns: i64,
}

/// Computes the waits of all ranks in the collectives of a job.
pub(super) fn waits(ranks: &RankJob, job: &ReplayJob<'_>) -> JobWaits {
    let mut waits = JobWaits {
        members: vec![MemberWaits::default(); job.timelines.len()],
        undecided: 0,
    };
    for collective in &job.collectives {
        let mut arrivals = arrivals(collective, job);
        arrivals.sort_by_key(|arrival| arrival.start_ns);
        if let Some(last) = arrivals.last().copied() {
            waits.add(&arrivals, last.start_ns);
            match is_last(&arrivals, ranks) {
                true => waits.last(last, job),
                false => waits.undecided += 1,
            }
        }
        for arrival in arrivals {
            if let Some(member) = waits.members.get_mut(arrival.member) {
                member.before_ns = arrival.op.end_ns;
            }
        }
    }
    for (member, timeline) in waits.members.iter_mut().zip(&job.timelines) {
        member.devices = busy(timeline, &member.waits);
    }
    waits
}

fn arrivals(collective: &ReplayCollective, job: &ReplayJob<'_>) -> Vec<RankArrival> {
    let arrivals = collective.members.iter().filter_map(|member| {
        let at = member.timeline as usize;
        let op = job.timelines.get(at)?.ops.get(member.op as usize)?;
        let offset_ns = job.offsets_ns.get(at)?;
        Some(RankArrival {
            member: at,
            op_index: member.op,
            op: *op,
            start_ns: op.start_ns.cast_signed().saturating_add(*offset_ns),
        })
    });
    arrivals.collect()
}

/// Whether the last of the ordered arrivals was last beyond the error of the clocks.
fn is_last(arrivals: &[RankArrival], ranks: &RankJob) -> bool {
    let error_ns = |arrival: &RankArrival| {
        let member = ranks.members.get(arrival.member);
        member.map_or(0, |member| member.error_ns)
    };
    match arrivals {
        [.., before, last] => {
            let doubt_ns = error_ns(before).saturating_add(error_ns(last));
            last.start_ns.abs_diff(before.start_ns) > doubt_ns
        }
        _ => false,
    }
}

impl JobWaits {
    fn add(&mut self, arrivals: &[RankArrival], last_start_ns: i64) {
        for arrival in arrivals {
            let Some(member) = self.members.get_mut(arrival.member) else {
                continue;
            };
            let length_ns = arrival.op.duration_ns();
            let wait_ns = last_start_ns.abs_diff(arrival.start_ns).min(length_ns);
            member.collectives += 1;
            member.wait_ns = member.wait_ns.saturating_add(wait_ns);
            let transfer_ns = length_ns.saturating_sub(wait_ns);
            member.transfer_ns = member.transfer_ns.saturating_add(transfer_ns);
            member.waits.insert(arrival.op_index, wait_ns);
        }
    }

    fn last(&mut self, last: RankArrival, job: &ReplayJob<'_>) {
        let Some(member) = self.members.get_mut(last.member) else {
            return;
        };
        member.last += 1;
        let pauses = job.timelines.get(last.member);
        let pauses = pauses.map_or(&[][..], |timeline| &timeline.pauses);
        let before = pauses.partition_point(|pause| pause.start_ns < last.op.start_ns);
        let pause = before.checked_sub(1).and_then(|at| pauses.get(at));
        let since = pause.is_some_and(|pause| pause.end_ns > member.before_ns);
        member.last_after_pause += u64::from(since);
    }
}

/// For each device the time in which anything ran, and in which anything but waiting ran.
fn busy(timeline: &Timeline, waits: &HashMap<u32, u64>) -> BTreeMap<u32, (u64, u64)> {
    let mut spans: BTreeMap<u32, [Vec<(u64, u64)>; 2]> = BTreeMap::new();
    for (at, op) in (0..).zip(&timeline.ops) {
        let Some(device) = timeline.device(op) else {
            continue;
        };
        let [all, useful] = spans.entry(device).or_default();
        all.push(op.span());
        let wait_ns = waits.get(&at).copied().unwrap_or(0);
        useful.push((op.start_ns.saturating_add(wait_ns), op.end_ns));
    }
    let devices = spans.into_iter().map(|(device, [all, useful])| {
        let busy_ns = |spans| Intervals::from_iter(spans).length_ns();
        (device, (busy_ns(all), busy_ns(useful)))
    });
    devices.collect()
}
