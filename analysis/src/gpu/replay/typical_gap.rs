//! The usual minimum time of a thread between two calls without a pause: long times that it always
//! takes may be waits for something else, for example data.

use super::layout::CallChain;
use super::layout::ReplayLayout;
use crate::gpu::timeline::Timeline;
use crate::time::intervals::SummedIntervals;
use crate::time::stats;
use std::collections::HashMap;

/// Fewer times of a kind do not show what is usual.
const FEWEST: usize = 5;

/// A shorter time does not include a wait that a pause could hide behind.
const MIN_NS: u64 = 1_000_000;

/// Lowest tenths, by the functions before and after.
#[derive(Debug, Default)]
pub(super) struct TypicalGap {
    low_ns: HashMap<(u32, u32), u64>,
}

impl TypicalGap {
    pub(super) fn learn(
        timeline: &Timeline,
        chain: &CallChain,
        layout: &ReplayLayout,
        covered: &SummedIntervals,
    ) -> Self {
        let mut times: HashMap<(u32, u32), Vec<u64>> = HashMap::new();
        for pair in chain.calls.windows(2) {
            let [before, after] = pair else { continue };
            let spans = (layout.call_span(*before), layout.call_span(*after));
            let (Some((_, from)), Some((to, _))) = spans else {
                continue;
            };
            let length = to.saturating_sub(from);
            if let Some(kind) = kind(timeline, *before, *after)
                && covered.outside(from, to) == length
            {
                times.entry(kind).or_default().push(length);
            }
        }
        let usual = times.into_iter().filter(|(_, of)| of.len() >= FEWEST);
        let low_ns = usual.filter_map(|(kind, mut of)| {
            let low_ns = stats::quantile(&mut of, 10)?;
            (low_ns >= MIN_NS).then_some((kind, low_ns))
        });
        Self {
            low_ns: low_ns.collect(),
        }
    }

    /// Between the call at an index of the thread and the previous one; 0 if it is short or
    /// unknown.
    pub(super) fn before(&self, timeline: &Timeline, chain: &CallChain, place: usize) -> u64 {
        let before = place.checked_sub(1).and_then(|at| chain.calls.get(at));
        let kind = before
            .zip(chain.calls.get(place))
            .and_then(|(before, after)| kind(timeline, *before, *after));
        kind.and_then(|kind| self.low_ns.get(&kind).copied())
            .unwrap_or(0)
    }
}

fn kind(timeline: &Timeline, before: u32, after: u32) -> Option<(u32, u32)> {
    let function = |call: u32| Some(timeline.calls.get(call as usize)?.function);
    Some((function(before)?, function(after)?))
}
