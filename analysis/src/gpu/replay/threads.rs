//! What the calls of a thread wait for on the host: the thread's own time to think, or a hand-over
//! from another thread.
//!
//! A call begins so long after the one before it on its thread as measured. But a thread that was
//! quiet for unusually long while another one was busy waited for that one: Python's main thread
//! waits for autograd's to finish the backward pass, which waited for the main thread to ask for it.

use super::layout::Chain;
use super::layout::Layout;
use super::network::Builder;
use super::network::NONE;
use crate::gpu::calls::CallKind;
use crate::gpu::timeline::Timeline;

/// A thread is quiet for unusually long from so many times its median time between calls ...
const QUIET_FACTOR: u64 = 20;
/// ... and at least from so many nanoseconds: switching threads takes some microseconds.
const QUIET_NS: u64 = 30_000;

/// Links the calls of each thread.
pub(super) fn learn(timeline: &Timeline, layout: &mut Layout, builder: &mut Builder) {
    let minimum = OwnTime::learn(timeline);
    for call in 0..u32::try_from(timeline.calls.len()).unwrap_or(NONE) {
        if let (Some((begin, end)), Some(content)) =
            (layout.call(call), timeline.calls.get(call as usize))
        {
            builder.edge(begin, end, minimum.of(content.function, content.kind));
        }
    }
    let quiet: Vec<u64> = layout
        .chains
        .iter()
        .map(|chain| quiet_ns(chain, layout))
        .collect();
    let launching: Vec<bool> = layout
        .chains
        .iter()
        .map(|chain| launches(chain, timeline))
        .collect();
    let mut chains = std::mem::take(&mut layout.chains);
    let sources: Vec<Vec<u32>> = (0..chains.len())
        .map(|thread| sources(thread, &chains, &quiet, &launching, layout))
        .collect();
    for (chain, sources) in chains.iter_mut().zip(sources) {
        if !chain.polls {
            link(chain, sources, layout, builder);
        }
    }
    layout.chains = chains;
}

/// How long calls take by themselves, by function: what a call that blocks takes where it needs
/// not wait.
struct OwnTime {
    /// Sorted by function.
    low: Vec<(u32, i64)>,
}

impl OwnTime {
    /// The tenth percentile: most calls of a function that may block do not.
    fn learn(timeline: &Timeline) -> Self {
        let blocking = timeline
            .calls
            .iter()
            .filter(|call| call.timed && call.kind.may_block());
        let mut lengths: Vec<(u32, u64)> = blocking
            .map(|call| (call.function, call.duration_ns()))
            .collect();
        lengths.sort_unstable();
        let low = lengths.chunk_by(|a, b| a.0 == b.0).filter_map(|of_one| {
            let (function, length) = of_one.get(of_one.len() / 10)?;
            Some((*function, i64::try_from(*length).unwrap_or(i64::MAX)))
        });
        Self { low: low.collect() }
    }

    fn of(&self, function: u32, kind: CallKind) -> i64 {
        if !kind.may_block() && !matches!(kind, CallKind::Launch | CallKind::GraphLaunch) {
            return i64::MAX;
        }
        let found = self.low.binary_search_by_key(&function, |(of, _)| *of);
        let found = found.ok().and_then(|at| self.low.get(at));
        found.map_or(i64::MAX, |(_, length)| *length)
    }
}

fn quiet_ns(chain: &Chain, layout: &Layout) -> u64 {
    let mut gaps: Vec<u64> = chain
        .calls
        .windows(2)
        .filter_map(|pair| match pair {
            [before, after] => {
                let (_, end) = layout.call_span(*before)?;
                let (begin, _) = layout.call_span(*after)?;
                Some(begin.saturating_sub(end))
            }
            _ => None,
        })
        .collect();
    gaps.sort_unstable();
    let median = gaps.get(gaps.len() / 2).copied().unwrap_or(0);
    median.saturating_mul(QUIET_FACTOR).max(QUIET_NS)
}

fn launches(chain: &Chain, timeline: &Timeline) -> bool {
    let kind = |call: &u32| timeline.calls.get(*call as usize).map(|call| call.kind);
    !chain.polls
        && chain.calls.iter().filter_map(kind).any(|kind| {
            matches!(
                kind,
                CallKind::Launch | CallKind::GraphLaunch | CallKind::Copy
            )
        })
}

/// Per call of a thread: the call of another thread that it waited for, or [`NONE`].
fn sources(
    thread: usize,
    chains: &[Chain],
    quiet: &[u64],
    launching: &[bool],
    layout: &Layout,
) -> Vec<u32> {
    let Some(chain) = chains.get(thread) else {
        return Vec::new();
    };
    let others = || {
        let all = chains.iter().zip(quiet).zip(launching).enumerate();
        all.filter(|(other, (_, launching))| *other != thread && **launching)
            .map(|(_, ((chain, quiet), _))| (chain, *quiet))
    };
    let quiet = quiet.get(thread).copied().unwrap_or(QUIET_NS);
    let mut before: Option<u32> = None;
    let of = |call: &u32| {
        let gap_begin = before.replace(*call);
        let (begin, _) = layout.call_span(*call)?;
        let gap_begin = match gap_begin {
            Some(before) => Some(layout.call_span(before)?.1),
            None => None,
        };
        if gap_begin.is_some_and(|from| begin.saturating_sub(from) < quiet) {
            return None;
        }
        let latest = others().filter_map(|(other, quiet)| handed_over(other, quiet, begin, layout));
        let (end, source) = latest.max()?;
        // Shortly before, against how long it was quiet; the other one's work lies in between.
        let near = gap_begin.is_none_or(|from| end > from && begin - end <= (begin - from) / 2);
        near.then_some(source)
    };
    let sources = chain.calls.iter().map(of);
    sources.map(|source| source.unwrap_or(NONE)).collect()
}

/// The last call of a thread that ended before a moment, with its end, if the thread was quiet
/// afterwards.
fn handed_over(
    chain: &Chain,
    quiet_ns: u64,
    before_ns: u64,
    layout: &Layout,
) -> Option<(u64, u32)> {
    let begins = |call: &u32| {
        layout
            .call_span(*call)
            .is_some_and(|span| span.0 < before_ns)
    };
    let behind = chain.calls.partition_point(begins);
    let last = *chain.calls.get(behind.checked_sub(1)?)?;
    let (_, end) = layout.call_span(last)?;
    let next = chain
        .calls
        .get(behind)
        .and_then(|next| layout.call_span(*next));
    let rested = next.is_none_or(|(begin, _)| begin.saturating_sub(end) >= quiet_ns);
    (end <= before_ns && rested).then_some((end, last))
}

fn link(chain: &mut Chain, sources: Vec<u32>, layout: &Layout, builder: &mut Builder) {
    let mut from = layout.origin;
    let slots = chain.own.iter_mut().zip(&mut chain.switch);
    for ((call, source), (own, switch)) in chain.calls.iter().zip(&sources).zip(slots) {
        let Some((begin, end)) = layout.call(*call) else {
            continue;
        };
        match layout.call(*source) {
            Some((_, handed_over)) => {
                *own = builder.edge(from, begin, 0);
                *switch = builder.fixed(handed_over, begin);
            }
            None => *own = builder.fixed(from, begin),
        }
        from = end;
    }
    chain.source = sources;
}
