//! Causes of a thread's calls waiting on the host: the thread's own think time, or a hand-over from another thread.
//!
//! A call starts as long after the previous one on its thread as measured. But a thread that was quiet for unusually
//! long while another one was busy waited for that one: Python's main thread waits for autograd's thread to finish
//! the backward pass; that thread waited for the main thread to request it. Pauses do not count as quiet.

use super::layout::{CallChain, HandOver, ReplayLayout};
use super::network::NetworkBuilder;
use crate::gpu::calls::CallEffect;
use crate::gpu::timeline::{Call, CallIndex, NameIndex, Timeline};
use crate::spans::PauseSpan;
use crate::spans::index::Index;
use crate::time::intervals::SummedIntervals;
use crate::time::{signed, times};
use std::collections::BTreeMap;

/// A thread is quiet for unusually long from this many times its median time between calls ...
const QUIET_FACTOR: u64 = 20;
/// ... and at least this many ns: switching threads takes some microseconds.
const QUIET_NS: u64 = 30_000;

/// Links the calls of each thread.
pub(super) fn learn(
    timeline: &Timeline,
    layout: &mut ReplayLayout<'_>,
    builder: &mut NetworkBuilder,
) {
    let minimum = UnblockedTime::learn(timeline);
    for (index, call) in Index::enumerate(&timeline.calls) {
        let (start, end) = layout.call(index);
        builder.edge(start, end, minimum.of(call));
    }
    let hand_overs = HandOvers::new(timeline, layout);
    let threads = 0..layout.chains.len();
    let sources: Vec<BTreeMap<usize, CallIndex>> =
        threads.map(|thread| hand_overs.sources(thread)).collect();
    layout.quiet_ns = hand_overs.quiet_ns;
    let mut chains = std::mem::take(&mut layout.chains);
    for (chain, sources) in chains.iter_mut().zip(sources) {
        if !chain.polls {
            link(chain, sources, layout, builder);
        }
    }
    layout.chains = chains;
}

/// Longest time of a synchronizing call without anything to wait for. A program that synchronizes
/// once, at its end, shows no such call.
const SYNCHRONIZED_NS: i64 = 20_000;

/// How long calls take on their own, by function: the time of a blocking call that need not wait.
struct UnblockedTime {
    /// Times sorted by function.
    low: Vec<(NameIndex, i64)>,
}

impl UnblockedTime {
    /// For calls that may block the tenth percentile: many of them do. For launches the median: few
    /// of them encounter a full queue.
    fn learn(timeline: &Timeline) -> Self {
        let mut lengths: Vec<(NameIndex, u64)> = Vec::new();
        for call in &timeline.calls {
            if call.timed && (call.kind.may_block() || call.kind.launches()) {
                lengths.push((call.function, call.duration_ns()));
            }
        }
        let part = |function| {
            if CallEffect::of(timeline.names.text(function)).launches() { 2 } else { 10 }
        };
        lengths.sort_unstable();
        let low = lengths.chunk_by(|a, b| a.0 == b.0).map(|of_one| {
            let (function, _) = of_one[0];
            let (_, length_ns) = of_one[of_one.len() / part(function)];
            (function, signed(length_ns))
        });
        Self { low: low.collect() }
    }

    fn of(&self, call: &Call) -> i64 {
        if !call.kind.may_block() && !call.kind.launches() {
            return i64::MAX;
        }
        let found = self.low.binary_search_by_key(&call.function, |(of, _)| *of);
        let low = if let Ok(at) = found { self.low[at].1 } else { i64::MAX };
        match call.kind {
            CallEffect::StreamSynchronize
            | CallEffect::DeviceSynchronize
            | CallEffect::EventSynchronize => low.min(SYNCHRONIZED_NS),
            _ => low,
        }
    }
}

/// Finds the calls that waited for another thread.
struct HandOvers<'a> {
    layout: &'a ReplayLayout<'a>,
    pauses: SummedIntervals,
    /// Per thread: time between two calls after which it was quiet.
    quiet_ns: Vec<u64>,
    /// Whether each thread launches work.
    launches: Vec<bool>,
}

