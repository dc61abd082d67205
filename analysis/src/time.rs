//! Arithmetic on times: unions of intervals, offsets between clocks, and medians.
//!
//! Knows nothing of where the times come from.

pub(crate) mod intervals;
pub(crate) mod offset;
pub(crate) mod stats;
