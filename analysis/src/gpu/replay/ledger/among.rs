//! A rank's ledger among other ranks' ledgers: how long it waited for each of them, and what it did before it was
//! late.

use super::IdleLabel;
use super::stepwise::StepIdle;
use crate::gpu::idle::{CodePlace, IdleCause, IdleLedger};
use crate::time::intervals::Intervals;
use crate::time::{add_to, duration_ns};
use std::collections::{BTreeMap, HashMap};

/// Intervals of one device that other ranks give a meaning. All are on its timeline's clock, in ns.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankTimes {
    /// Time that a collective waited for a rank, with that rank.
    pub(crate) waits: Vec<((u64, u64), u32)>,
    /// From the end of a collective to the next one, if the rank was the last in the next.
    pub(crate) late: Vec<(u64, u64)>,
    /// The same if it was the first in the next, by the timeline of the last.
    pub(crate) early: Vec<(usize, (u64, u64))>,
}

/// The same of each device of one timeline; of one without a number as well.
pub(crate) type DeviceRankTimes = HashMap<Option<u32>, RankTimes>;

/// What the device of a timeline did in the intervals that it, or another rank, was late.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankSums {
    /// The device's waits for ranks, in ns.
    pub(crate) waits_ns: BTreeMap<u32, u64>,
    /// In [`RankTimes::late`].
    pub(crate) late: LateSums,
    /// In [`RankTimes::early`], by timeline.
    pub(crate) early: BTreeMap<usize, LateSums>,
}

/// The ledger of a device of a rank, and the explanation of its lateness.
#[derive(Clone, Debug)]
pub(crate) struct RankLedger {
    pub(crate) ledger: IdleLedger,
    pub(crate) sums: RankSums,
    /// The place with most of the idle time of each cause before it was late.
    pub(crate) late_places: BTreeMap<IdleCause, CodePlace>,
    pub(crate) steps: StepIdle,
}

/// Time of devices by activity.
#[derive(Clone, Debug, Default)]
pub(crate) struct LateSums {
    pub(crate) busy_ns: u64,
    /// Idle time by cause.
    pub(crate) idle_ns: BTreeMap<IdleCause, u64>,
    /// The same by place, in the timeline's own names.
    pub(super) places: HashMap<(IdleCause, IdleLabel), u64>,
}

impl LateSums {
    fn add(&mut self, cause: IdleCause, label: IdleLabel, time_ns: u64) {
        add_to(self.idle_ns.entry(cause).or_default(), time_ns);
        add_to(self.places.entry((cause, label)).or_default(), time_ns);
    }

    /// The place with the most idle time of a cause.
    pub(super) fn place(&self, cause: IdleCause) -> Option<IdleLabel> {
        let places = self.places.iter().filter(|((of, _), _)| *of == cause);
        let most = places.max_by_key(|((_, label), time_ns)| (**time_ns, *label));
        let label = most.map(|((_, label), _)| *label)?;
        if label != IdleLabel::default() { Some(label) } else { None }
    }
}

/// Gives the parts of gaps to the intervals that they are in.
#[derive(Debug, Default)]
pub(super) struct GapsAmong {
    /// By gap.
    gaps: HashMap<usize, GapAmong>,
    sums: RankSums,
}

/// A gap in such intervals.
#[derive(Debug, Default)]
struct GapAmong {
    length_ns: u64,
    /// Its time in late intervals.
    late_ns: u64,
    /// Its time in early ones, by the timeline of the last rank.
    early_ns: Vec<(usize, u64)>,
}

impl GapsAmong {
    /// `gaps`: start and end of each. `computing`: when the device computes.
    pub(super) fn of(times: &RankTimes, gaps: &[(u64, u64)], computing: &Intervals) -> Self {
        let mut among = Self::default();
        let mut waits = times.waits.clone();
        waits.sort_unstable();
        let mut counted_ns = 0;
        for ((start_ns, end_ns), rank) in waits {
            // In two communicators at once it waits for one of both.
            let start_ns = counted_ns.max(start_ns);
            if start_ns < end_ns {
                let waits_ns = end_ns - start_ns - computing.length_within(start_ns, end_ns);
                add_to(among.sums.waits_ns.entry(rank).or_default(), waits_ns);
                counted_ns = end_ns;
            }
        }
        for span in &times.late {
            let idle_ns = among.within(gaps, *span, |gap, by_ns| add_to(&mut gap.late_ns, by_ns));
            add_to(&mut among.sums.late.busy_ns, span.1 - span.0 - idle_ns);
        }
        for (of, span) in &times.early {
            let idle_ns = among.within(gaps, *span, |gap, by_ns| gap.early_ns.push((*of, by_ns)));
            let sums = among.sums.early.entry(*of).or_default();
            add_to(&mut sums.busy_ns, span.1 - span.0 - idle_ns);
        }
        among
    }

    /// Calls `each` with the gaps in an interval and their length in it; returns the length of all.
    fn within(
        &mut self,
        gaps: &[(u64, u64)],
        (from, to): (u64, u64),
        each: impl Fn(&mut GapAmong, u64),
    ) -> u64 {
        let mut idle_ns = 0;
        let first = gaps.partition_point(|(_, end)| *end <= from);
        let inside = (first..gaps.len()).zip(&gaps[first..]);
        for (at, (start, end)) in inside.take_while(|(_, (start, _))| *start < to) {
            let by_ns = duration_ns((*start).max(from), (*end).min(to));
            add_to(&mut idle_ns, by_ns);
            let gap = self
                .gaps
                .entry(at)
                .or_insert_with(|| GapAmong { length_ns: end - start, ..GapAmong::default() });
            each(gap, by_ns);
        }
        idle_ns
    }

    /// A part of a gap has a cause.
    pub(super) fn add(&mut self, gap: usize, cause: IdleCause, label: IdleLabel, time_ns: u64) {
        let Some(GapAmong { length_ns, late_ns, early_ns }) = self.gaps.get(&gap) else {
            return;
        };
        // Where in the gap it is, is unknown.
        let part = |of_ns: u64| part(time_ns, of_ns, *length_ns);
        if *late_ns > 0 {
            self.sums.late.add(cause, label, part(*late_ns));
        }
        for (of, early_ns) in early_ns {
            self.sums.early.entry(*of).or_default().add(cause, label, part(*early_ns));
        }
    }

    pub(super) fn finish(self) -> RankSums {
        self.sums
    }
}

fn part(time_ns: u64, of_ns: u64, length_ns: u64) -> u64 {
    let part = u128::from(time_ns) * u128::from(of_ns) / u128::from(length_ns.max(1));
    gctrace_units::u64_or_most(part)
}
