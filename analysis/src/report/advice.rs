//! The part of a report about what to do next.

use super::Basis;
use serde::Serialize;

/// One change to make, with its evidence, its risk and its predicted effect.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// What the change saves and costs.
    #[serde(flatten)]
    pub effect: AdviceEffect,
    /// Always predicted: a statement about a change that was not made.
    pub basis: Basis,
}

/// What a change saves, and the settings that make it.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AdviceEffect {
    /// Upper bound of the time saved, in ns: the CPU time of the collections that the change is about (wall
    /// time where CPU time was not recorded), or the time of the waits. With GPU times of the run no more
    /// than all pauses cost it by replay. `null` if the change saves no time.
    pub saves_at_most_ns: Option<u64>,
    /// What this change saved in measured programs; `null` if it was measured in too few, or depends on the program.
    pub usual: Option<UsualGain>,
    /// Upper bound of the memory that it gives back, in bytes: how far the resident memory rose, the most that one
    /// collection gave back, or the memory kept by the C library. `null` if it is unknown, or little.
    pub gives_back_at_most_bytes: Option<u64>,
    /// Settings that make the change, as `gctrace apply --gc` takes them (`threshold=50000,10,10`); `null` if
    /// it changes the program.
    pub settings: Option<String>,
}

impl AdviceEffect {
    /// An effect that saves at most this time, in ns.
    pub(crate) fn saves(at_most_ns: u64) -> Self {
        Self { saves_at_most_ns: Some(at_most_ns), ..Self::default() }
    }
}

/// What a change saved in measured programs of the same kind, as shares of the CPU time of their collections;
/// negative where they took longer (docs/evidence.md).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsualGain {
    /// The least of all programs.
    pub least: f64,
    /// The median.
    pub median: f64,
    /// The most.
    pub most: f64,
    /// Number of programs, each with each version of CPython.
    pub programs: u32,
}

/// The kinds of advice, in no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AdviceId {
    /// No collection was recorded, so there is nothing to change.
    NoCollection,
    /// Record the collections of the run as well.
    RecordCollections,
    /// Leave the collector as it is.
    Leave,
    /// Remove the program's own calls of `gc.collect()`.
    ExplicitCalls,
    /// Call `gc.freeze()` once, after setup.
    Freeze,
    /// Call `gc.freeze()` once, in the process that forks workers, before it does.
    FreezeBeforeFork,
    /// Raise the first threshold.
    RaiseThreshold,
    /// Disable automatic collection and collect between steps.
    Planned,
    /// Disable automatic collection until everything is loaded, then freeze the heap and enable it. Saves time once
    /// per start.
    OffWhileLoading,
    /// Disable automatic collection for good.
    Disable,
    /// Add memory: the heap is swapped out.
    SwappedOut,
    /// Change the program so that the few cycles that all garbage comes from do not arise.
    BreakCycles,
    /// Record the cycles in the garbage: no setting is known to save time.
    FindCycles,
    /// Freeze everything when the interpreter ends: its last collections traverse the heap and free nothing.
    FreezeAtExit,
    /// Find the holders of the objects that pile up.
    FindHolders,
    /// Share the data that forked processes read: counting references copies it.
    ShareBuffers,
    /// Let the C library give freed memory back.
    TrimHeap,
    /// Collect now and then: garbage piles up that no collection frees.
    CollectSometimes,
    /// Let training wait less for its data: more workers, or a faster line.
    FasterData,
    /// Move the code that holds the GIL elsewhere.
    FreeGil,
    /// Hold a lock for less time.
    FreeLock,
    /// Move what holds up a loop elsewhere, or shorten the longest pieces of work of a pool.
    FreeLoop,
    /// Change the cause of an idle GPU's wait.
    KeepGpuBusy,
    /// See the cause of the wait in a collection that does not end.
    DumpHang,
    /// Inspect `gc.garbage`.
    Uncollectable,
}
