//! Figures of one process.

use super::{
    CollectionCounts, FreezeFigures, GENERATIONS, GarbageFigures, PauseFigures, ProcessGpu,
    TrendFigures,
};
use schemars::JsonSchema;
use serde::Serialize;

/// One process that runs Python: what it is, its pauses, its settings and its memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ProcessFigures {
    /// Process id on the host; another process may get it after this one ended.
    pub pid: u32,
    /// Process id in its own pid namespace; absent if it is the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_pid: Option<u32>,
    /// Process id of the parent on the host; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Rank in a distributed job; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Command line, arguments separated by spaces.
    pub command: String,
    /// Version of CPython, for example `3.13.0t`; empty if unknown.
    pub interpreter: String,
    /// Time from which its pauses are complete, in ns.
    pub since_ns: u64,
    /// How it ended; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<ProcessEnd>,
    /// Counts and times of its collections since `since_ns`, by generation and reason.
    pub collections: CollectionCounts,
    /// Pauses that ended in the interval, by generation (0, 1, 2, unknown).
    pub interval_pauses: [u64; GENERATIONS],
    /// Pause time in the interval, in ns; pauses of interpreters or threads that collect at the
    /// same time are summed.
    pub interval_pause_ns: u64,
    /// Time of the interval in which at least one pause ran, in ns; at most the interval.
    pub interval_paused_ns: u64,
    /// Pause time (summed) of each of the last 60 seconds, in ns, oldest first; the last second
    /// ends with the interval. Fewer entries if the process is younger.
    pub history_ns: Vec<u64>,
    /// Time since `since_ns` in which at least one pause ran, in ns.
    pub paused_ns: u64,
    /// `paused_ns` in millionths of the wall time since `since_ns`.
    pub share_ppm: u64,
    /// The pause that ended last; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<PauseFigures>,
    /// The longest pause; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<PauseFigures>,
    /// Number of containers, as last reported by a collection; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap_objects: Option<HeapObjects>,
    /// What its collections free, by type; absent if none was examined (`--garbage`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub garbage: Option<GarbageFigures>,
    /// How its heap grows; absent for fewer than five full collections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap_trend: Option<TrendFigures>,
    /// What is still freed after its heap was frozen; absent unless a freeze was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze: Option<FreezeFigures>,
    /// Whether automatic collection is enabled (`gc.isenabled()`), as last recorded; absent if
    /// unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Thresholds of generations 0, 1 and 2 (`gc.get_threshold()`), as last recorded; absent if
    /// unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<[i32; 3]>,
    /// Its latest allocation pressure; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<PressureFigures>,
    /// Resident memory, in bytes; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// GPUs that the process uses; empty if none or unknown.
    pub gpus: Vec<ProcessGpu>,
}

/// When a process ended, and with which exit code or signal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProcessEnd {
    /// Time of the end, in ns.
    pub at_ns: u64,
    /// Exit code; absent if a signal killed it or if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Signal that killed it; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// Number of containers (objects that the collector tracks).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HeapObjects {
    /// Number of containers after that collection, in the part of the heap that `all` states.
    pub count: u64,
    /// Whether `count` covers the whole heap; otherwise only the oldest generation.
    pub all: bool,
    /// Time of the pause that reported it, in ns.
    pub at_ns: u64,
}

/// How fast a process allocates, by the latest records of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PressureFigures {
    /// Net containers per second: containers allocated minus those freed, inferred from the
    /// collections. Absent if these do not report it (`--mode inject`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net_containers_per_second: Option<u64>,
    /// Bytes of arenas mapped minus those unmapped, per second; absent if they are not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arena_bytes_per_second: Option<i64>,
    /// Allocations per second of the program's CPU time; absent without `--alloc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocations_per_cpu_second: Option<u64>,
    /// End of the interval that these figures cover, in ns.
    pub at_ns: u64,
}
