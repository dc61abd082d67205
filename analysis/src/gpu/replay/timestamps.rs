//! When any timestamp of a thread is replayed, between its calls or within one: for starts and ends
//! of steps.

use super::layout::ReplayLayout;
use super::network::{EdgeIndex, NetworkNodeId};
use crate::gpu::timeline::{CallIndex, ThreadIndex};

/// Bounds of a timestamp: it moves with the latest of `after` and `no_earlier`, but no later than `no_later`.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimestampRule {
    /// It stays as long after this node; `None`: it stays where it is.
    pub(super) after: Option<NetworkNodeId>,
    /// Pauses on this edge that lie between the node and the timestamp are part of that time.
    pub(super) paused: Option<EdgeIndex>,
    pub(super) no_earlier: Option<NetworkNodeId>,
    pub(super) no_later: Option<NetworkNodeId>,
}

impl TimestampRule {
    /// `at_ns` is on the clock of the timeline.
    pub(super) fn of(layout: &ReplayLayout<'_>, thread: ThreadIndex, at_ns: u64) -> Self {
        let chain = &layout.chains[thread.at()];
        let begun = |call: &CallIndex| layout.call_span(*call).0 <= at_ns;
        let place = chain.calls.partition_point(begun);
        let next = chain.calls.get(place).map(|next| layout.call(*next).0);
        let Some(last) = chain.before(place) else {
            return Self { after: None, paused: None, no_earlier: None, no_later: next };
        };
        let (start, end) = layout.call(last);
        if at_ns < layout.call_span(last).1 {
            return Self {
                after: Some(start),
                paused: None,
                no_earlier: None,
                no_later: Some(end),
            };
        }
        let (after, paused) = match chain.hand_over(place) {
            Some(hand_over) if layout.call_span(hand_over.source).1 <= at_ns => {
                (layout.call(hand_over.source).1, Some(hand_over.edge))
            }
            _ => (end, chain.edge_before(place)),
        };
        Self { after: Some(after), paused, no_earlier: Some(end), no_later: next }
    }
}
