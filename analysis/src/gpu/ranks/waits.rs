//! How long ranks waited for each other in collectives, and the last rank of each.

use super::{RankJob, shared_ops};
use crate::gpu::replay::{ReplayCollective, ReplayJob};
use crate::gpu::timeline::{Op, OpIndex, Timeline};
use crate::spans::index::Index;
use crate::time::intervals::Intervals;
use crate::time::{add_to, later, signed};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// One rank of a job: its clock, its pauses and its waits for other ranks.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankReport {
    /// Number of the rank in its job, from 0.
    pub rank: u32,
    /// Index of its trace in `traces`, from 0.
    pub trace: u64,
    /// Process id; 0 if the trace does not contain it.
    pub pid: u32,
    /// Clock offset in ns: added to its timestamps it gives the first rank's; 0 for that rank and for ranks of the
    /// same trace.
    pub clock_offset_ns: i64,
    /// Error of the offset, in ns: median distance of the ends of its collectives from the same ends of earlier
    /// ranks. `null` if the clock is the same.
    pub clock_error_ns: Option<u64>,
    /// Number of collectives that the offset was computed from.
    pub clock_collectives: u64,
    /// Whether other offsets fit about as well: all figures that compare this rank with others may
    /// then be wrong.
    pub clock_ambiguous: bool,
    /// Number of its pauses; if two traces were merged, of pauses within the profiler's time.
    pub pauses: u64,
    /// Time of its pauses, in ns.
    pub paused_ns: u64,
    /// Number of matched collectives, sends and receives that it took part in.
    pub collectives: u64,
    /// Time in these collectives before the last rank had started, in ns: waiting for other ranks.
    pub peer_wait_ns: u64,
    /// Time in these collectives after the last rank had started, in ns.
    pub transfer_ns: u64,
    /// Number of collectives that it was the last rank to start.
    pub last: u64,
    /// Number of these collectives with a pause of its own that ended since the previous collective.
    pub last_after_pause: u64,
    /// Busy time by device, with and without waiting for other ranks.
    pub devices: Vec<UsefulBusy>,
}

/// Busy time of one device, with and without waiting for other ranks.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsefulBusy {
    /// Index of the device in the process.
    pub device: u32,
    /// Time with any operation of the process running on it, in ns.
    pub busy_ns: u64,
    /// `busy_ns` without the time of collectives alone that waited for other ranks, in ns.
    pub useful_busy_ns: u64,
}

/// The waits of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobWaits {
    /// In the order of the members.
    pub(super) members: Vec<MemberWaits>,
    /// In the order of the job's collectives: what their members waited in each, added, in ns.
    pub(super) collectives_ns: Vec<u64>,
    /// Collectives with the last rank hidden by the error of the clocks.
    pub(super) undecided: u64,
}

/// The waits of one rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemberWaits {
    /// The sums; who it is, is not known here.
    pub(super) report: RankReport,
    /// End of the collective before, if any, on the rank's own clock.
    before_ns: Option<u64>,
    /// When each operation of a collective stopped waiting, on the rank's own clock.
    pub(super) waited_until_ns: WaitEnds,
}

/// When operations of a timeline stopped waiting, in ns on its own clock.
pub(crate) type WaitEnds = HashMap<OpIndex, u64>;

/// Per device the time with anything running, and with anything but waiting running, in ns.
pub(crate) type BusyTimes = BTreeMap<u32, (u64, u64)>;

/// One rank in one collective.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankArrival {
    /// Position among the members of the job.
    pub(crate) member: usize,
    op_index: OpIndex,
    /// The kernel of the collective.
    pub(crate) op: Op,
    /// On the common clock.
    pub(crate) start_ns: i64,
    /// Whether it waited for the last one: it had not ended before that started.
    waited: bool,
}

impl RankArrival {
    /// Time that it waited in the collective for the last rank; this rank arrived at the given time.
    pub(crate) fn wait_ns(&self, last_start_ns: i64) -> u64 {
        let until_last_ns = last_start_ns.abs_diff(self.start_ns);
        if self.waited { until_last_ns.min(self.op.duration_ns()) } else { 0 }
    }
}

