//! The delays between calls that contain a pause, and how they change with it.
//!
//! A pause is part of the time between two calls of the collecting thread. That thread holds the GIL: it blocks other
//! threads that run Python, except threads that made a call during the pause (C++ threads, for example autograd's,
//! continue). A thread is assumed to run Python if it is the process's first, or collected or stepped itself. Any
//! other thread is assumed to have been blocked by a pause if it was quiet throughout the pause, and otherwise only
//! for as long as usual or as the pause: it was running a hook in Python, for example. A thread that took no longer
//! than usual was not blocked: it waited for something else, for example data.

use super::layout::{CallChain, ReplayLayout};
use super::network::{DelayChange, EdgeIndex, NetworkBuilder};
use super::typical_gap::TypicalGap;
use super::{InsertedPause, ReplayChange};
use crate::gpu::timeline::{CallIndex, Timeline};
use crate::spans::PauseSpan;
use crate::time::intervals::SummedIntervals;
use crate::time::{duration_ns, later, signed};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// By the call that handed over: the edge of each hand-over, and the call that waited for it.
type HandedOver = HashMap<CallIndex, Vec<(EdgeIndex, CallIndex)>>;

/// The times that the pauses of a timeline are part of.
#[derive(Debug, Default)]
pub(super) struct PauseEffects {
    pauses: Vec<PauseEffect>,
    handed: HandedOver,
    floors: HashMap<EdgeIndex, i64>,
}

/// The delays of one pause.
#[derive(Debug)]
struct PauseEffect {
    start_ns: u64,
    end_ns: u64,
    parts: Vec<PausedDelay>,
}

/// The part of a delay that is a pause.
#[derive(Debug, Clone, Copy)]
struct PausedDelay {
    edge: EdgeIndex,
    length_ns: i64,
}

/// Delays that a change changes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct AppliedChange {
    /// By edge, then in order of time.
    pub(super) parts: BTreeMap<EdgeIndex, Vec<AppliedDelay>>,
}

/// The effect of a change within one delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AppliedDelay {
    /// Where in the measured run, on the clock of the timeline.
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) by_ns: i64,
}

impl AppliedChange {
    pub(super) fn deltas(&self) -> Vec<DelayChange> {
        let deltas = self.parts.iter().map(|(edge, parts)| DelayChange {
            edge: *edge,
            by_ns: parts.iter().map(|part| part.by_ns).fold(0, later),
        });
        deltas.collect()
    }

    /// The effect of the change on a delay before a time inside it.
    pub(super) fn before(&self, edge: EdgeIndex, at_ns: u64) -> i64 {
        let parts = self.parts.get(&edge).into_iter().flatten();
        let until = |part: &AppliedDelay| {
            if part.end_ns <= at_ns {
                part.by_ns
            } else {
                part.by_ns.max(-signed(duration_ns(part.start_ns, at_ns))).min(0)
            }
        };
        parts.map(until).fold(0, later)
    }

    fn add(&mut self, edge: EdgeIndex, part: AppliedDelay) {
        if part.by_ns != 0 {
            self.parts.entry(edge).or_default().push(part);
        }
    }
}

