//! The part of a report about allocation pressure.

use super::Basis;
use schemars::JsonSchema;
use serde::Serialize;

/// How fast container objects and memory were asked for.
///
/// Of several processes together: sums, and rates per second of one process's time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PressureReport {
    /// Measured where the trace has figures of its own for intervals; inferred where they are
    /// added up from the pauses, of which some may be missing.
    pub basis: Basis,
    /// Time over which the container objects were counted.
    pub covered_ns: u64,
    /// Container objects (those that the collector tracks) allocated less those freed between
    /// collections, added over all collections. Objects that live shorter than the time between
    /// two collections are in neither.
    pub net_containers: u64,
    /// `net_containers` per second of `covered_ns`.
    pub net_containers_per_s: Option<f64>,
    /// Memory that the interpreter's allocator took from the system, where recorded.
    pub arenas: Option<ArenasReport>,
}

/// Arenas: the blocks in which the interpreter's allocator for small objects asks the system for
/// memory. Always measured.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ArenasReport {
    /// Time over which they were counted.
    pub covered_ns: u64,
    /// Mapped.
    pub mapped: u64,
    /// Unmapped.
    pub unmapped: u64,
    /// Mapped per second.
    pub mapped_per_s: Option<f64>,
    /// Unmapped per second.
    pub unmapped_per_s: Option<f64>,
    /// `mapped` less `unmapped`.
    pub balance: i64,
    /// `balance` in bytes: an arena is 1 MiB from CPython 3.10 on and 256 KiB before
    /// (`ARENA_BITS` and `ARENA_SIZE` in `obmalloc`). Absent where the version is not known.
    pub balance_bytes: Option<i64>,
    /// Largest balance at the end of an interval, at least 0: a process gives back what it has when it ends. Of several
    /// processes: their largest ones added, which need not have been at the same time.
    pub peak_balance: i64,
    /// `peak_balance` in bytes.
    pub peak_balance_bytes: Option<i64>,
}
