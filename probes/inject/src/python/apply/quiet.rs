//! Step marks that need no work of the agent: they are only counted, without its lock.
//!
//! Steps of a tenth of a millisecond would otherwise pay more for the search than it may cost. All functions here run
//! with the interpreter's lock held.

use crate::apply::marks::preference;
use crate::process_ring::now_ns;
use gctrace_ring::StepMarker;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// The longest time in which marks are only counted, in ns. A rank looks at the other ranks this often. It is less than
/// the time between two looks at memory.
const LONGEST_NS: u64 = 2_000_000;

/// Marks that may still be counted alone.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// Until when, CLOCK_MONOTONIC in ns.
static UNTIL_NS: AtomicU64 = AtomicU64::new(0);
/// How good the marker of these marks is.
static PREFERENCE: AtomicUsize = AtomicUsize::new(0);
/// Counted marks that the agent has not received.
static COUNTED: AtomicU64 = AtomicU64::new(0);

/// From now on this many marks have nothing to be done.
pub(super) fn begin(marks: u64, marker: StepMarker, now_ns: u64) {
    PREFERENCE.store(preference(marker), Relaxed);
    UNTIL_NS.store(gctrace_units::after(now_ns, LONGEST_NS), Relaxed);
    LEFT.store(marks, Relaxed);
}

/// Something happens: the agent is to have the next mark.
pub(super) fn end() {
    LEFT.store(0, Relaxed);
}

/// Counts a mark if that is all that is to be done.
#[inline]
pub(super) fn count(marker: StepMarker) -> bool {
    let (left, best) = (LEFT.load(Relaxed), PREFERENCE.load(Relaxed));
    if left == 0 || preference(marker) < best || now_ns() >= UNTIL_NS.load(Relaxed) {
        return false;
    }
    if preference(marker) > best {
        // A mark that does not count.
        return true;
    }
    LEFT.store(left - 1, Relaxed);
    COUNTED.store(counted() + 1, Relaxed);
    true
}

/// Marks that were counted alone since they were last taken.
pub(super) fn counted() -> u64 {
    COUNTED.load(Relaxed)
}

/// Takes them, and ends the counting.
pub(super) fn take() -> u64 {
    end();
    COUNTED.swap(0, Relaxed)
}
