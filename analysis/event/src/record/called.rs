//! Calls of the program's own Python code by collections.

use super::FrameId;
use super::kind::{Phase, declare};
use bitcode::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// The role of a called function for the collector.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Encode,
    Decode,
)]
#[serde(rename_all = "lowercase")]
pub enum CalledKind {
    /// `__del__`, a callback of a weak reference, or a generator that is closed.
    #[default]
    Finalizer,
    /// A function in `gc.callbacks`.
    Callback,
}

/// Calls of one function by one collection. Calls within a pause have a record before the pause's; later calls, of
/// callbacks, begin after its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct Called {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// Kernel id of the collecting thread.
    #[serde(skip)]
    pub tid: u32,
    /// Start of the first call, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub at_ns: u64,
    /// Kind of the calls.
    pub kind: CalledKind,
    /// Number of calls.
    pub calls: u64,
    /// Time of all calls, in ns.
    pub time_ns: u64,
    /// The function, as a frame at its first line; `None` if unknown, or of several functions.
    #[serde(skip)]
    pub stack: Option<FrameId>,
}

declare! {
    Called: Phase::Meta, "gctrace_called", "called code",
    pid: pid, tid: tid, at: at_ns, stack: stack
}
