//! Sums over the records of a process and of a trace, shared by the report on traces and the live view.
//!
//! `analysis.rs` adds timelines to them, `live.rs` the last minute by time. The sums of one feature stand
//! with its figures.

pub(crate) mod interval_union;
pub(crate) mod kept_pauses;
pub(crate) mod process;
pub(crate) mod process_sums;
pub(crate) mod trace_state;
pub(crate) mod unlisted;
pub(crate) mod worst_pauses;