impl PauseEffects {
    /// Finds the delays that contain each pause.
    pub(super) fn learn(
        timeline: &Timeline,
        layout: &ReplayLayout<'_>,
        builder: &mut NetworkBuilder,
    ) -> Self {
        let mut taken = ClaimedTime::default();
        let handed = handed_over(layout);
        let covered: SummedIntervals = timeline.pauses.iter().map(PauseSpan::span).collect();
        let chains = layout.chains.iter();
        let usual: Vec<TypicalGap> =
            chains.map(|chain| TypicalGap::learn(timeline, chain, layout, &covered)).collect();
        let pauses = timeline.pauses.iter().map(|pause| {
            let mut effect =
                PauseEffect { start_ns: pause.start_ns, end_ns: pause.end_ns, parts: Vec::new() };
            for ((thread, chain), usual) in layout.chains.iter().enumerate().zip(&usual) {
                if thread == pause.thread.at() {
                    on_collecting_thread(pause, chain, layout, &mut taken, &mut effect);
                } else if !chain.polls {
                    let other = WaitingThread {
                        chain,
                        quiet_ns: layout.quiet_ns[thread],
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
        Self { pauses, handed, floors }
    }
}

/// A thread that waited for another one continues no earlier than its own pauses allow: for each
/// edge from its previous call, the time from that call to the end of a pause that started before
/// the other thread handed over.
fn floors(timeline: &Timeline, layout: &ReplayLayout<'_>) -> HashMap<EdgeIndex, i64> {
    let mut floors: HashMap<EdgeIndex, i64> = HashMap::new();
    for pause in &timeline.pauses {
        let chain = &layout.chains[pause.thread.at()];
        if let Some(wait) = waiting(chain, pause.start_ns, layout) {
            let floor_ns = signed(pause.end_ns.min(wait.to_ns) - wait.from_ns);
            let slot = floors.entry(wait.edge).or_insert(floor_ns);
            *slot = floor_ns.max(*slot);
        }
    }
    floors
}

/// A thread that waits for another one.
struct HandOverWait {
    /// From its last call before.
    edge: EdgeIndex,
    /// End of its last call before.
    from_ns: u64,
    /// When the other one hands over.
    handed_over_ns: u64,
    /// Start of its next call.
    to_ns: u64,
}

/// The wait that a thread is in at a time.
fn waiting(chain: &CallChain, at_ns: u64, layout: &ReplayLayout<'_>) -> Option<HandOverWait> {
    let place = layout.first_from(chain, at_ns);
    let hand_over = chain.hand_over(place)?;
    let (_, handed_over_ns) = layout.call_span(hand_over.source);
    let (from_ns, to_ns) = gap(chain, place, layout)?;
    if place > 0 && from_ns <= at_ns && at_ns < handed_over_ns {
        Some(HandOverWait { edge: chain.edge_before(place)?, from_ns, handed_over_ns, to_ns })
    } else {
        None
    }
}

/// For each delay the part that is assigned to pauses.
#[derive(Debug, Default)]
struct ClaimedTime {
    by_edge: HashMap<EdgeIndex, Claim>,
}

#[derive(Debug, Default)]
struct Claim {
    /// End of the assigned time, so that no time is assigned twice.
    until_ns: u64,
    /// How much is assigned.
    sum_ns: u64,
    /// How much all pauses together are assigned at most from now on.
    max_ns: Option<u64>,
}

impl ClaimedTime {
    fn limit(&mut self, edge: EdgeIndex, max_ns: u64) {
        self.by_edge.entry(edge).or_default().max_ns = Some(max_ns);
    }

    /// The part of a pause within the time of an edge.
    fn take(&mut self, edge: EdgeIndex, from_ns: u64, to_ns: u64, effect: &mut PauseEffect) {
        let claim = self.by_edge.entry(edge).or_default();
        let start_ns = effect.start_ns.max(claim.until_ns).max(from_ns);
        let end_ns = effect.end_ns.min(to_ns);
        let free_ns = duration_ns(start_ns, end_ns);
        let length_ns = match claim.max_ns {
            Some(max_ns) => free_ns.min(duration_ns(claim.sum_ns, max_ns)),
            None => free_ns,
        };
        if length_ns > 0 {
            claim.until_ns = end_ns;
            claim.sum_ns += length_ns;
            effect.parts.push(PausedDelay { edge, length_ns: signed(length_ns) });
        }
    }
}

/// The time before the call at a place: from the end of the one before it on the thread, or from
/// the clock's zero.
fn gap(chain: &CallChain, place: usize, layout: &ReplayLayout<'_>) -> Option<(u64, u64)> {
    let (to, _) = layout.call_span(*chain.calls.get(place)?);
    let before = chain.before(place);
    let from = if let Some(before) = before { layout.call_span(before).1 } else { 0 };
    Some((from.min(to), to))
}

fn take(
    chain: &CallChain,
    place: usize,
    layout: &ReplayLayout<'_>,
    taken: &mut ClaimedTime,
    effect: &mut PauseEffect,
) {
    let Some((from, to)) = gap(chain, place, layout) else { return };
    if let Some(edge) = chain.edge_before(place) {
        taken.take(edge, from, to, effect);
    }
    if let Some(hand_over) = chain.hand_over(place) {
        let (_, handed_over) = layout.call_span(hand_over.source);
        taken.take(hand_over.edge, handed_over, to, effect);
    }
}

/// On the thread that collects: every gap that the pause lies in, one as a rule.
fn on_collecting_thread(
    pause: &PauseSpan,
    chain: &CallChain,
    layout: &ReplayLayout<'_>,
    taken: &mut ClaimedTime,
    effect: &mut PauseEffect,
) {
    let mut place = layout.first_from(chain, pause.start_ns);
    while let Some((from, _)) = gap(chain, place, layout) {
        if from >= pause.end_ns {
            break;
        }
        take(chain, place, layout, taken, effect);
        place += 1;
    }
}

/// A thread other than the collecting one.
struct WaitingThread<'a> {
    chain: &'a CallChain,
    quiet_ns: u64,
    /// The usual time before the call at an index, in ns.
    usual_ns: &'a dyn Fn(usize) -> Option<u64>,
}

impl WaitingThread<'_> {
    /// Assigns the gap that ends after the pause, if the thread made no call in it and needed the
    /// GIL.
    fn add_blocked(
        &self,
        covered: &SummedIntervals,
        layout: &ReplayLayout<'_>,
        taken: &mut ClaimedTime,
        effect: &mut PauseEffect,
    ) {
        let first = layout.first_from(self.chain, effect.start_ns);
        // The collecting thread keeps the GIL, but for finalizers that run Python or release it:
        // requests for it are answered between bytecodes only (`_Py_HandlePending`).
        // https://github.com/python/cpython/blob/v3.13.0/Python/ceval_gil.c
        // Only a thread in Python that had released the GIL for a call starts this one during the
        // pause.
        let one = self.chain.python
            && matches!(gap(self.chain, first, layout), Some((_, to)) if to < effect.end_ns);
        let place = first + usize::from(one);
        let Some((from, to)) = gap(self.chain, place, layout) else { return };
        let through = to >= effect.end_ns;
        let switched = self.chain.hand_over(place).is_some();
        let besides_ns = covered.outside(from, to);
        let short = besides_ns < self.quiet_ns || besides_ns < (to - from) / 2;
        let usual = place > 0 && !switched && short;
        if through && (self.chain.python || usual) {
            if one {
                take(self.chain, first, layout, taken, effect);
            }
            if !switched
                && let Some(usual_ns) = (self.usual_ns)(place)
                && let Some(edge) = self.chain.edge_before(place)
            {
                taken.limit(edge, duration_ns(usual_ns, to - from));
            }
            take(self.chain, place, layout, taken, effect);
        }
    }
}

/// The hand-overs between threads, by the call that handed over.
fn handed_over(layout: &ReplayLayout<'_>) -> HandedOver {
    let mut handed = HandedOver::new();
    for chain in &layout.chains {
        for (place, hand_over) in &chain.hand_overs {
            let by_source = handed.entry(hand_over.source).or_default();
            by_source.push((hand_over.edge, chain.calls[*place]));
        }
    }
    handed
}

/// The collecting thread handed over after the pause: its launches were delayed as well.
fn asked_later(
    pause: &PauseSpan,
    handed: &HandedOver,
    layout: &ReplayLayout<'_>,
    taken: &mut ClaimedTime,
    effect: &mut PauseEffect,
) {
    let chain = &layout.chains[pause.thread.at()];
    let Some(last) = chain.before(layout.first_from(chain, pause.start_ns)) else { return };
    for (edge, waiting) in handed.get(&last).into_iter().flatten() {
        let ((_, from), (to, _)) = (layout.call_span(last), layout.call_span(*waiting));
        if to >= pause.end_ns {
            taken.take(*edge, from, to, effect);
        }
    }
}

/// Applies a change to the delays.
pub(super) fn apply(
    layouts: &[ReplayLayout<'_>],
    effects: &[PauseEffects],
    change: &ReplayChange,
) -> AppliedChange {
    let mut applied = AppliedChange::default();
    let mut lengths = BTreeMap::new();
    for length in &change.lengths {
        lengths.insert((length.timeline as usize, length.pause), length.length_ns);
    }
    for ((timeline, pause), length_ns) in lengths {
        effects[timeline].pauses[pause.at()].apply(length_ns, &mut applied);
    }
    for inserted in &change.inserted {
        let timeline = inserted.timeline as usize;
        let (layout, effects) = (&layouts[timeline], &effects[timeline]);
        let part = AppliedDelay {
            start_ns: inserted.at_ns,
            end_ns: inserted.at_ns,
            by_ns: signed(inserted.length_ns),
        };
        for edge in lengthened(inserted, layout, &effects.handed) {
            applied.add(edge, part);
        }
        if let Some((edge, by_ns)) = effects.still_before(inserted, layout) {
            applied.add(edge, AppliedDelay { by_ns, ..part });
        }
    }
    for parts in applied.parts.values_mut() {
        parts.sort_by_key(|part| (part.start_ns, part.end_ns));
    }
    applied
}

impl PauseEffects {
    /// A thread that waits for another one when a new pause starts: its wait so far comes before the pause, and its
    /// work after the hand-over comes after it.
    fn still_before(
        &self,
        inserted: &InsertedPause,
        layout: &ReplayLayout<'_>,
    ) -> Option<(EdgeIndex, i64)> {
        let chain = &layout.chains[inserted.thread.at()];
        let wait = waiting(chain, inserted.at_ns, layout)?;
        let waited = (inserted.at_ns - wait.from_ns) + (wait.to_ns - wait.handed_over_ns);
        let by_ns = match self.floors.get(&wait.edge) {
            Some(floor_ns) => (signed(waited) - floor_ns).max(0),
            None => signed(waited),
        };
        Some((wait.edge, by_ns))
    }
}

impl PauseEffect {
    fn apply(&self, length_ns: u64, applied: &mut AppliedChange) {
        let by_ns = signed(length_ns) - signed(self.end_ns - self.start_ns);
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
    layout: &ReplayLayout<'_>,
    handed: &HandedOver,
) -> BTreeSet<EdgeIndex> {
    let at_ns = inserted.at_ns;
    let mut edges = BTreeSet::new();
    for (thread, chain) in layout.chains.iter().enumerate() {
        let collects = thread == inserted.thread.at();
        let place = layout.first_from(chain, at_ns);
        let within = matches!(gap(chain, place, layout), Some((from, _)) if from <= at_ns);
        let stands_still = chain.python && !chain.polls && within;
        if !collects && !stands_still {
            continue;
        }
        edges.extend(chain.edge_before(place));
        let hand_over = chain.hand_over(place);
        let done = hand_over.filter(|hand_over| layout.call_span(hand_over.source).1 <= at_ns);
        edges.extend(done.map(|hand_over| hand_over.edge));
        if collects && let Some(last) = chain.before(place) {
            let hand_overs = handed.get(&last).into_iter().flatten();
            let later = hand_overs.filter(|(_, to)| layout.call_span(*to).0 > at_ns);
            edges.extend(later.map(|(edge, _)| *edge));
        }
    }
    edges
}
