//! One process.

use super::CollectionCounts;
use super::GENERATIONS;
use super::PauseFigures;
use super::ProcessGpu;
use schemars::JsonSchema;
use serde::Serialize;

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ProcessFigures {
    /// Process id on the host.
    pub pid: u32,
    /// In its own pid namespace, where that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_pid: Option<u32>,
    /// Parent on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Rank in a distributed job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Command line, words joined by spaces.
    pub command: String,
    /// For example `3.13.0t`; empty where not known.
    pub interpreter: String,
    /// From when on its pauses are complete.
    pub since_ns: u64,
    /// How it ended, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<ProcessEnd>,
    /// Collections since `since_ns`.
    pub collections: CollectionCounts,
    /// Pauses that ended in the interval, by generation.
    pub interval_pauses: [u64; GENERATIONS],
    /// Time of the interval in pauses. Where interpreters or threads collect at the same time their pauses
    /// are added.
    pub interval_pause_ns: u64,
    /// Time of the interval in which at least one pause ran: never more than the interval.
    pub interval_paused_ns: u64,
    /// Time in pauses (added) of each of the last [`crate::live::HISTORY_SECONDS`] seconds, oldest first; the last ends
    /// with the interval. Shorter where the process is younger.
    pub history_ns: Vec<u64>,
    /// Time since `since_ns` in which at least one pause ran.
    pub paused_ns: u64,
    /// `paused_ns` in millionths of the wall time since `since_ns`.
    pub share_ppm: u64,
    /// The last pause: of those known the one that ended last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<PauseFigures>,
    /// The longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<PauseFigures>,
    /// Objects that the collector tracks, as last told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap_objects: Option<HeapObjects>,
    /// `gc.isenabled()`, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// `gc.get_threshold()`, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<[i32; 3]>,
    /// What it allocates, as last told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<PressureFigures>,
    /// Resident memory in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// GPUs that it uses.
    pub gpus: Vec<ProcessGpu>,
}

/// The end of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProcessEnd {
    /// When.
    pub at_ns: u64,
    /// Exit code, if it ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The signal that killed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// How many objects the collector tracks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HeapObjects {
    /// How many.
    pub count: u64,
    /// All of them; otherwise those of the oldest generation only.
    pub all: bool,
    /// Time of the pause that told it.
    pub at_ns: u64,
}

/// What a process allocates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PressureFigures {
    /// Container objects allocated less those freed, per second: inferred from the collections. Absent where
    /// these do not tell it (`--mode inject`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net_containers_per_second: Option<u64>,
    /// Bytes of arenas mapped less those unmapped, per second, where that is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arena_bytes_per_second: Option<i64>,
    /// Allocations per second of the program's CPU time, where `--alloc` counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocations_per_cpu_second: Option<u64>,
    /// End of the stretch that it is about.
    pub at_ns: u64,
}
