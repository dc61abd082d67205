//! The delays between calls that contain a pause, and how they change with it.
//!
//! A pause is part of the time between two calls of the collecting thread. That thread holds the
//! GIL: other threads that run Python are blocked too, except those that made a call during the
//! pause (C++ threads, for example autograd's, continue). A thread is assumed to run Python if it
//! is the process's first, or collected or stepped itself. Any other thread is assumed to have been
//! blocked by a pause if it was quiet throughout the pause, and otherwise only for as long as usual
//! or as the pause: it was running a hook in Python, for example. A thread that took no longer than
//! usual was not blocked: it waited for something else, for example data.

use super::InsertedPause;
use super::ReplayChange;
use super::layout::CallChain;
use super::layout::ReplayLayout;
use super::network::DelayChange;
use super::network::NONE;
use super::network::NetworkBuilder;
use super::typical_gap::TypicalGap;
use crate::gpu::pause_span::PauseSpan;
use crate::gpu::timeline::Timeline;
use crate::time::intervals::SummedIntervals;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashMap;

/// The times that the pauses of a timeline are part of.
#[derive(Debug, Default)]
pub(super) struct PauseEffects {
    pauses: Vec<PauseEffect>,
    handed: HashMap<u32, Vec<HandOver>>,
    floors: HashMap<u32, i64>,
}

/// The delays of one pause.
#[derive(Debug, Default)]
struct PauseEffect {
    start_ns: u64,
    end_ns: u64,
    parts: Vec<PausedDelay>,
}

/// The part of a delay that is a pause.
#[derive(Debug, Clone, Copy)]
struct PausedDelay {
    edge: u32,
    length_ns: i64,
}

/// Delays that a change changes.
#[derive(Debug, Default, Clone)]
pub(super) struct AppliedChange {
    /// By edge, then in order of time.
    pub(super) parts: BTreeMap<u32, Vec<AppliedDelay>>,
}

/// The effect of a change within one delay.
#[derive(Debug, Clone, Copy)]
pub(super) struct AppliedDelay {
    /// Where in the measured run, on the clock of the timeline.
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) by_ns: i64,
}

impl AppliedChange {
    pub(super) fn deltas(&self) -> Vec<DelayChange> {
        let sum = |parts: &[AppliedDelay]| {
            parts
                .iter()
                .fold(0i64, |sum, part| sum.saturating_add(part.by_ns))
        };
        let deltas = self.parts.iter().map(|(edge, parts)| DelayChange {
            edge: *edge,
            by_ns: sum(parts),
        });
        deltas.collect()
    }

    fn add(&mut self, edge: u32, part: AppliedDelay) {
        if edge != NONE && part.by_ns != 0 {
            self.parts.entry(edge).or_default().push(part);
        }
    }
}

impl PauseEffects {
    /// Finds the delays that contain each pause.
    pub(super) fn learn(
        timeline: &Timeline,
        layout: &ReplayLayout,
        builder: &mut NetworkBuilder,
    ) -> Self {
        let mut taken = ClaimedTime::default();
        let handed = handed_over(layout);
        let covered: SummedIntervals = timeline.pauses.iter().map(PauseSpan::span).collect();
        let chains = layout.chains.iter();
        let usual: Vec<TypicalGap> = chains
            .map(|chain| TypicalGap::learn(timeline, chain, layout, &covered))
            .collect();
        let pauses = timeline.pauses.iter().map(|pause| {
            let mut effect = PauseEffect {
                start_ns: pause.start_ns,
                end_ns: pause.end_ns.max(pause.start_ns),
                parts: Vec::new(),
            };
            for ((thread, chain), usual) in (0u32..).zip(&layout.chains).zip(&usual) {
                if thread == pause.thread {
                    own(pause, chain, layout, &mut taken, &mut effect);
                } else if !chain.polls {
                    let quiet_ns = layout.quiet_ns.get(thread as usize).copied();
                    let other = WaitingThread {
                        chain,
                        quiet_ns: quiet_ns.unwrap_or(0),
                        usual_ns: &|place| usual.before(timeline, chain, place),
                    };
                    other.add_blocked(&covered, layout, &mut taken, &mut effect);
                }
            }
            asked_later(pause, &handed, layout, &mut taken, &mut effect);
            effect
        });
        let pauses: Vec<PauseEffect> = pauses.collect();
        let floors = floors(timeline, layout);
        for (edge, floor_ns) in &floors {
            builder.lengthen(*edge, *floor_ns);
        }
        Self {
            pauses,
            handed,
            floors,
        }
    }
}

