//! Allocations of a process: pressure, and allocation windows.

use super::FrameId;
use super::kind::{Phase, declare};
use bitcode::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// Allocation pressure of one process over one interval: signals that cost nothing to collect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct Pressure {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// Start of the interval, in ns of CLOCK_MONOTONIC.
    pub since_ns: u64,
    /// End of the interval, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub at_ns: u64,
    /// Collections of any generation that ended in it.
    #[serde(default)]
    pub collections: u64,
    /// Net containers: allocated minus freed, summed over those collections
    /// ([`Pause::young_count`](crate::Pause::young_count)).
    #[serde(default)]
    pub net_containers: u64,
    /// `gc.get_count()` at the start of the last collection; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<[u32; 3]>,
    /// Arenas (1 MiB; 256 KiB before 3.10) that the interpreter's allocator mapped; `None` where
    /// this was not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arenas_mapped: Option<u64>,
    /// Arenas that it unmapped in the interval; `None` where this was not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arenas_unmapped: Option<u64>,
    /// Resident memory of the process at the end of the interval, in bytes; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// The part of it that is shared with no other process, in bytes; for some forked processes, else `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_bytes: Option<u64>,
    /// The part of it in free blocks of glibc's main heap, in bytes: the program freed it, and `malloc_trim(0)` gives
    /// it back. `None` if it was not looked at, or is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_bytes: Option<u64>,
    /// CPU time that the threads of the process that collect have used until the end of the interval, since
    /// each was first seen, in ns; `None` if it was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// Time that they waited for a CPU until then, in ns: the kernel's `run_delay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_wait_ns: Option<u64>,
}

declare! {
    Pressure: Phase::Meta, "gctrace_pressure", "allocation pressure",
    pid: pid, at: at_ns;
    fn span_ns(&self) -> Option<(u64, u64)> {
        Some((self.since_ns, self.at_ns))
    }
    fn check(&self) -> Result<(), &'static str> {
        if self.since_ns > self.at_ns {
            return Err("an interval of allocation pressure ends before it starts");
        }
        Ok(())
    }
}

/// Allocations of one process from `since_ns` to `at_ns`: seen in short windows on its allocator,
/// or, where `exact` is set, counted within it. Written again, whole, from time to time; the last
/// one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct Allocations {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// From when on it was watched.
    pub since_ns: u64,
    /// When this was written, in ns of CLOCK_MONOTONIC: the end of the interval that it covers.
    #[serde(skip)]
    pub at_ns: u64,
    /// Every allocation of the domains MEM and OBJ was counted, in-process; there are then no windows, no sampling error,
    /// no stacks and no budget.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exact: bool,
    /// Number of allocation windows since `since_ns`; 0 if `exact`.
    pub windows: u64,
    /// Number of allocations in the windows, or of all.
    pub hits: u64,
    /// Bytes of the allocations of known size.
    pub bytes: u64,
    /// Largest size of each class in bytes (`None` for unknown sizes), and its allocations.
    pub classes: Vec<(Option<u64>, u64)>,
    /// Allocations per second of CPU time of the undisturbed program, where they could be
    /// estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_cpu_second: Option<u64>,
    /// Standard error of it, in millionths of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_ppm: Option<u64>,
    /// The basis of the estimate, or why there is none.
    pub basis: String,
    /// CPU time of the process since `since_ns`.
    pub cpu_ns: u64,
    /// Overhead of the probes in ns of that CPU time: hits times the cost of one.
    pub cost_ns: u64,
    /// Limit of that overhead (`--alloc-budget`), in millionths of the CPU time.
    pub budget_ppm: u64,
    /// Innermost frame of allocations that took a stack, one in 61, and how many of them.
    pub stacks: Vec<(FrameId, u64)>,
}

declare! {
    Allocations: Phase::Meta, "gctrace_allocations", "allocations",
    pid: pid, at: at_ns, spaced: Allocations, by: "--alloc";
    fn stacks(&self) -> Vec<FrameId> {
        self.stacks.iter().map(|(frame, _)| *frame).collect()
    }
}
