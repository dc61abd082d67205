//! CPU performance counters: finds and opens the counters of this machine.
//!
//! One event per CPU counts everything that runs there, in user space and in the kernel, like
//! `perf stat -a`. Attribution to threads happens elsewhere: the BPF programs read the counters
//! whenever a recorded thread is scheduled in or out. Counters that the kernel keeps per thread
//! anyway (page faults, context switches, ...) need no event and do not appear here.

mod error;

pub use error::CounterError;

use gctrace_event::Counter;
use perf_event::Builder;
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Software};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::{fs, io};

/// Where the kernel lists event sources (Documentation/ABI/testing/sysfs-bus-event_source-devices).
const SOURCES: &str = "/sys/bus/event_source/devices";

/// Names of the CPU's own PMU: on most machines, on Intel's with two kinds of cores, on Arm's by
/// device tree and by ACPI.
const UNITS: [&str; 5] = ["cpu", "cpu_core", "cpu_atom", "armv8_pmuv3", "armv8_pmuv3_0"];

/// An open, running counter of one CPU. Dropping it stops the counting, unless another descriptor
/// refers to it.
#[derive(Debug)]
pub struct PerfEvent(perf_event::Counter);

impl PerfEvent {
    /// Its file descriptor, for a BPF map of perf events.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the event owns its descriptor and lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.0.as_raw_fd()) }
    }
}

/// Whether a counter is per CPU rather than per thread, and so needs [`open`].
pub fn is_per_cpu(counter: Counter) -> bool {
    builder(counter).is_some()
}

/// Opens a counter on one CPU and starts it.
///
/// # Errors
/// Why this machine cannot count it.
pub fn open(counter: Counter, cpu: u32) -> Result<PerfEvent, CounterError> {
    let mut builder = builder(counter).ok_or(CounterError::PerThread)?;
    builder
        .any_pid()
        .one_cpu(cpu as usize)
        .exclude_kernel(false)
        .enabled(true)
        .build()
        .map(PerfEvent)
        .map_err(|error| CounterError::new(&error, cpu, has_unit()))
}

/// Opens a clock of one CPU that ticks `hertz` times a second while the CPU is not idle.
///
/// # Errors
/// Why there is none.
pub fn open_clock(cpu: u32, hertz: u32) -> Result<OwnedFd, CounterError> {
    let mut builder = Builder::new(Software::CPU_CLOCK);
    let opened = builder
        .any_pid()
        .one_cpu(cpu as usize)
        .exclude_kernel(false)
        .exclude_hv(false)
        .exclude_idle(true)
        .sample_frequency(u64::from(hertz))
        .enabled(true)
        .build();
    let other = |error: io::Error| CounterError::Other { cpu, message: error.to_string() };
    let event = opened.map(PerfEvent).map_err(|error| CounterError::new(&error, cpu, true))?;
    event.descriptor().try_clone_to_owned().map_err(other)
}

/// Checks that every one of these CPUs can count it: opens and closes the counter on each.
///
/// # Errors
/// The error of the first CPU that cannot.
pub fn check(counter: Counter, cpus: &[u32]) -> Result<(), CounterError> {
    cpus.iter().try_for_each(|cpu| open(counter, *cpu).map(drop))
}

/// The CPUs that are online.
///
/// # Errors
/// [`CounterError::Cpus`] if `/sys` does not list them.
pub fn online_cpus() -> Result<Vec<u32>, CounterError> {
    let path = "/sys/devices/system/cpu/online";
    let text = fs::read_to_string(path).map_err(|error| CounterError::Cpus(error.to_string()))?;
    cpu_list(text.trim()).ok_or_else(|| CounterError::Cpus(format!("{path} contains {text:?}")))
}

/// Whether the kernel exposes a PMU of the CPU. Virtual machines often have none.
pub fn has_unit() -> bool {
    UNITS.iter().any(|unit| Path::new(SOURCES).join(unit).exists())
}

/// Parses `0-3,8,10-11` (Documentation/admin-guide/cputopology.rst). CPU numbers are below the
/// kernel's build-time maximum (`NR_CPUS`, at most 8192).
fn cpu_list(text: &str) -> Option<Vec<u32>> {
    const MOST: u32 = 8192;
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The generic hardware events: the kernel maps them to the CPU's.
fn builder(counter: Counter) -> Option<Builder<'static>> {
    let load_misses = |which| Cache { which, operation: CacheOp::READ, result: CacheResult::MISS };
    Some(match counter {
        Counter::Cycles => Builder::new(Hardware::CPU_CYCLES),
        Counter::Instructions => Builder::new(Hardware::INSTRUCTIONS),
        Counter::CacheMisses => Builder::new(Hardware::CACHE_MISSES),
        Counter::BranchMisses => Builder::new(Hardware::BRANCH_MISSES),
        Counter::LlcLoadMisses => Builder::new(load_misses(CacheId::LL)),
        Counter::DtlbLoadMisses => Builder::new(load_misses(CacheId::DTLB)),
        Counter::CpuClock => Builder::new(Software::CPU_CLOCK),
        Counter::PageFaults
        | Counter::MajorFaults
        | Counter::ContextSwitches
        | Counter::CpuMigrations
        | Counter::TaskClock => return None,
    })
}

#[cfg(test)]
mod tests;
