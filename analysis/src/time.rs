//! Arithmetic on times: lengths, unions of intervals, offsets between clocks, and medians.
//!
//! Knows nothing of where the times come from. A trace may contain any times, and two clocks any
//! offset: what goes beyond the numbers saturates, here and in `accumulate.rs`.

pub(crate) mod intervals;
pub(crate) mod offset;
pub(crate) mod stats;

/// The time from start to end; 0 if the end precedes the start.
pub(crate) fn length(start_ns: u64, end_ns: u64) -> u64 {
    end_ns.saturating_sub(start_ns)
}

/// A timestamp, or a difference of two, that much later.
pub(crate) fn later(at_ns: i64, by_ns: i64) -> i64 {
    at_ns.saturating_add(by_ns)
}

/// By how much the first timestamp is later than the second; negative if it is earlier.
pub(crate) fn difference(one_ns: i64, other_ns: i64) -> i64 {
    one_ns.saturating_sub(other_ns)
}
