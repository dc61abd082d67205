//! The part of a report about what to do next.

use super::Basis;
use schemars::JsonSchema;
use serde::Serialize;

/// One change to make, with its evidence, its risk and its predicted effect.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Advice {
    /// Stable identifier of the kind of advice, for programs.
    pub id: AdviceId,
    /// What to do, in one line.
    pub action: String,
    /// The evidence in this report, and why the change helps.
    pub why: String,
    /// Code to add or a command to run; `null` if there is none.
    pub code: Option<String>,
    /// What can go wrong; `null` if nothing is known.
    pub risk: Option<String>,
    /// Lower bound of the time saved of the run, in ns, by replay under pessimistic assumptions;
    /// negative if the run may become longer. `null` without GPU times.
    pub saves_at_least_ns: Option<i64>,
    /// Upper bound of the time saved, in ns, if the program behaves as recorded: time of the run,
    /// by replay, if `saves_at_least_ns` is given, otherwise pause time. `null` if the change saves
    /// no time.
    pub saves_at_most_ns: Option<u64>,
    /// Always predicted: the basis of both bounds.
    pub basis: Basis,
}

/// The kinds of advice, in no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AdviceId {
    /// No collection was recorded, so there is nothing to change.
    NoCollection,
    /// Record the collections of the run as well.
    RecordCollections,
    /// Leave the collector as it is.
    Leave,
    /// Ignore the collections at interpreter shutdown.
    Shutdown,
    /// Remove the program's own calls of `gc.collect()`.
    ExplicitCalls,
    /// Call `gc.freeze()` once, after setup.
    Freeze,
    /// Raise the first threshold.
    RaiseThreshold,
    /// Disable automatic collection and collect between steps.
    Planned,
    /// Give the processes more CPU time.
    Preempted,
    /// Add memory: the heap is swapped out.
    SwappedOut,
    /// Record the reasons of the collections.
    RecordReasons,
    /// Inspect `gc.garbage`.
    Uncollectable,
}
