//! The part of a report about what pauses cost GPUs where only calls on the host were recorded.

use super::Basis;
use super::PauseTotal;
use schemars::JsonSchema;
use serde::Serialize;

/// What pauses cost GPUs at least and at most: by how much the GPU's work came later. Of processes that put work into
/// streams and of which no operation has the GPU's own times.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BoundsReport {
    /// Inferred from calls on the host. `at_least_ns` assumes that the thread would have gone on at once without the
    /// pause: a wait for data or for another process that the pause only covered up is not seen.
    pub basis: Basis,
    /// Pauses of these processes; of two that overlap, the common part once.
    pub pauses: PauseTotal,
    /// The GPUs' work came later by at least so much, processes added.
    pub at_least_ns: u64,
    /// And by at most so much.
    pub at_most_ns: u64,
    /// The same by why; only rules that some pause fell under. They add up.
    pub rules: Vec<RuleBounds>,
    /// The same by process, the largest `at_most_ns` first. They add up.
    pub processes: Vec<ProcessBounds>,
}

/// Pauses of which the same is known.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RuleBounds {
    /// `gpu-was-empty`: a synchronising call had returned and nothing was launched until the pause ended: the pause
    /// was lost but for at most 20 us. `gpu-stayed-busy`: a synchronising call after it still waited for more than
    /// 20 us for what had been launched before, or the launching thread waited for the GPU all the while: nothing
    /// was lost. `gpu-found-empty`: that call returned at once, so the GPU ran empty at a moment that is not known.
    /// `no-gpu-work`: before the first launch, after the last, or at the interpreter's end: no work was delayed.
    /// `other-thread`: on a thread that launches nothing; lost at most from the last sign of a launching thread
    /// on, which needs the interpreter's lock. `not-known`: none of these; anything from nothing to the whole pause.
    pub rule: String,
    /// The pauses.
    pub pauses: PauseTotal,
    /// Lost at least.
    pub at_least_ns: u64,
    /// Lost at most.
    pub at_most_ns: u64,
}

/// One process.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProcessBounds {
    /// Index in `traces`.
    pub trace: usize,
    /// Process id on the host.
    pub pid: u32,
    /// Rank in a distributed job.
    pub rank: Option<u32>,
    /// Its pauses.
    pub pauses: PauseTotal,
    /// Lost at least.
    pub at_least_ns: u64,
    /// Lost at most.
    pub at_most_ns: u64,
    /// Why no pause can be told from another, where that is so: launches were not recorded, events were or
    /// may have been lost (a trace without its last line does not tell), or the process used several devices.
    pub limited_by: Option<String>,
}
