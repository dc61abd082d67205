//! The part of a report about performance counters.

use super::{Basis, PauseTotal};
use gctrace_event::Counter;
use schemars::JsonSchema;
use serde::Serialize;

/// Performance counters inside pauses and outside. Counters that were not recorded are absent.
#[derive(Clone, Debug, Serialize, JsonSchema)]
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
