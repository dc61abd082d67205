//! The part of a report about performance counters.

use super::Basis;
use super::PauseTotal;
use schemars::JsonSchema;
use serde::Serialize;

/// Performance counters inside pauses against those outside. What was not counted is absent.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CountersReport {
    /// Of what is outside: inferred, as the whole process less its pauses. Pauses without a value
    /// (`inside_pauses` is less than `pauses`) count as outside.
    pub basis: Basis,
    /// Pauses of the processes concerned.
    pub pauses: u64,
    /// Every counter that any pause or process has.
    pub counters: Vec<CounterReport>,
    /// Instructions per cycle in pauses that have both.
    pub inside_ipc: Option<f64>,
    /// Instructions per cycle outside.
    pub outside_ipc: Option<f64>,
    /// Pauses without per-CPU counters: these were dropped rather than shown wrong, because the
    /// thread came to a CPU unseen or a reading was interrupted.
    pub migrated_pauses: u64,
    /// Processes with totals that are too low, for the same reason.
    pub migrated_processes: u64,
    /// Pauses with values scaled up because counters had to take turns.
    pub scaled_pauses: u64,
    /// Processes with totals scaled up, because counters had to take turns.
    pub scaled_processes: u64,
    /// Pauses that waited for a disk (`major-faults`).
    pub major_fault_pauses: PauseTotal,
    /// Full collections whose number of examined objects is known.
    pub examined_pauses: u64,
    /// Objects examined in them: those left and those freed. Inferred: a collection looks at each
    /// at least once.
    pub examined_objects: u64,
}

/// One counter. Values are counts, those of `task-clock` and `cpu-clock` nanoseconds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CounterReport {
    /// Its name in `perf list`.
    pub name: String,
    /// Sum over the pauses that have it.
    pub inside: u64,
    /// Pauses that have it.
    pub inside_pauses: u64,
    /// Whole processes less `inside`, of the processes that tell both.
    pub outside: Option<u64>,
    /// Share of pauses in the whole, of the processes that tell both.
    pub inside_ratio: Option<f64>,
    /// Per thousand instructions inside, in pauses that have both.
    pub inside_per_1000_instructions: Option<f64>,
    /// Per thousand instructions outside.
    pub outside_per_1000_instructions: Option<f64>,
    /// Per second on a processor inside, in pauses that tell both.
    pub inside_per_cpu_s: Option<f64>,
    /// Per second on a processor outside (`task-clock`, all threads).
    pub outside_per_cpu_s: Option<f64>,
    /// Per thousand objects examined, in full collections that tell both.
    pub per_1000_objects: Option<f64>,
}
