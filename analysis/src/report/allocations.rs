//! The part of a report about allocations.

use super::Location;
use schemars::JsonSchema;
use serde::Serialize;

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
