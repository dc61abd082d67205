//! Arithmetic on times: lengths, sums, unions of intervals, offsets between clocks.
//!
//! Knows nothing of where the times come from. A trace may contain any times, and two clocks any
//! offset: what goes beyond the numbers saturates here.

pub(crate) mod intervals;
pub(crate) mod offset;

pub(crate) use gctrace_units::{add_to, after, beyond, duration_ns, sum, times};

/// Length of the common part of two spans, in ns.
pub(crate) fn overlap_ns(one: (u64, u64), other: (u64, u64)) -> u64 {
    beyond(one.1.min(other.1), one.0.max(other.0))
}

/// A timestamp, or a difference of two, that much later.
pub(crate) fn later(at_ns: i64, by_ns: i64) -> i64 {
    at_ns.saturating_add(by_ns)
}

/// By how much the first timestamp is later than the second; negative if it is earlier.
pub(crate) fn since(at_ns: u64, other_ns: u64) -> i64 {
    match at_ns.checked_sub(other_ns) {
        Some(later_ns) => signed(later_ns),
        None => -signed(other_ns - at_ns),
    }
}

/// The same of timestamps that may be negative.
pub(crate) fn difference(one_ns: i64, other_ns: i64) -> i64 {
    one_ns.saturating_sub(other_ns)
}

/// A length as a signed number.
pub(crate) fn signed(length_ns: u64) -> i64 {
    gctrace_units::i64_or_most(length_ns)
}

/// A timestamp that may lie before the zero of its clock; 0 then.
pub(crate) fn timestamp(at_ns: i128) -> u64 {
    gctrace_units::u64_or_most(at_ns.max(0))
}

/// Adds a known value to a sum: the sum is unknown as long as no part is known.
pub(crate) fn add_known(sum: &mut Option<u64>, value: Option<u64>) {
    if let Some(value) = value {
        add_to(sum.get_or_insert(0), value);
    }
}

/// Extends the time from the first start to the last end of something; `None`: nothing yet.
pub(crate) fn extend(span: &mut Option<(u64, u64)>, start_ns: u64, end_ns: u64) {
    let (first, last) = span.get_or_insert((start_ns, end_ns));
    *first = start_ns.min(*first);
    *last = end_ns.max(*last);
}
