//! The parts of a report about performance counters, allocations and allocation pressure.

use super::{Basis, Location, PauseTotal};
use gctrace_event::Counter;
use schemars::JsonSchema;
use serde::Serialize;

/// Performance counters inside pauses and outside. Counters that were not recorded are absent.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct CountersReport {
    /// Basis of the figures outside pauses: inferred, as the whole process minus its pauses. Pauses
    /// without a value (`inside_pauses` < `pauses`) count as outside.
    pub basis: Basis,
    /// Number of pauses of the processes with counters.
    pub pauses: u64,
    /// One entry for each counter of any pause or process.
    pub counters: Vec<CounterReport>,
    /// Instructions per cycle inside pauses, over the pauses with both counters; `null` if there
    /// are none.
    pub inside_ipc: Option<f64>,
    /// Instructions per cycle outside pauses; `null` if unknown.
    pub outside_ipc: Option<f64>,
    /// Pauses whose per-CPU values were dropped, because the thread migrated to another CPU unseen
    /// or a reading was interrupted.
    pub migrated_pauses: u64,
    /// Processes whose totals are too low for the same reason.
    pub migrated_processes: u64,
    /// Pauses with values scaled because counters were multiplexed.
    pub scaled_pauses: u64,
    /// Processes with totals scaled because counters were multiplexed.
    pub scaled_processes: u64,
    /// Pauses that waited for a disk (`major-faults` above 0).
    pub major_fault_pauses: PauseTotal,
    /// Number of full collections with a known number of traversed objects.
    pub traversed_pauses: u64,
    /// Objects traversed in these collections: those left plus those freed. Inferred: a collection
    /// visits each at least once.
    pub traversed_objects: u64,
}

/// One performance counter. Values are counts; `task-clock` and `cpu-clock` are in ns.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CounterReport {
    /// Name of the counter in `perf list`.
    #[schemars(with = "String")]
    pub name: Counter,
    /// Sum over the pauses with a value.
    pub inside: u64,
    /// Number of pauses with a value.
    pub inside_pauses: u64,
    /// Totals of the processes minus `inside`, over the processes with both; `null` if there are
    /// none.
    pub outside: Option<u64>,
    /// Share of the pauses in the totals of these processes, 0 to 1; `null` if unknown.
    pub inside_ratio: Option<f64>,
    /// Value per 1,000 instructions inside pauses, over the pauses with both counters; `null` if
    /// there are none.
    pub inside_per_1000_instructions: Option<f64>,
    /// Value per 1,000 instructions outside pauses; `null` if unknown.
    pub outside_per_1000_instructions: Option<f64>,
    /// Value per second of CPU time inside pauses, over the pauses with both; `null` if there are
    /// none.
    pub inside_per_cpu_s: Option<f64>,
    /// Value per second of CPU time outside pauses (`task-clock`, all threads); `null` if unknown.
    pub outside_per_cpu_s: Option<f64>,
    /// Value per 1,000 traversed objects, over the full collections with both; `null` if there are
    /// none.
    pub per_1000_objects: Option<f64>,
}

/// Allocations of the interpreter (`--alloc`), estimated from allocation windows or counted
/// exactly.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AllocationsReport {
    /// Whether every allocation was counted, by the injected library. There are then no windows and
    /// no sampling error, and `cost_ratio` and `budget_ratio` have no meaning.
    pub exact: bool,
    /// Number of allocation windows opened; 0 if `exact`.
    pub windows: u64,
    /// Allocations in the windows, or all allocations if `exact`.
    pub allocations_seen: u64,
    /// Allocations per second of CPU time of the program without recording; `null` if there is no
    /// estimate (see `basis`).
    pub per_cpu_s: Option<f64>,
    /// Allocations per second of wall time; `null` if there is no estimate.
    pub per_s: Option<f64>,
    /// Bytes allocated per second of CPU time, from the mean of the known sizes; `null` if there is
    /// no estimate.
    pub bytes_per_cpu_s: Option<f64>,
    /// Standard error of the rates, as a share of them; `null` if unknown.
    pub relative_error: Option<f64>,
    /// What the estimate rests on, or why there is none, as text.
    pub basis: String,
    /// Overhead of the windows, as a share of the CPU time; `null` if it was not measured.
    pub cost_ratio: Option<f64>,
    /// Limit of that overhead (`--alloc-budget`), as a share of the CPU time.
    pub budget_ratio: f64,
    /// Shares by size: pymalloc's classes of 16 bytes up to 512 bytes, then powers of two.
    pub sizes: Vec<SizeClass>,
    /// The lines that allocate, most allocations first.
    pub lines: Vec<AllocatingLine>,
}

/// The share of one size class.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SizeClass {
    /// Largest size of the class, in bytes; `null` for allocations of unknown size.
    pub up_to_bytes: Option<u64>,
    /// Share of all allocations seen, 0 to 1.
    pub share: f64,
}

/// A Python line that allocates, with its share of the sampled allocations.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AllocatingLine {
    /// The innermost line outside the standard library and installed packages.
    pub location: Location,
    /// Number of sampled allocations with this line.
    pub samples: u64,
    /// Share of all sampled allocations, 0 to 1.
    pub share: f64,
    /// Standard error of `share`, assuming independent samples.
    pub standard_error: f64,
}

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
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
