//! How much less memory a process uses after a collection: memory that garbage owns (buffers, arrays, tensors) is in no
//! object that the collector knows.
//!
//! glibc counts memory in use; a part of it is not given back to the kernel when it is freed. Memory that others map
//! themselves is in the resident memory alone.

use super::garbage::Budget;
use crate::apply::files::rss_bytes;
use crate::apply::memory::{MallocUse, malloc_use};
use crate::confined::is_confined;
use crate::process_ring::{options, process_cpu_ns, thread_cpu_ns};
use crate::rights;
use std::sync::OnceLock;

/// Share of the CPU time for it, in millionths. At the rate of collections that CPython's default causes in a program
/// that only allocates, about one in ten is measured.
const BUDGET_PPM: u32 = 2_000;
/// Time beside it, in ns: some hundred collections of a short program are measured, too.
const PREPAID_NS: u64 = 2_000_000;
/// Smaller changes of mapped memory outside of malloc count as none, in bytes: the kernel counts resident memory per
/// CPU, up to 32 pages or two per CPU ahead of the sum (`percpu_counter_batch`).
const LEAST_MAPPED: i64 = 1 << 20;

/// Memory of the process at one time, in bytes.
#[derive(Clone, Copy)]
struct HeapUse {
    /// Memory of malloc: in use, and from the kernel.
    used: i64,
    obtained: i64,
    resident: Option<i64>,
}

impl HeapUse {
    fn now() -> Option<Self> {
        let MallocUse { used, obtained } = malloc_use()?;
        let signed = |bytes| i64::try_from(bytes).ok();
        Some(Self { used: signed(used)?, obtained: signed(obtained)?, resident: resident_bytes() })
    }

    /// Decrease of the memory in use.
    fn freed_until(self, after: Self) -> u64 {
        let of_malloc = (self.used - after.used).max(0);
        let mapped = if let (Some(before), Some(now)) = (self.resident, after.resident) {
            let by_malloc = (self.obtained - after.obtained).max(0);
            before - now - by_malloc
        } else {
            0
        };
        let mapped = if mapped < LEAST_MAPPED { 0 } else { mapped };
        of_malloc.saturating_add(mapped).unsigned_abs()
    }
}

/// Resident memory of this process; `None` if it may not open files any more, or is unknown.
fn resident_bytes() -> Option<i64> {
    static IS_CONFINED: OnceLock<bool> = OnceLock::new();
    let filters = if let Some(options) = options() { options.filters } else { 0 };
    if rights::are_given_up() || *IS_CONFINED.get_or_init(|| is_confined(filters)) {
        return None;
    }
    let bytes = rss_bytes()?;
    i64::try_from(bytes).ok()
}

/// Measures collections of one interpreter, as many as the budget allows.
pub(crate) struct MemoryMeter {
    budget: Budget,
    /// Time of the last measurement, in ns.
    last_ns: u64,
    before: Option<HeapUse>,
}

impl MemoryMeter {
    pub(super) fn new() -> Self {
        Self { budget: Budget::new(BUDGET_PPM, PREPAID_NS), last_ns: 0, before: None }
    }

    /// A collection begins. The lock is held.
    pub(super) fn begin(&mut self, is_oldest: bool) {
        let is_due = self.budget.is_due(is_oldest);
        self.before = None;
        if is_due && self.budget.affords(2 * self.last_ns, process_cpu_ns) {
            self.before = self.timed();
        }
    }

    /// It ended: by how much memory decreased, in bytes; `None` if it was not measured.
    pub(super) fn end(&mut self) -> Option<u64> {
        let before = self.before.take()?;
        Some(before.freed_until(self.timed()?))
    }

    /// Timed in CPU time, as the budget is a share of it: next to other programs a look takes longer by the clock.
    fn timed(&mut self) -> Option<HeapUse> {
        let start_ns = thread_cpu_ns();
        let now = HeapUse::now();
        self.last_ns = gctrace_units::duration_ns(start_ns, thread_cpu_ns());
        self.budget.spend(self.last_ns, process_cpu_ns);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(used: i64, obtained: i64, resident: i64) -> HeapUse {
        let [used, obtained, resident] = [used, obtained, resident].map(|mib| mib << 20);
        HeapUse { used, obtained, resident: Some(resident) }
    }

    #[test]
    fn what_malloc_keeps_and_what_it_does_not_know_are_freed() {
        let freed = |before: HeapUse, after| before.freed_until(after) >> 20;
        // Kept for later blocks; given back; mapped by others; both.
        assert_eq!(freed(memory(100, 110, 150), memory(60, 110, 150)), 40);
        assert_eq!(freed(memory(100, 110, 150), memory(60, 70, 110)), 40);
        assert_eq!(freed(memory(10, 20, 150), memory(10, 20, 120)), 30);
        assert_eq!(freed(memory(100, 110, 250), memory(60, 70, 180)), 70);
        // Never touched; more than before; within the error of the kernel's count.
        assert_eq!(freed(memory(100, 110, 50), memory(60, 70, 40)), 40);
        assert_eq!(freed(memory(60, 70, 100), memory(100, 110, 150)), 0);
        let mut after = memory(10, 20, 150);
        after.resident = after.resident.map(|bytes| bytes - LEAST_MAPPED + 1);
        assert_eq!(memory(10, 20, 150).freed_until(after), 0);
        after.resident = None;
        assert_eq!(memory(50, 60, 150).freed_until(after) >> 20, 40);
    }
}
