//! The part of a report about what a process allocated.

use super::Location;
use schemars::JsonSchema;
use serde::Serialize;

/// Allocations of the interpreter, estimated from short windows or counted one by one.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AllocationsReport {
    /// Each was counted, within the process: there are no windows and no errors, and `cost_ratio` and
    /// `budget_ratio` mean nothing.
    pub exact: bool,
    /// Windows opened.
    pub windows: u64,
    /// Allocations in them; where each was counted, all.
    pub allocations_seen: u64,
    /// Allocations per second of CPU time of the undisturbed program; absent where nothing tells.
    pub per_cpu_s: Option<f64>,
    /// Allocations per second.
    pub per_s: Option<f64>,
    /// Bytes allocated per second of CPU time, by the mean of the sizes that are known.
    pub bytes_per_cpu_s: Option<f64>,
    /// Standard error of the rates, as a part of them.
    pub relative_error: Option<f64>,
    /// What the estimate rests on, or why there is none.
    pub basis: String,
    /// What the windows cost, as a part of the CPU time.
    pub cost_ratio: Option<f64>,
    /// What they were allowed to.
    pub budget_ratio: f64,
    /// By size: pymalloc's classes of 16 bytes up to 512, then powers of two.
    pub sizes: Vec<SizeClass>,
    /// The lines that allocate, most first.
    pub lines: Vec<AllocatingLine>,
}

/// Allocations of some sizes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SizeClass {
    /// The largest of them in bytes; absent for those whose size is not known.
    pub up_to_bytes: Option<u64>,
    /// Part of all allocations.
    pub share: f64,
}

/// A line that allocates.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AllocatingLine {
    /// The innermost line that is no library's.
    pub location: Location,
    /// Allocations that were traced to it.
    pub samples: u64,
    /// Part of all allocations that were traced.
    pub share: f64,
    /// Standard error of `share`.
    pub standard_error: f64,
}
