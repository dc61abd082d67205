//! The usual minimum time of a thread between two calls without a pause: long times that it always
//! takes may be waits for something else, for example data.

use super::layout::{CallChain, ReplayLayout};
use crate::gpu::timeline::{CallIndex, NameIndex, Timeline};
use crate::time::duration_ns;
use crate::time::intervals::SummedIntervals;
use std::collections::HashMap;

/// Fewer times of a kind do not show the usual time.
const FEWEST: usize = 5;

/// A shorter time does not include a wait that could hide a pause.
const MIN_NS: u64 = 1_000_000;

/// Lowest tenths, by the functions before and after.
#[derive(Debug, Default)]
pub(super) struct TypicalGap {
    low_ns: HashMap<(NameIndex, NameIndex), u64>,
}

impl TypicalGap {
    pub(super) fn learn(
        timeline: &Timeline,
        chain: &CallChain,
        layout: &ReplayLayout<'_>,
        covered: &SummedIntervals,
    ) -> Self {
        let mut times: HashMap<(NameIndex, NameIndex), Vec<u64>> = HashMap::new();
        for pair in chain.calls.windows(2) {
            let ((_, from), (to, _)) = (layout.call_span(pair[0]), layout.call_span(pair[1]));
            let length_ns = duration_ns(from, to);
            if covered.outside(from, to) == length_ns {
                let times = times.entry(kind(timeline, pair[0], pair[1])).or_default();
                times.push(length_ns);
            }
        }
        let low_ns = times.into_iter().filter_map(|(kind, mut of)| {
            let low_ns = gctrace_stats::quantile(&mut of, 10)?;
            if of.len() >= FEWEST && low_ns >= MIN_NS { Some((kind, low_ns)) } else { None }
        });
        Self { low_ns: low_ns.collect() }
    }

    /// Between the call at a place of the thread and the previous one; `None` if it is short or
    /// unknown.
    pub(super) fn before(
        &self,
        timeline: &Timeline,
        chain: &CallChain,
        place: usize,
    ) -> Option<u64> {
        let kind = kind(timeline, chain.before(place)?, chain.calls[place]);
        self.low_ns.get(&kind).copied()
    }
}

fn kind(timeline: &Timeline, before: CallIndex, after: CallIndex) -> (NameIndex, NameIndex) {
    let function = |call: CallIndex| timeline.calls[call].function;
    (function(before), function(after))
}
