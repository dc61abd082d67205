//! The part of a report about allocation pressure.

use super::Basis;
use schemars::JsonSchema;
use serde::Serialize;

/// Allocation pressure: how fast containers are allocated and memory is taken from the system.
///
/// Over several processes: counts are summed, and rates are per second of one process's time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PressureReport {
    /// Measured if the trace contains counts over intervals; inferred if they are summed from the
    /// pauses, of which some may be missing.
    pub basis: Basis,
    /// Time over which containers were counted, in ns.
    pub covered_ns: u64,
    /// Net containers: containers (objects that the collector tracks) allocated minus those freed
    /// between collections, summed over all collections. Objects allocated and freed between two
    /// collections cancel out.
    pub net_containers: u64,
    /// `net_containers` per second of `covered_ns`; `null` if nothing was covered.
    pub net_containers_per_s: Option<f64>,
    /// Arenas mapped and unmapped; `null` if they were not recorded.
    pub arenas: Option<ArenasReport>,
}

/// Arenas: the blocks that pymalloc maps from the system. Always measured.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ArenasReport {
    /// Time over which arenas were counted, in ns.
    pub covered_ns: u64,
    /// Number of arenas mapped during the covered time.
    pub mapped: u64,
    /// Number of arenas unmapped during the covered time.
    pub unmapped: u64,
    /// Arenas mapped per second; `null` if nothing was covered.
    pub mapped_per_s: Option<f64>,
    /// Arenas unmapped per second; `null` if nothing was covered.
    pub unmapped_per_s: Option<f64>,
    /// `mapped` minus `unmapped`; negative if more were unmapped.
    pub balance: i64,
    /// `balance` in bytes: an arena is 1 MiB, and 256 KiB before CPython 3.10 (`ARENA_BITS` and
    /// `ARENA_SIZE` in `obmalloc`). `null` if the version is unknown.
    pub balance_bytes: Option<i64>,
    /// Largest balance at the end of an interval, at least 0 (a process unmaps its arenas when it
    /// ends). Over several processes: the sum of their peaks, which need not coincide.
    pub peak_balance: i64,
    /// `peak_balance` in bytes; `null` if the version is unknown.
    pub peak_balance_bytes: Option<i64>,
}