/// A thread that waited for another one continues no earlier than its own pauses allow: for each
/// edge from its previous call, the time from that call to the end of a pause that started before
/// the other thread handed over.
fn floors(timeline: &Timeline, layout: &ReplayLayout) -> HashMap<u32, i64> {
    let mut floors: HashMap<u32, i64> = HashMap::new();
    for pause in &timeline.pauses {
        let Some(chain) = layout.chains.get(pause.thread as usize) else {
            continue;
        };
        let place = first_from(chain, pause.start_ns, layout);
        if let Some((edge, from)) = waiting(chain, place, pause.start_ns, layout)
            && let Some((_, to)) = gap(chain, place, layout)
        {
            let floor = pause.end_ns.min(to).saturating_sub(from);
            let floor = i64::try_from(floor).unwrap_or(i64::MAX);
            let slot = floors.entry(edge).or_default();
            *slot = floor.max(*slot);
        }
    }
    floors
}

/// If a thread waits for another one at a time before the call at a place: the edge from its call
/// before, and that call's end.
fn waiting(
    chain: &CallChain,
    place: usize,
    at_ns: u64,
    layout: &ReplayLayout,
) -> Option<(u32, u64)> {
    let (_, handed_over) = layout.call_span(*chain.source.get(place)?)?;
    let (from, _) = gap(chain, place, layout)?;
    let edge = chain.own.get(place)?;
    (place > 0 && from <= at_ns && at_ns < handed_over).then_some((*edge, from))
}

/// For each delay, the time up to which it is assigned to pauses, so that no time is assigned
/// twice, the assigned amount and its limit.
#[derive(Debug, Default)]
struct ClaimedTime {
    until_ns: HashMap<u32, u64>,
    sum_ns: HashMap<u32, u64>,
    max_ns: HashMap<u32, u64>,
}

impl ClaimedTime {
    /// Limits what all pauses together are assigned of the delay of an edge from now on.
    fn limit(&mut self, edge: u32, max_ns: u64) {
        self.max_ns.insert(edge, max_ns);
    }

    /// The part of a pause within the time of an edge.
    fn take(&mut self, edge: u32, from_ns: u64, to_ns: u64, effect: &mut PauseEffect) {
        if edge == NONE {
            return;
        }
        let until = self.until_ns.entry(edge).or_insert(from_ns);
        let start = effect.start_ns.max(*until).max(from_ns);
        let end = effect.end_ns.min(to_ns);
        let sum = self.sum_ns.entry(edge).or_default();
        let most = self.max_ns.get(&edge).copied().unwrap_or(u64::MAX);
        let length = end.saturating_sub(start).min(most.saturating_sub(*sum));
        if length > 0 {
            *until = end;
            *sum = sum.saturating_add(length);
            effect.parts.push(PausedDelay {
                edge,
                length_ns: i64::try_from(length).unwrap_or(i64::MAX),
            });
        }
    }
}

/// Index in the chain of the first call of a thread that starts at or after a time.
fn first_from(chain: &CallChain, at_ns: u64, layout: &ReplayLayout) -> usize {
    let before = |call: &u32| layout.call_span(*call).is_some_and(|span| span.0 < at_ns);
    chain.calls.partition_point(before)
}

/// The time before the call at a place: from the end of the one before it on the thread.
fn gap(chain: &CallChain, place: usize, layout: &ReplayLayout) -> Option<(u64, u64)> {
    let (to, _) = layout.call_span(*chain.calls.get(place)?)?;
    let before = place
        .checked_sub(1)
        .and_then(|before| chain.calls.get(before));
    let from = before.and_then(|before| layout.call_span(*before));
    Some((from.map_or(0, |(_, end)| end).min(to), to))
}

fn take(
    chain: &CallChain,
    place: usize,
    layout: &ReplayLayout,
    taken: &mut ClaimedTime,
    effect: &mut PauseEffect,
) {
    let Some((from, to)) = gap(chain, place, layout) else {
        return;
    };
    if let Some(own) = chain.own.get(place) {
        taken.take(*own, from, to, effect);
    }
    if let (Some(switch), Some(source)) = (chain.switch.get(place), chain.source.get(place))
        && let Some((_, handed_over)) = layout.call_span(*source)
    {
        taken.take(*switch, handed_over.min(to), to, effect);
    }
}

