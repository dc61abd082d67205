//! Sums over records, shared by the report on traces and the live view.
//!
//! Owns the sums, and how much of the past each keeps. `analysis.rs` adds timelines to them,
//! `live.rs` the last minute by time.

pub(crate) mod alive;
pub(crate) mod allocations;
pub(crate) mod called;
pub(crate) mod cleanup;
pub(crate) mod counters;
pub(crate) mod cpu_samples;
pub(crate) mod cpu_waits;
pub(crate) mod cuda;
pub(crate) mod explicit;
pub(crate) mod freeze;
pub(crate) mod garbage;
pub(crate) mod gpu_samples;
pub(crate) mod growth;
pub(crate) mod interval_union;
pub(crate) mod kept_pauses;
pub(crate) mod layers;
pub(crate) mod leak_watch;
pub(crate) mod main_thread;
pub(crate) mod meanwhile;
pub(crate) mod memory;
pub(crate) mod off_cpu;
pub(crate) mod pause_sums;
pub(crate) mod pressure;
pub(crate) mod process;
pub(crate) mod process_sums;
pub(crate) mod stacks;
pub(crate) mod tally;
pub(crate) mod thread_activity;
pub(crate) mod thread_spans;
pub(crate) mod trace_state;
pub(crate) mod unlisted;
pub(crate) mod worst_pauses;

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Time before the newest record that [`Keep::Window`] covers, in ns: the 60 s that are shown, and
/// some seconds for late records.
pub(crate) const WINDOW_NS: u64 = 64_000_000_000;

/// How much of the past is kept, to compare late records with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// As much as memory allows; records that arrive later still count. For traces.
    All,
    /// The last [`WINDOW_NS`]; records before that are not counted: for recordings without end.
    Window,
}

/// Those that weigh most, so many at most; equal ones stay in their order.
fn ranked<T, W: Ord>(
    all: impl IntoIterator<Item = T>,
    most: usize,
    weight: impl Fn(&T) -> W,
) -> Vec<T> {
    let mut all: Vec<T> = all.into_iter().collect();
    all.sort_by_key(|one| Reverse(weight(one)));
    all.truncate(most);
    all
}

/// The value of a key; `None` if it is new and there are as many as may be.
pub(crate) fn within_bound<K: Ord, V: Default>(
    map: &mut BTreeMap<K, V>,
    key: K,
    most: usize,
) -> Option<&mut V> {
    let fits = map.len() < most || map.contains_key(&key);
    fits.then(|| map.entry(key).or_default())
}
