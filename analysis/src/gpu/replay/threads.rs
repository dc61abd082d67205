//! What the calls of a thread wait for on the host: the thread's own think time, or a hand-over
//! from another thread.
//!
//! A call starts as long after the previous one on its thread as measured. But a thread that was
//! quiet for unusually long while another one was busy waited for that one: Python's main thread
//! waits for autograd's to finish the backward pass, which waited for the main thread to request
//! it. Pauses do not count as quiet.

use super::layout::CallChain;
use super::layout::ReplayLayout;
use super::network::NONE;
use super::network::NetworkBuilder;
use crate::gpu::calls::CallEffect;
use crate::gpu::pause_span::PauseSpan;
use crate::gpu::timeline::Timeline;
use crate::time::intervals::SummedIntervals;
use crate::time::stats;

/// A thread is quiet for unusually long from this many times its median time between calls ...
const QUIET_FACTOR: u64 = 20;
/// ... and at least this many ns: switching threads takes some microseconds.
const QUIET_NS: u64 = 30_000;

/// Links the calls of each thread.
pub(super) fn learn(timeline: &Timeline, layout: &mut ReplayLayout, builder: &mut NetworkBuilder) {
    let minimum = UnblockedTime::learn(timeline);
    for call in 0..u32::try_from(timeline.calls.len()).unwrap_or(NONE) {
        if let (Some((start, end)), Some(content)) =
            (layout.call(call), timeline.calls.get(call as usize))
        {
            builder.edge(start, end, minimum.of(content.function, content.kind));
        }
    }
    let hand_overs = HandOvers::new(timeline, layout);
    let sources: Vec<Vec<u32>> = (0..layout.chains.len())
        .map(|thread| hand_overs.sources(thread))
        .collect();
    let quiet_ns = hand_overs.quiet_ns;
    let mut chains = std::mem::take(&mut layout.chains);
    for (chain, sources) in chains.iter_mut().zip(sources) {
        if !chain.polls {
            link(chain, sources, layout, builder);
        }
    }
    layout.chains = chains;
    layout.quiet_ns = quiet_ns;
}

/// Longest time of a synchronizing call without anything to wait for. A program that synchronizes
/// once, at its end, shows no such call.
const SYNCHRONIZED_NS: i64 = 20_000;

/// How long calls take on their own, by function: the time of a blocking call that need not wait.
struct UnblockedTime {
    /// Times sorted by function.
    low: Vec<(u32, i64)>,
}

impl UnblockedTime {
    /// For calls that may block the tenth percentile: many of them do. For launches the median: few
    /// of them encounter a full queue.
    fn learn(timeline: &Timeline) -> Self {
        let blocking = timeline
            .calls
            .iter()
            .filter(|call| call.timed && (call.kind.may_block() || call.kind.launches()));
        let mut lengths: Vec<(u32, u64)> = blocking
            .map(|call| (call.function, call.duration_ns()))
            .collect();
        let part = |function: u32| match CallEffect::of(timeline.names.text(function)).launches() {
            true => 2,
            false => 10,
        };
        lengths.sort_unstable();
        let low = lengths.chunk_by(|a, b| a.0 == b.0).filter_map(|of_one| {
            let (function, length) = of_one.get(of_one.len() / part(of_one.first()?.0))?;
            Some((*function, i64::try_from(*length).unwrap_or(i64::MAX)))
        });
        Self { low: low.collect() }
    }

    fn of(&self, function: u32, kind: CallEffect) -> i64 {
        if !kind.may_block() && !kind.launches() {
            return i64::MAX;
        }
        let found = self.low.binary_search_by_key(&function, |(of, _)| *of);
        let found = found.ok().and_then(|at| self.low.get(at));
        let low = found.map_or(i64::MAX, |(_, length)| *length);
        match kind {
            CallEffect::StreamSynchronize
            | CallEffect::DeviceSynchronize
            | CallEffect::EventSynchronize => low.min(SYNCHRONIZED_NS),
            _ => low,
        }
    }
}

/// Finds out which calls waited for another thread.
struct HandOvers<'a> {
    layout: &'a ReplayLayout,
    pauses: SummedIntervals,
    /// Per thread: from which time between two calls on it was quiet.
    quiet_ns: Vec<u64>,
    /// Whether each thread launches work.
    launches: Vec<bool>,
}

impl<'a> HandOvers<'a> {
    fn new(timeline: &Timeline, layout: &'a ReplayLayout) -> Self {
        let pauses: SummedIntervals = timeline.pauses.iter().map(PauseSpan::span).collect();
        let chains = || layout.chains.iter();
        Self {
            layout,
            quiet_ns: chains()
                .map(|chain| quiet_ns(chain, layout, &pauses))
                .collect(),
            launches: chains().map(|chain| launches(chain, timeline)).collect(),
            pauses,
        }
    }

