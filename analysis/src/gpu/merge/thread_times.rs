//! Events that are in both traces of one process.
//!
//! Chooses comparable timestamps: starts of calls of one function, midpoints of collections, by thread if threads can
//! be distinguished.

use crate::gpu::timeline::{NameIndex, ThreadIndex, Timeline};
use crate::spans::PauseSpan;
use crate::time::offset::{self, ClockOffset, MATCH_NS, TimestampPair};
use std::collections::BTreeMap;

/// Minimum number of common calls that show the offset.
const FEWEST_CALLS: usize = 8;
/// Minimum number of common collections that show it.
const FEWEST_PAUSES: usize = 3;

/// gctrace's timeline and the profiler's of one process.
#[derive(Clone, Copy)]
pub(super) struct TimelinePair<'a> {
    pub(super) recorded: &'a Timeline,
    pub(super) profiled: &'a Timeline,
}

/// A thread as both traces know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MatchedThread {
    /// The thread with the id of the process.
    Main,
    /// The thread with this id.
    Thread(u32),
    /// A thread that only one of the traces can distinguish from others.
    Unknown,
}

impl TimelinePair<'_> {
    /// Whether thread ids of both are of the same namespace.
    pub(super) fn same_ids(self) -> bool {
        self.recorded.pid == self.profiled.pid
    }

    pub(super) fn who(self, timeline: &Timeline, thread: ThreadIndex) -> MatchedThread {
        match timeline.threads[thread].tid {
            tid if tid == timeline.pid => MatchedThread::Main,
            tid if self.same_ids() => MatchedThread::Thread(tid),
            _ => MatchedThread::Unknown,
        }
    }

    /// The offset by calls in both traces.
    pub(super) fn by_calls(self, guess_ns: i64) -> Option<ClockOffset> {
        let mut series: BTreeMap<(MatchedThread, NameIndex), TimestampPair> = BTreeMap::new();
        for call in &self.profiled.calls {
            let key = (self.who(self.profiled, call.thread), call.function);
            series.entry(key).or_default().fixed.push(call.start_ns.cast_signed());
        }
        for call in &self.recorded.calls {
            let function = self.recorded.names.text(call.function);
            let who = self.who(self.recorded, call.thread);
            if let Some(function) = self.profiled.names.index(function)
                && let Some(series) = series.get_mut(&(who, function))
            {
                series.moved.push(call.start_ns.cast_signed());
            }
        }
        offset::offset(&in_both(series), guess_ns, FEWEST_CALLS)
    }

    /// The offset by collections in both traces.
    pub(super) fn by_pauses(self, guess_ns: i64) -> Option<ClockOffset> {
        let mut series: BTreeMap<MatchedThread, TimestampPair> = BTreeMap::new();
        for pause in &self.profiled.pauses {
            let who = self.who(self.profiled, pause.thread);
            series.entry(who).or_default().fixed.push(middle(pause).cast_signed());
        }
        for pause in &self.recorded.pauses {
            let who = self.who(self.recorded, pause.thread);
            series.entry(who).or_default().moved.push(middle(pause).cast_signed());
        }
        offset::offset(&in_both(series), guess_ns, FEWEST_PAUSES)
    }

    /// The profiler's thread with calls or collections that coincide with a gctrace thread's.
    pub(super) fn coinciding(self, thread: ThreadIndex, offset_ns: i64) -> Option<ThreadIndex> {
        let calls = self.recorded.calls.iter().filter(|call| call.thread == thread);
        let calls = calls.filter_map(|call| {
            let function = self.recorded.names.text(call.function);
            let function = self.profiled.names.index(function)?;
            let at = call.start_ns.checked_add_signed(offset_ns)?;
            let profiled = nearest(&self.profiled.calls, at, |call| call.start_ns)?;
            if profiled.function == function { Some(profiled.thread) } else { None }
        });
        let pauses = self.recorded.pauses.iter().filter(|pause| pause.thread == thread);
        let pauses = pauses.filter_map(|pause| {
            let at = pause.start_ns.checked_add_signed(offset_ns)?;
            nearest(&self.profiled.pauses, at, |pause| pause.start_ns)
                .map(|profiled| profiled.thread)
        });
        let mut votes: BTreeMap<ThreadIndex, usize> = BTreeMap::new();
        for found in calls.chain(pauses) {
            *votes.entry(found).or_default() += 1;
        }
        let all: usize = votes.values().sum();
        let (found, count) = votes.into_iter().max_by_key(|(_, count)| *count)?;
        if count >= FEWEST_PAUSES && count * 2 > all { Some(found) } else { None }
    }
}

/// The one with the nearest start, if it is near; `all` is sorted.
fn nearest<T>(all: &[T], at: u64, start: impl Fn(&T) -> u64) -> Option<&T> {
    let (before, behind) = all.split_at(all.partition_point(|one| start(one) < at));
    let around = before.last().into_iter().chain(behind.first());
    let near = around.min_by_key(|one| start(one).abs_diff(at))?;
    if start(near).abs_diff(at) <= MATCH_NS.unsigned_abs() { Some(near) } else { None }
}

/// The profiler records a collection between two callbacks, and gctrace at its function, inside or
/// around them: differences at both ends cancel at the midpoint.
fn middle(pause: &PauseSpan) -> u64 {
    pause.start_ns + pause.duration_ns() / 2
}

fn in_both<K: Ord>(series: BTreeMap<K, TimestampPair>) -> Vec<TimestampPair> {
    let mut list = Vec::new();
    for mut one in series.into_values() {
        if !one.moved.is_empty() && !one.fixed.is_empty() {
            one.moved.sort_unstable();
            one.fixed.sort_unstable();
            list.push(one);
        }
    }
    list
}