/// On the thread that collects: every gap that the pause lies in, one as a rule.
fn own(
    pause: &PauseSpan,
    chain: &CallChain,
    layout: &ReplayLayout,
    taken: &mut ClaimedTime,
    effect: &mut PauseEffect,
) {
    let mut place = first_from(chain, pause.start_ns, layout);
    while let Some((from, _)) = gap(chain, place, layout) {
        if from >= pause.end_ns {
            break;
        }
        take(chain, place, layout, taken, effect);
        place += 1;
    }
}

/// A thread other than the one that collects.
struct WaitingThread<'a> {
    chain: &'a CallChain,
    quiet_ns: u64,
    /// The usual time before the call at an index, in ns.
    usual_ns: &'a dyn Fn(usize) -> u64,
}

impl WaitingThread<'_> {
    /// Assigns the gap that ends after the pause, if the thread made no call in it and needed the
    /// GIL.
    fn add_blocked(
        &self,
        covered: &SummedIntervals,
        layout: &ReplayLayout,
        taken: &mut ClaimedTime,
        effect: &mut PauseEffect,
    ) {
        let first = first_from(self.chain, effect.start_ns, layout);
        // Only a thread in Python that had released the GIL for a call starts this one during the
        // pause.
        let one = self.chain.python
            && gap(self.chain, first, layout).is_some_and(|(_, to)| to < effect.end_ns);
        let place = first + usize::from(one);
        let Some((from, to)) = gap(self.chain, place, layout) else {
            return;
        };
        let through = to >= effect.end_ns;
        let switched = self.chain.source.get(place).is_some_and(|of| *of != NONE);
        let besides_ns = covered.outside(from, to);
        let short = besides_ns < self.quiet_ns || besides_ns < to.saturating_sub(from) / 2;
        let usual = place > 0 && !switched && short;
        if through && (self.chain.python || usual) {
            if one {
                take(self.chain, first, layout, taken, effect);
            }
            if let (false, Some(own)) = (switched, self.chain.own.get(place)) {
                let usual_ns = (self.usual_ns)(place);
                taken.limit(*own, to.saturating_sub(from).saturating_sub(usual_ns));
            }
            take(self.chain, place, layout, taken, effect);
        }
    }
}

/// A hand-over: after which call, into which, over which edge.
#[derive(Debug, Clone, Copy)]
struct HandOver {
    edge: u32,
    to: u32,
}

/// The hand-overs between threads, by the call that handed over.
fn handed_over(layout: &ReplayLayout) -> HashMap<u32, Vec<HandOver>> {
    let mut handed: HashMap<u32, Vec<HandOver>> = HashMap::new();
    for chain in &layout.chains {
        let switches = chain.calls.iter().zip(&chain.switch).zip(&chain.source);
        for ((call, edge), source) in switches.filter(|(_, source)| **source != NONE) {
            let hand_over = HandOver {
                edge: *edge,
                to: *call,
            };
            handed.entry(*source).or_default().push(hand_over);
        }
    }
    handed
}

/// The collecting thread handed over after the pause: what it launched was delayed as well.
fn asked_later(
    pause: &PauseSpan,
    handed: &HashMap<u32, Vec<HandOver>>,
    layout: &ReplayLayout,
    taken: &mut ClaimedTime,
    effect: &mut PauseEffect,
) {
    let Some(chain) = layout.chains.get(pause.thread as usize) else {
        return;
    };
    let place = first_from(chain, pause.start_ns, layout);
    let Some(last) = place.checked_sub(1).and_then(|last| chain.calls.get(last)) else {
        return;
    };
    for hand_over in handed.get(last).into_iter().flatten() {
        if let (Some((_, from)), Some((to, _))) =
            (layout.call_span(*last), layout.call_span(hand_over.to))
            && to >= pause.end_ns
        {
            taken.take(hand_over.edge, from.min(to), to, effect);
        }
    }
}