    /// Per call of a thread: the call of another thread that it waited for, or [`NONE`].
    fn sources(&self, thread: usize) -> Vec<u32> {
        let (Some(chain), Some(quiet)) =
            (self.layout.chains.get(thread), self.quiet_ns.get(thread))
        else {
            return Vec::new();
        };
        let mut before: Option<u32> = None;
        let of = |call: &u32| {
            let last = before.replace(*call);
            let (start, _) = self.layout.call_span(*call)?;
            let from = last.and_then(|last| self.layout.call_span(last));
            let from = from.map(|(_, end)| end);
            let Some(from) = from else {
                // A thread does not start on its own: something that others did before started it.
                let rested = self.latest(thread, start, true);
                return rested
                    .or_else(|| self.latest(thread, start, false))
                    .map(|(_, source)| source);
            };
            if self.pauses.outside(from, start) < *quiet {
                return None;
            }
            let (end, source) = self.latest(thread, start, true)?;
            // Shortly before, against how long it was quiet; the other one's work lies in between.
            let handed_over = self.pauses.outside(end, start);
            let near = end > from && handed_over <= self.pauses.outside(from, start) / 2;
            near.then_some(source)
        };
        let sources = chain.calls.iter().map(of);
        sources.map(|source| source.unwrap_or(NONE)).collect()
    }

    /// The last of the other threads' calls that ended before a time (and, if it must have
    /// `rested`, were followed by quiet), with its end.
    fn latest(&self, thread: usize, before_ns: u64, rested: bool) -> Option<(u64, u32)> {
        let all = self.layout.chains.iter().zip(&self.quiet_ns);
        let others = all.zip(&self.launches).enumerate();
        let others = others.filter(|(other, (_, launches))| *other != thread && **launches);
        others
            .filter_map(|(_, ((chain, quiet), _))| {
                let quiet_ns = if rested { *quiet } else { 0 };
                self.handed_over(chain, quiet_ns, before_ns)
            })
            .max()
    }

    fn handed_over(&self, chain: &CallChain, quiet_ns: u64, before_ns: u64) -> Option<(u64, u32)> {
        let span = |call: &u32| self.layout.call_span(*call);
        let begun = |call: &u32| span(call).is_some_and(|span| span.0 < before_ns);
        let behind = chain.calls.partition_point(begun);
        let last = chain.calls.get(behind.checked_sub(1)?)?;
        let (_, end) = span(last)?;
        let next = chain.calls.get(behind).and_then(span);
        let rested = next.is_none_or(|(start, _)| self.pauses.outside(end, start) >= quiet_ns);
        (end <= before_ns && rested).then_some((end, *last))
    }
}

fn quiet_ns(chain: &CallChain, layout: &ReplayLayout, pauses: &SummedIntervals) -> u64 {
    let spans = chain
        .calls
        .iter()
        .filter_map(|call| layout.call_span(*call));
    let next = spans.clone().skip(1);
    let mut gaps: Vec<u64> = spans
        .zip(next)
        .map(|((_, end), (start, _))| pauses.outside(end, start))
        .collect();
    let quiet_ns = stats::median_high(&mut gaps).map(|median| median.saturating_mul(QUIET_FACTOR));
    quiet_ns.map_or(QUIET_NS, |quiet_ns| quiet_ns.max(QUIET_NS))
}

fn launches(chain: &CallChain, timeline: &Timeline) -> bool {
    let mut kinds = chain
        .calls
        .iter()
        .filter_map(|call| timeline.calls.get(*call as usize))
        .map(|call| call.kind);
    !chain.polls && kinds.any(|kind| kind.launches() || kind == CallEffect::Copy)
}

fn link(
    chain: &mut CallChain,
    sources: Vec<u32>,
    layout: &ReplayLayout,
    builder: &mut NetworkBuilder,
) {
    let mut from = layout.origin;
    let slots = chain.own.iter_mut().zip(&mut chain.switch);
    for ((call, source), (own, switch)) in chain.calls.iter().zip(&sources).zip(slots) {
        let Some((start, end)) = layout.call(*call) else {
            continue;
        };
        match layout.call(*source) {
            Some((_, handed_over)) => {
                *own = builder.edge(from, start, 0);
                *switch = builder.fixed(handed_over, start);
            }
            None => *own = builder.fixed(from, start),
        }
        from = end;
    }
    chain.source = sources;
}
