//! The idle ledger of a device: every idle nanosecond has a cause.
//!
//! Overlap is not cause: a program that waits for the GPU in each step and then needs a while to launch again looks
//! like a program with a slow host. So the ledger is made of replays of the run without causes. A gap is first walked
//! from back to front along what decided the start of the operation that ends it (`walk.rs`). Its part on the GPU's
//! side is final. The rest is given to the causes in the order of [`IdleCause`]: each gets the idle time that goes
//! when it is removed after the causes before it, gap by gap, but no more than all gaps together lose, as idle time
//! moves to other gaps. The remaining time is launch latency and the host's, by the walk. So no row is negative, and
//! the rows sum to the idle time.
//!
//! The order matters where two causes hide each other; each row states how much ([`IdleRow::alone_ns`],
//! [`IdleRow::last_ns`]). Idle time may grow without a cause, where streams overlap more, but the run does not get
//! longer: the saving is the replayed time.

mod activity;
mod among;
mod delays;
mod device;
mod places;
mod removals;
mod stepwise;
mod sums;
#[cfg(test)]
mod tests;
mod walk;

use super::attribute::split;
use super::network::NetworkRun;
use super::{ReplayChange, ReplayJob, ReplayModel, pauses};
use crate::figure::Basis;
use crate::gpu::calls::CallEffect;
use crate::gpu::device::DeviceTimeline;
use crate::gpu::idle::{self, IdleCause, IdleGap, IdleLedger, IdlePart, IdlePlace, IdleRow};
use crate::gpu::timeline::{NameIndex, Op, OpIndex, Timeline};
use crate::time::{beyond, difference, signed};
use activity::HostActivity;
use among::GapsAmong;
pub(crate) use among::{DeviceRankTimes, LateSums, RankLedger, RankTimes};
use delays::DelayCauses;
use device::DeviceGaps;
use places::{CallPlaces, code_place, copied, sampled, unseen_functions};
use removals::Removals;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use stepwise::GapsInSteps;
pub(crate) use stepwise::StepIdle;
use sums::{CauseSums, PlaceSum};
use walk::{MetBefore, WalkedGaps};

/// Places of a row, and places replayed alone.
const PLACES: usize = 5;
/// A row of less than this part of the idle time has no places.
const WORTH_PLACING: u64 = 100;
/// A saving below this part of the device's time is not worth a change.
const WORTH_A_CHANGE: u64 = 50;
/// Nor is a change for less than this part of the idle time: it gains from other causes' time.
const WORTH_A_REMEDY: u64 = 20;
/// The host's time for one gap, if it is more than launches: 1 ms, some 200 of PyTorch's of 5 us.
const LONG_NS: u64 = 1_000_000;
/// Characters of a name in the report: names of kernels from C++ templates have several thousand.
const NAME_CHARS: usize = 160;

/// Where a delay is in the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct IdleLabel {
    /// The CUDA function that was called, or the copy that it started.
    function: Option<NameIndex>,
    /// The outermost operator; between calls only where nothing else is known.
    operator: Option<NameIndex>,
    /// The innermost Python function of the program.
    python: Option<NameIndex>,
    /// The innermost annotation.
    annotation: Option<NameIndex>,
}

impl ReplayModel<'_> {
    /// The idle ledger of each device of a timeline that this model was learned of alone.
    pub fn idle_ledgers(&self, timeline: &Timeline) -> Vec<IdleLedger> {
        let ledgers = self.rank_ledgers(timeline, &DeviceRankTimes::new()).into_iter();
        ledgers.map(|ledger| ledger.ledger).collect()
    }

    /// The same of a rank among others.
    pub(crate) fn rank_ledgers(
        &self,
        timeline: &Timeline,
        times: &DeviceRankTimes,
    ) -> Vec<RankLedger> {
        let works = DeviceTimeline::of(timeline);
        let alone = RankTimes::default();
        let ledgers = self.with_causes(timeline, |causes, removals| {
            let ledgers = works.iter().map(|work| {
                let gaps = DeviceGaps::of(work, causes.layout, timeline);
                let book = LedgerBook { causes, removals, gaps: &gaps };
                book.ledger(self.run(), work, times.get(&Some(work.device)).unwrap_or(&alone))
            });
            ledgers.collect()
        });
        ledgers.unwrap_or_default()
    }

    /// Calls `then` with the known causes of delays of the timeline; `None` for a model of several.
    fn with_causes<R>(
        &self,
        timeline: &Timeline,
        then: impl FnOnce(&DelayCauses<'_>, &Removals) -> R,
    ) -> Option<R> {
        let [layout] = self.inner.layouts.as_slice() else {
            return None;
        };
        let network = &self.inner.network;
        let without_pauses = ReplayChange::without_all(&ReplayJob::single(timeline));
        let causes = DelayCauses {
            timeline,
            layout,
            network,
            nodes: network.in_order(),
            activity: &HostActivity::of(timeline),
            pauses: &pauses::apply(&self.inner.layouts, &self.inner.effects, &without_pauses),
            lines: CallPlaces::of(timeline),
            copied: copied(timeline),
            unseen: unseen_functions(timeline),
        };
        Some(then(&causes, &causes.removals()))
    }
}