impl<'a> HandOvers<'a> {
    fn new(timeline: &Timeline, layout: &'a ReplayLayout<'a>) -> Self {
        let pauses: SummedIntervals = timeline.pauses.iter().map(PauseSpan::span).collect();
        let chains = || layout.chains.iter();
        Self {
            layout,
            quiet_ns: chains().map(|chain| quiet_ns(chain, layout, &pauses)).collect(),
            launches: chains().map(|chain| launches(chain, timeline)).collect(),
            pauses,
        }
    }

    /// By place of a call of a thread: the call of another thread that it waited for.
    fn sources(&self, thread: usize) -> BTreeMap<usize, CallIndex> {
        let (chain, quiet_ns) = (&self.layout.chains[thread], self.quiet_ns[thread]);
        let of = |(place, call): (usize, &CallIndex)| {
            let (start, _) = self.layout.call_span(*call);
            let Some(last) = chain.before(place) else {
                // A thread does not start on its own: something that others did before started it.
                let started = match self.latest(thread, start, true) {
                    None => self.latest(thread, start, false),
                    rested => rested,
                };
                return started.map(|(_, source)| source);
            };
            let (_, from) = self.layout.call_span(last);
            if self.pauses.outside(from, start) < quiet_ns {
                return None;
            }
            let (end, source) = self.latest(thread, start, true)?;
            // Shortly before, against how long it was quiet; the other one's work lies in between.
            let handed_over = self.pauses.outside(end, start);
            let near = end > from && handed_over <= self.pauses.outside(from, start) / 2;
            if near { Some(source) } else { None }
        };
        let sources = chain.calls.iter().enumerate();
        sources.filter_map(|at| Some((at.0, of(at)?))).collect()
    }

    /// The last of the other threads' calls that ended before a time (and, if it must have
    /// `rested`, were followed by quiet), with its end.
    fn latest(&self, thread: usize, before_ns: u64, rested: bool) -> Option<(u64, CallIndex)> {
        let mut latest = None;
        for (other, chain) in self.layout.chains.iter().enumerate() {
            if other != thread && self.launches[other] {
                let quiet_ns = if rested { self.quiet_ns[other] } else { 0 };
                latest = latest.max(self.handed_over(chain, quiet_ns, before_ns));
            }
        }
        latest
    }

    fn handed_over(
        &self,
        chain: &CallChain,
        quiet_ns: u64,
        before_ns: u64,
    ) -> Option<(u64, CallIndex)> {
        let behind = self.layout.first_from(chain, before_ns);
        let last = chain.before(behind)?;
        let (_, end) = self.layout.call_span(last);
        let next = chain.calls.get(behind);
        let rested = match next {
            Some(next) => self.pauses.outside(end, self.layout.call_span(*next).0) >= quiet_ns,
            None => true,
        };
        if end <= before_ns && rested { Some((end, last)) } else { None }
    }
}

fn quiet_ns(chain: &CallChain, layout: &ReplayLayout<'_>, pauses: &SummedIntervals) -> u64 {
    let pairs = chain.calls.windows(2);
    let gaps = pairs.map(|pair| {
        let ((_, end), (start, _)) = (layout.call_span(pair[0]), layout.call_span(pair[1]));
        pauses.outside(end, start)
    });
    let median = gctrace_stats::median_high(&mut gaps.collect::<Vec<u64>>());
    if let Some(ns) = median { times(ns, QUIET_FACTOR).max(QUIET_NS) } else { QUIET_NS }
}

fn launches(chain: &CallChain, timeline: &Timeline) -> bool {
    let mut kinds = chain.calls.iter().map(|call| timeline.calls[*call].kind);
    !chain.polls && kinds.any(|kind| kind.launches() || kind == CallEffect::Copy)
}

fn link(
    chain: &mut CallChain,
    sources: BTreeMap<usize, CallIndex>,
    layout: &ReplayLayout<'_>,
    builder: &mut NetworkBuilder,
) {
    let mut from = layout.origin;
    for (place, call) in chain.calls.iter().enumerate() {
        let (start, end) = layout.call(*call);
        let into_start = if sources.contains_key(&place) {
            builder.edge(from, start, 0)
        } else {
            builder.fixed(from, start)
        };
        chain.first_edge.get_or_insert(into_start);
        from = end;
    }
    for (place, source) in sources {
        let (start, _) = layout.call(chain.calls[place]);
        let edge = builder.fixed(layout.call(source).1, start);
        chain.hand_overs.insert(place, HandOver { source, edge });
    }
}
