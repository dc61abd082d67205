//! Sums over records, shared by the report on traces and the live view.
//!
//! Owns the sums, and how much of the past each keeps. `analysis.rs` adds timelines to them,
//! `live.rs` the last minute by time.

pub(crate) mod alive;
pub(crate) mod allocations;
pub(crate) mod called;
pub(crate) mod cleanup;
pub(crate) mod cpu_samples;
pub(crate) mod cpu_waits;
pub(crate) mod explicit;
pub(crate) mod garbage;
pub(crate) mod interval_union;
pub(crate) mod kept_pauses;
pub(crate) mod main_thread;
pub(crate) mod meanwhile;
pub(crate) mod off_cpu;
pub(crate) mod pause_sums;
pub(crate) mod process;
pub(crate) mod process_sums;
pub(crate) mod stacks;
pub(crate) mod tally;
pub(crate) mod thread_activity;
pub(crate) mod thread_spans;
pub(crate) mod trace_state;
pub(crate) mod unlisted;
pub(crate) mod worst_pauses;

/// Time before the newest record that [`Keep::Window`] covers, in ns: the 60 s that are shown, and
/// some seconds for late records.
pub(crate) const WINDOW_NS: u64 = 64_000_000_000;

/// How much of the past is kept, to compare late records with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keep {
    /// As much as memory allows; records that arrive later still count. For traces.
    #[default]
    All,
    /// The last [`WINDOW_NS`]; records before that are not counted: for recordings without end.
    Window,
}