/// Applies a change to the delays.
pub(super) fn apply(
    layouts: &[ReplayLayout],
    effects: &[PauseEffects],
    change: &ReplayChange,
) -> AppliedChange {
    let mut applied = AppliedChange::default();
    let mut lengths: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for length in &change.lengths {
        lengths.insert((length.timeline, length.pause), length.length_ns);
    }
    for ((timeline, pause), length_ns) in lengths {
        let effect = effects
            .get(timeline as usize)
            .and_then(|effects| effects.pauses.get(pause as usize));
        if let Some(effect) = effect {
            effect.apply(length_ns, &mut applied);
        }
    }
    for inserted in &change.inserted {
        let timeline = inserted.timeline as usize;
        if let (Some(layout), Some(effects)) = (layouts.get(timeline), effects.get(timeline)) {
            let part = AppliedDelay {
                start_ns: inserted.at_ns,
                end_ns: inserted.at_ns,
                by_ns: i64::try_from(inserted.length_ns).unwrap_or(i64::MAX),
            };
            for edge in lengthened(inserted, layout, &effects.handed) {
                applied.add(edge, part);
            }
            if let Some((edge, by_ns)) = effects.still_before(inserted, layout) {
                applied.add(edge, AppliedDelay { by_ns, ..part });
            }
        }
    }
    for parts in applied.parts.values_mut() {
        parts.sort_by_key(|part| (part.start_ns, part.end_ns));
    }
    applied
}

impl PauseEffects {
    /// A thread that waits for another one when a new pause starts: the time it had waited by then
    /// comes before the pause, and what it did after the hand-over comes after it.
    fn still_before(&self, inserted: &InsertedPause, layout: &ReplayLayout) -> Option<(u32, i64)> {
        let chain = layout.chains.get(inserted.thread as usize)?;
        let place = first_from(chain, inserted.at_ns, layout);
        let (edge, from) = waiting(chain, place, inserted.at_ns, layout)?;
        let (_, handed_over) = layout.call_span(*chain.source.get(place)?)?;
        let (_, to) = gap(chain, place, layout)?;
        let elsewhere = (inserted.at_ns - from).saturating_add(to.saturating_sub(handed_over));
        let waited = i64::try_from(elsewhere).unwrap_or(i64::MAX);
        let floor = self.floors.get(&edge).copied().unwrap_or(0);
        Some((edge, waited.saturating_sub(floor).max(0)))
    }
}

impl PauseEffect {
    fn apply(&self, length_ns: u64, applied: &mut AppliedChange) {
        let signed = |length: u64| i64::try_from(length).unwrap_or(i64::MAX);
        let by_ns = signed(length_ns).saturating_sub(signed(self.end_ns - self.start_ns));
        for part in &self.parts {
            applied.add(
                part.edge,
                AppliedDelay {
                    start_ns: self.start_ns,
                    end_ns: self.end_ns,
                    by_ns: by_ns.max(-part.length_ns),
                },
            );
        }
    }
}

/// The delays that a new pause lengthens: as for measured ones.
fn lengthened(
    inserted: &InsertedPause,
    layout: &ReplayLayout,
    handed: &HashMap<u32, Vec<HandOver>>,
) -> BTreeSet<u32> {
    let at_ns = inserted.at_ns;
    let mut edges = BTreeSet::new();
    for (thread, chain) in (0u32..).zip(&layout.chains) {
        let collects = thread == inserted.thread;
        let place = first_from(chain, at_ns, layout);
        let within = gap(chain, place, layout).is_some_and(|(from, _)| from <= at_ns);
        let stands_still = chain.python && !chain.polls && within;
        if !collects && !stands_still {
            continue;
        }
        edges.extend(chain.own.get(place));
        let source = chain.source.get(place).copied().unwrap_or(NONE);
        let handed_over = layout.call_span(source);
        if handed_over.is_some_and(|(_, end)| end <= at_ns) {
            edges.extend(chain.switch.get(place));
        }
        let last = place.checked_sub(1).and_then(|last| chain.calls.get(last));
        if let (true, Some(last)) = (collects, last) {
            let later = |hand_over: &&HandOver| {
                let to = layout.call_span(hand_over.to);
                to.is_some_and(|(start, _)| start > at_ns)
            };
            let hand_overs = handed.get(last).into_iter().flatten();
            edges.extend(hand_overs.filter(later).map(|hand_over| hand_over.edge));
        }
    }
    edges
}
