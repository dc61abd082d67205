//! Keeps the outermost of nested calls. Pure.
//!
//! `cudaLaunchKernel` calls `cuLaunchKernel`: CUPTI records both, with the same correlation id, the
//! inner one within the outer one's interval on the same thread. It writes a record when a call
//! returns, the inner one first, and returns buffers at any time, on several threads: the two may
//! arrive in different buffers, in either order, with a flush in between. So the decision is made
//! here, once after each flush, over all calls that arrived since the last one; and at the
//! boundaries between buffers
//! - a driver call that is not nested in another is held back for one flush, and a thread's last
//!   one for more: its outer call may not have returned,
//! - calls that may contain others are remembered for as many flushes.
//!
//! Limitation: an inner call is kept if its outer call returns, or its buffer arrives, later than
//! that. Readers must expect nested calls, rarely.

use crate::memory::Map;
use gctrace_ring::{ApiLayer, RingCall};
use std::cmp::Reverse;

/// Number of flushes that the boundaries are remembered for: about a second.
const TURNS: u32 = 4;

/// Maximum number of calls remembered or held back at the boundaries. Half a million: 25 MB, not
/// reached by any program so far.
const MOST: usize = 1 << 19;

struct SeenCall {
    call: RingCall,
    /// Flushes since it arrived.
    turns: u32,
    /// Already kept or dropped: remembered only to show which others are nested in it.
    is_decided: bool,
}

/// Decides which calls are kept.
#[derive(Default)]
pub(super) struct OutermostFilter(Vec<SeenCall>);

impl OutermostFilter {
    /// Takes the calls that arrived since the last flush; returns the calls to keep now. `last`: no more will arrive.
    pub(super) fn turn(&mut self, calls: Vec<RingCall>, last: bool) -> Vec<RingCall> {
        self.0.iter_mut().for_each(|known| known.turns += 1);
        self.0.extend(calls.into_iter().map(|call| SeenCall { call, turns: 0, is_decided: false }));
        // Outer calls before nested ones: outer calls start no later and end no earlier.
        self.0.sort_by_key(|SeenCall { call, .. }| {
            let layer = Reverse(call.layer as u8);
            (call.tid, call.interval.start_ns, Reverse(call.interval.end_ns), layer)
        });
        let kept = self.decide(last);
        self.forget();
        kept
    }

    fn decide(&mut self, last: bool) -> Vec<RingCall> {
        let newest = self.newest();
        let mut kept = Vec::new();
        let mut outer: Option<RingCall> = None;
        for known in &mut self.0 {
            let call = known.call;
            if matches!(outer, Some(outer) if is_within(&call, &outer)) {
                known.is_decided = true;
                continue;
            }
            outer = Some(call);
            let is_newest = newest.get(&call.tid) == Some(&call.correlation);
            let patience = if is_newest { TURNS } else { 1 };
            let may_be_nested = call.layer == ApiLayer::Driver && known.turns < patience;
            if !known.is_decided && (last || !may_be_nested) {
                known.is_decided = true;
                kept.push(call);
            }
        }
        kept
    }

    /// The correlation id of each thread's last call.
    fn newest(&self) -> Map<u32, u32> {
        let mut newest: Map<u32, (u64, u32)> = Map::default();
        for SeenCall { call, .. } in &self.0 {
            let last = newest.entry(call.tid).or_default();
            *last = (*last).max((call.interval.end_ns, call.correlation));
        }
        let ids = newest.into_iter().map(|(tid, (_, id))| (tid, id));
        ids.collect()
    }

    /// Only runtime calls are remembered: no call nests in a driver call.
    fn forget(&mut self) {
        self.0.retain(|known| {
            let is_open = !known.is_decided;
            is_open || (known.call.layer == ApiLayer::Runtime && known.turns < TURNS)
        });
        if self.0.len() > MOST {
            self.0.retain(|known| !known.is_decided);
        }
    }
}

fn is_within(inner: &RingCall, outer: &RingCall) -> bool {
    inner.tid == outer.tid
        && inner.correlation == outer.correlation
        && inner.interval.start_ns >= outer.interval.start_ns
        && inner.interval.end_ns <= outer.interval.end_ns
}

#[cfg(test)]
mod tests;