/// Computes the waits of all ranks in the collectives of a job.
pub(super) fn waits(ranks: &RankJob, job: &ReplayJob<'_>) -> JobWaits {
    let mut waits = JobWaits {
        members: vec![MemberWaits::default(); job.timelines.len()],
        ..JobWaits::default()
    };
    for collective in &job.collectives {
        let arrivals = arrivals(collective, job);
        let mut waited_ns = 0;
        if let Some(last) = arrivals.last().copied() {
            waited_ns = waits.add(&arrivals, last.start_ns);
            let others = &arrivals[..arrivals.len() - 1];
            if others.iter().any(|other| other.waited) {
                if is_last(&arrivals, ranks) { waits.last(last, job) } else { waits.undecided += 1 }
            }
        }
        waits.collectives_ns.push(waited_ns);
        for arrival in arrivals {
            waits.members[arrival.member].before_ns = Some(arrival.op.end_ns);
        }
    }
    waits
}

/// The ranks of a collective by their start on the common clock.
pub(crate) fn arrivals(collective: &ReplayCollective, job: &ReplayJob<'_>) -> Vec<RankArrival> {
    let (_, waited) = collective.waits(job);
    let arrivals = collective.members.iter().zip(waited).map(|(member, waited)| {
        let at = member.timeline as usize;
        let op = job.timelines[at].ops[member.op];
        RankArrival {
            member: at,
            op_index: member.op,
            op,
            start_ns: later(signed(op.start_ns), job.offsets_ns[at]),
            waited,
        }
    });
    let mut arrivals: Vec<RankArrival> = arrivals.collect();
    arrivals.sort_by_key(|arrival| arrival.start_ns);
    arrivals
}

/// Whether the last of the ordered arrivals was last beyond the error of the clocks.
pub(crate) fn is_last(arrivals: &[RankArrival], ranks: &RankJob) -> bool {
    let error_ns = |arrival: &RankArrival| ranks.members[arrival.member].error_ns;
    match arrivals {
        [.., before, last] => {
            let doubt_ns = error_ns(before) + error_ns(last);
            last.start_ns.abs_diff(before.start_ns) > doubt_ns
        }
        _ => false,
    }
}

impl JobWaits {
    /// Returns the time that they waited, added.
    fn add(&mut self, arrivals: &[RankArrival], last_start_ns: i64) -> u64 {
        let mut waited_ns = 0;
        for arrival in arrivals {
            let member = &mut self.members[arrival.member];
            let length_ns = arrival.op.duration_ns();
            let wait_ns = arrival.wait_ns(last_start_ns);
            member.report.collectives += 1;
            add_to(&mut member.report.peer_wait_ns, wait_ns);
            add_to(&mut waited_ns, wait_ns);
            add_to(&mut member.report.transfer_ns, length_ns - wait_ns);
            let until_ns = arrival.op.start_ns + wait_ns;
            member.waited_until_ns.insert(arrival.op_index, until_ns);
        }
        waited_ns
    }

    fn last(&mut self, last: RankArrival, job: &ReplayJob<'_>) {
        let member = &mut self.members[last.member];
        member.report.last += 1;
        let pauses = &job.timelines[last.member].pauses;
        let before = pauses.partition_point(|pause| pause.start_ns < last.op.start_ns);
        let pause = pauses[..before].last();
        let since = matches!(pause, Some(pause) if Some(pause.end_ns) > member.before_ns);
        member.report.last_after_pause += u64::from(since);
    }
}

/// The busy times of a whole timeline. `waited_until_ns`: by place among [`shared_ops`].
pub(crate) fn busy(timeline: &Timeline, waited_until_ns: &WaitEnds) -> BusyTimes {
    let shared = shared_ops(timeline);
    let waited_until_ns: WaitEnds =
        waited_until_ns.iter().map(|(at, until_ns)| (shared[at.at()], *until_ns)).collect();
    let mut spans: BTreeMap<u32, [Vec<(u64, u64)>; 2]> = BTreeMap::new();
    for (at, op) in Index::enumerate(&timeline.ops) {
        let Some(device) = timeline.device(op) else {
            continue;
        };
        let [all, useful] = spans.entry(device).or_default();
        all.push(op.span());
        let useful_ns = waited_until_ns.get(&at).copied();
        useful.push((useful_ns.unwrap_or(op.start_ns), op.end_ns));
    }
    let devices = spans.into_iter().map(|(device, [all, useful])| {
        let busy_ns = |spans| Intervals::from_iter(spans).length_ns();
        (device, (busy_ns(all), busy_ns(useful)))
    });
    devices.collect()
}