/// One device's ledger in the making.
struct LedgerBook<'a> {
    causes: &'a DelayCauses<'a>,
    removals: &'a Removals,
    gaps: &'a DeviceGaps,
}

/// Remaining times of one run without something.
struct RunLeft {
    span_ns: i64,
    idle_ns: i64,
}

impl LedgerBook<'_> {
    fn ledger(
        &self,
        mut run: NetworkRun<'_>,
        work: &DeviceTimeline<'_>,
        times: &RankTimes,
    ) -> RankLedger {
        let timeline = self.causes.timeline;
        let (device, computing) = device::times(work);
        let spans = self.gaps.spans(timeline);
        let among = GapsAmong::of(times, &spans, &computing);
        drop(computing);
        let steps = GapsInSteps::of(timeline, spans);
        let mut sums = CauseSums::of(&self.gaps.gaps, among, steps);
        let mut walked = WalkedGaps::new(self.gaps.gaps.len());
        let mut rest = Vec::with_capacity(self.gaps.gaps.len());
        for (at, (place, length_ns)) in self.gaps.gaps.iter().enumerate() {
            let mut rest_ns = *length_ns;
            let before = self.causes.walk(self.gaps.ops[*place], *length_ns, |part| {
                if is_final(part.cause) {
                    sums.add(at, part.cause, part.label, part.length_ns);
                    rest_ns = beyond(rest_ns, part.length_ns);
                } else {
                    walked.parts.push(part);
                }
            });
            walked.end_gap(before);
            rest.push(signed(rest_ns));
        }
        let left = self.left(&run);
        let removed = self.remove_in_order(&mut run, &walked, &mut rest, &mut sums);
        for (at, rest_ns) in rest.into_iter().enumerate() {
            let rest_ns = rest_ns.unsigned_abs();
            let latency = walked.parts_of(at, IdleCause::LaunchLatency);
            let latency_ns = rest_ns.min(latency.map(|part| part.length_ns).sum());
            // These are not looked for before a gap.
            let mut met = MetBefore::new();
            let latency = (IdleCause::LaunchLatency, &mut met);
            self.book(&mut sums, latency, (at, &walked), latency_ns);
            let host = (IdleCause::Host, &mut met);
            self.book(&mut sums, host, (at, &walked), rest_ns - latency_ns);
        }
        drop(walked);
        let longest = self.longest(work, &sums);
        let long = sums.host_ns.iter().filter(|host_ns| **host_ns >= LONG_NS);
        let long_ns: u64 = long.sum();
        let among = std::mem::take(&mut sums.among).finish();
        let steps = std::mem::take(&mut sums.steps).finish();
        let mut rows = self.rows(sums, &left, run, removed);
        let blocked = rows.iter().filter(|row| row.cause == IdleCause::Blocked);
        let blocked_ns: u64 = blocked.map(|row| row.time_ns).sum();
        let sample = is_sample(timeline) && blocked_ns > device.idle_ns / 10;
        // If the trace is only a sample, the deciding cause is unknown.
        for row in &mut rows {
            let worth_ns = device.span_ns / WORTH_A_CHANGE;
            let is_cause = !sample && row.time_ns >= device.idle_ns / WORTH_A_REMEDY;
            if is_cause && row.saves_ns >= Some(worth_ns) {
                row.remedy = idle::remedy(row, long_ns > row.time_ns / 2);
            }
        }
        let ops = &self.gaps.ops;
        let stream = |op: OpIndex| timeline.ops[op].stream;
        let several = ops.iter().any(|op| stream(*op) != stream(ops[0]));
        let ledger = IdleLedger {
            basis: Basis::Inferred,
            rows,
            gaps: self.gaps.gaps.len() as u64,
            longest,
            sample,
            at_most: timeline.waits.is_empty() && several,
            ..device
        };
        let late_places = among.late.idle_ns.keys().filter_map(|cause| {
            Some((*cause, code_place(&timeline.names, among.late.place(*cause)?)))
        });
        RankLedger { ledger, late_places: late_places.collect(), sums: among, steps }
    }

    fn left(&self, run: &NetworkRun<'_>) -> RunLeft {
        let (idle_ns, _) = self.gaps.replayed(self.causes.layout, run);
        RunLeft { span_ns: self.span_ns(run), idle_ns }
    }

    /// From the first start to the last end of the device's operations.
    fn span_ns(&self, run: &NetworkRun<'_>) -> i64 {
        self.gaps.span_ns(self.causes.layout, run)
    }

    /// Removes one cause after the other; what goes of each gap is booked. The run is without all
    /// of them afterwards; returns its idle time.
    fn remove_in_order(
        &self,
        run: &mut NetworkRun<'_>,
        walked: &WalkedGaps,
        rest: &mut [i64],
        sums: &mut CauseSums,
    ) -> i64 {
        let layout = self.causes.layout;
        let (mut idle_ns, measured) = self.gaps.replayed(layout, run);
        // A run may idle longer without a cause: what the next one then gains is not gone.
        let mut least_ns = idle_ns;
        let mut given = vec![0i64; measured.len()];
        for cause in IdleCause::REMOVABLE {
            let Some(delays) = self.removals.cause(cause) else {
                continue;
            };
            run.change_at(delays);
            let (without_ns, left) = self.gaps.replayed(layout, run);
            let gaps = measured.iter().zip(&left).zip(&given).zip(rest.iter());
            let wants = gaps.map(|(((measured, left), given), rest)| {
                (measured - left - given).clamp(0, *rest).unsigned_abs()
            });
            let wants: Vec<u64> = wants.collect();
            let wanted: u64 = wants.iter().sum();
            let gained = difference(least_ns, without_ns).max(0).unsigned_abs().min(wanted);
            least_ns = least_ns.min(without_ns);
            idle_ns = without_ns;
            let mut met = MetBefore::new();
            for (at, part_ns) in split(gained, &wants).into_iter().enumerate() {
                given[at] += signed(part_ns);
                rest[at] -= signed(part_ns);
                self.book(sums, (cause, &mut met), (at, walked), part_ns);
            }
        }
        idle_ns
    }

    /// Books time of a gap with this cause: to the places where the walk met it, else to the last one
    /// before the gap. `before`: of the cause.
    fn book(
        &self,
        sums: &mut CauseSums,
        (cause, before): (IdleCause, &mut MetBefore),
        (at, walked): (usize, &WalkedGaps),
        time_ns: u64,
    ) {
        if time_ns == 0 {
            return;
        }
        let met = || walked.parts_of(at, cause);
        let weights: Vec<u64> = met().map(|part| part.length_ns).collect();
        if weights.is_empty() {
            let label = self.causes.before(walked.before(at), cause, before).unwrap_or_default();
            sums.add(at, cause, label, time_ns);
        }
        for (part, part_ns) in met().zip(split(time_ns, &weights)) {
            sums.add(at, cause, part.label, part_ns);
        }
    }

    fn longest(&self, work: &DeviceTimeline<'_>, sums: &CauseSums) -> Vec<IdleGap> {
        let timeline = self.causes.timeline;
        let (first_ns, _) = work.span();
        let gaps = sums.longest.iter().map(|(at, parts)| {
            let (place, duration_ns) = self.gaps.gaps[*at];
            let ops = self.gaps.ops[..place].iter();
            let before = ops.max_by_key(|op| timeline.ops[**op].end_ns);
            let after = &timeline.ops[self.gaps.ops[place]];
            let call = timeline.call(after);
            let thread = call.map(|call| &timeline.threads[call.thread]);
            let start_ns = after.start_ns - duration_ns;
            IdleGap {
                start_ns,
                after_first_ns: start_ns - first_ns,
                duration_ns,
                before: before.map_or_else(String::new, |op| name(timeline, &timeline.ops[*op])),
                after: name(timeline, after),
                call: call.map(|call| timeline.names.text(call.function).to_owned()),
                tid: thread.map(|thread| thread.tid),
                thread: thread.and_then(|thread| thread.name.clone()),
                causes: IdlePart::sorted(parts.iter().map(|(cause, time_ns)| (*cause, *time_ns))),
            }
        });
        let mut gaps: Vec<IdleGap> = gaps.collect();
        gaps.sort_by_key(|gap| (Reverse(gap.duration_ns), gap.start_ns));
        gaps
    }

    /// `run`: without all causes; `removed_ns`: its idle time.
    fn rows(
        &self,
        sums: CauseSums,
        measured: &RunLeft,
        mut run: NetworkRun<'_>,
        removed_ns: i64,
    ) -> Vec<IdleRow> {
        let last_ns = self.last_ns(&sums, &mut run, removed_ns);
        run.restart();
        let mut rows: Vec<IdleRow> = Vec::new();
        for (cause, (time_ns, places)) in sums.by_cause {
            let mut row = IdleRow {
                cause,
                time_ns,
                saves_ns: None,
                alone_ns: None,
                last_ns: last_ns.get(&cause).copied(),
                places: Vec::new(),
                remedy: None,
            };
            if time_ns > 0
                && let Some(delays) = self.removals.cause(cause)
            {
                run.change_at(delays);
                let alone = self.left(&run);
                run.restart();
                row.saves_ns = Some(gained(measured.span_ns, alone.span_ns));
                row.alone_ns = Some(difference(measured.idle_ns, alone.idle_ns));
            }
            if time_ns >= measured.idle_ns.unsigned_abs() / WORTH_PLACING {
                let unnamed_ns = places.get(&IdleLabel::default()).map(|place| place.time_ns);
                row.places = self.places(cause, places, &mut run, measured);
                if let (Some(unnamed_ns), IdleCause::Host) = (unnamed_ns, cause)
                    && !self.causes.timeline.samples.is_empty()
                {
                    let timeline = self.causes.timeline;
                    row.places.extend(sampled(timeline, &self.gaps.spans(timeline), unnamed_ns));
                    row.places.sort_by_key(|place| Reverse(place.time_ns));
                    row.places.truncate(PLACES);
                }
            }
            rows.push(row);
        }
        rows.retain(|row| row.time_ns > 0);
        rows.sort_by_key(|row| (Reverse(row.time_ns), row.cause));
        rows
    }

    /// The idle time that goes with each cause as the last one. `run`: without all causes, now and
    /// afterwards; `removed_ns`: its idle time.
    fn last_ns(
        &self,
        sums: &CauseSums,
        run: &mut NetworkRun<'_>,
        removed_ns: i64,
    ) -> BTreeMap<IdleCause, i64> {
        let causes = sums.by_cause.iter().filter(|(_, (time_ns, _))| *time_ns > 0);
        let last_ns = causes.filter_map(|(cause, _)| {
            let back = self.removals.cause(*cause)?.map(|(edge, by_ns)| (edge, -by_ns));
            run.change_at(back);
            let (idle_ns, _) = self.gaps.replayed(self.causes.layout, run);
            run.change_at(self.removals.cause(*cause)?);
            Some((*cause, difference(idle_ns, removed_ns)))
        });
        last_ns.collect()
    }

    /// The places with the most idle time, by the saving of removing each alone.
    fn places(
        &self,
        cause: IdleCause,
        places: HashMap<IdleLabel, PlaceSum>,
        run: &mut NetworkRun<'_>,
        measured: &RunLeft,
    ) -> Vec<IdlePlace> {
        let mut named: Vec<(IdleLabel, PlaceSum)> = places.into_iter().collect();
        named.retain(|(label, _)| *label != IdleLabel::default());
        named.sort_by_key(|(label, place)| (Reverse(place.time_ns), *label));
        named.truncate(PLACES);
        let names = &self.causes.timeline.names;
        let places = named.into_iter().filter_map(|(label, place)| {
            let delays = self.removals.place(cause, label);
            let saves_ns = delays.map(|delays| {
                run.change_at(delays);
                let saves_ns = gained(measured.span_ns, self.span_ns(run));
                run.restart();
                saves_ns
            });
            let is_known = saves_ns.is_some() || is_final(cause);
            let PlaceSum { time_ns, gaps, .. } = place;
            let code = code_place(names, label);
            let place = IdlePlace { code, gaps: Some(gaps), time_ns, saves_ns };
            if is_known { Some(place) } else { None }
        });
        let mut places: Vec<IdlePlace> = places.collect();
        places.sort_by_key(|place| Reverse((place.saves_ns, place.time_ns)));
        places
    }
}

/// The name of an operation, cut.
fn name(timeline: &Timeline, op: &Op) -> String {
    let name = timeline.op_name(op);
    match name.char_indices().nth(NAME_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// How much shorter a time is.
fn gained(longer_ns: i64, shorter_ns: i64) -> u64 {
    difference(longer_ns, shorter_ns).max(0).unsigned_abs()
}

/// Whether no removal of a host's cause changes it.
fn is_final(cause: IdleCause) -> bool {
    matches!(
        cause,
        IdleCause::BackToBack | IdleCause::OtherStream | IdleCause::Blocked | IdleCause::Unknown
    )
}

/// Whether the trace is only a sample of the program: it launches, and never waits.
fn is_sample(timeline: &Timeline) -> bool {
    let only = |kind: CallEffect| kind.launches() || kind == CallEffect::Copy;
    !timeline.calls.is_empty() && timeline.calls.iter().all(|call| only(call.kind))
}
