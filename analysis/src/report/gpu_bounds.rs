//! The part of a report about bounds of the cost, if only calls on the CPU were recorded.

use super::{Basis, BoundsLimit, PauseTotal};
use schemars::JsonSchema;
use serde::Serialize;
use strum::VariantArray;

/// Lower and upper bounds of how much the pauses delayed GPU work, for processes that launch work
/// and whose trace contains no GPU times.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BoundsReport {
    /// Always inferred from calls on the CPU. The lower bound assumes that the thread would have
    /// continued at once without the pause: a wait for data or for another process that the pause
    /// hid is not detected.
    pub basis: Basis,
    /// Pauses of these processes; overlapping pauses count once.
    pub pauses: PauseTotal,
    /// Lower bound of the delay, in ns, summed over processes.
    pub at_least_ns: u64,
    /// Upper bound of the delay, in ns, summed over processes.
    pub at_most_ns: u64,
    /// The bounds by rule, for rules that apply to at least one pause. They add up to the totals.
    pub rules: Vec<RuleBounds>,
    /// The bounds by process, the largest `at_most_ns` first. They add up to the totals.
    pub processes: Vec<ProcessBounds>,
}

// Rules are in the order of the report.
/// Why a pause has the bounds it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, VariantArray)]
#[serde(rename_all = "kebab-case")]
pub enum BoundsRule {
    /// A synchronizing call had returned and nothing was launched until the pause ended; the delay
    /// is the length of the pause, minus at most 20 us.
    GpuWasEmpty,
    /// The next synchronizing call still waited more than 20 us for earlier work, or the launching
    /// thread waited for the GPU during the whole pause; no delay.
    GpuStayedBusy,
    /// The next synchronizing call returned at once, so the GPU became idle at an unknown time.
    GpuFoundEmpty,
    /// Before the first launch, after the last, or at interpreter shutdown; no delay.
    NoGpuWork,
    /// On a thread that launches nothing; the delay is at most the time since the last call of a
    /// launching thread, which needs the GIL.
    OtherThread,
    /// None of these; the delay is between 0 and the length of the pause.
    Unknown,
}

/// The pauses that one rule applies to.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RuleBounds {
    /// The rule that applies to these pauses and gives the bounds.
    pub rule: BoundsRule,
    /// Count and time of the pauses that the rule applies to.
    pub pauses: PauseTotal,
    /// Lower bound of the delay, in ns.
    pub at_least_ns: u64,
    /// Upper bound of the delay, in ns.
    pub at_most_ns: u64,
}

/// The bounds of one process, summed over its pauses.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProcessBounds {
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// Process id: on the host if gctrace recorded the process, otherwise as the trace states it.
    pub pid: u32,
    /// Rank in a distributed job; `null` if unknown.
    pub rank: Option<u32>,
    /// Count and time of its pauses; time in which several overlap counts once.
    pub pauses: PauseTotal,
    /// Lower bound of the delay, in ns.
    pub at_least_ns: u64,
    /// Upper bound of the delay, in ns.
    pub at_most_ns: u64,
    /// Why all pauses of the process have the rule `unknown`: launches were not recorded, events
    /// were lost or may have been (a trace without its last line), or the process used several
    /// devices. `null` if the rules could be applied.
    pub limited_by: Option<BoundsLimit>,
}
