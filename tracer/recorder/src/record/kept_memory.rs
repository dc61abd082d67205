//! Memory that programs freed and the C libraries of recorded processes keep.
//!
//! A look goes through the chunks of a heap, up to some 50 ms: all looks together take the CPU for at most one fiftieth
//! of the time, and only large processes are looked at.

use super::output::memory_interval_ns;
use crate::clock;
use gctrace_probes::malloc;
use gctrace_units::{after, duration_ns, times};
use std::collections::HashMap;

/// Processes with at least this much resident memory are looked at, in bytes.
const LARGE: u64 = 48 << 20;
/// Looks take this part of the time at most.
const PART: u64 = 50;

/// The processes to look at, and the times of the looks.
#[derive(Debug, Default)]
pub(crate) struct KeptMemory {
    /// By pid: the first look and the next, in ns.
    looks: HashMap<u32, (u64, u64)>,
    /// No look before, in ns.
    rests_until_ns: u64,
}

impl KeptMemory {
    /// Memory that its C library keeps, in bytes, if it is time to look. `resident_bytes`: as last read.
    pub(crate) fn look(
        &mut self,
        pid: u32,
        resident_bytes: Option<u64>,
        now_ns: u64,
    ) -> Option<u64> {
        let is_large = matches!(resident_bytes, Some(LARGE..));
        if !is_large || now_ns < self.rests_until_ns {
            return None;
        }
        let (first_ns, next_ns) = self.looks.entry(pid).or_insert((now_ns, now_ns));
        if now_ns < *next_ns {
            return None;
        }
        *next_ns = after(now_ns, memory_interval_ns(duration_ns(*first_ns, now_ns)));
        let start_ns = clock::thread_cpu_ns();
        let kept = malloc::kept_bytes(pid);
        let took_ns = duration_ns(start_ns, clock::thread_cpu_ns());
        self.rests_until_ns = after(now_ns, times(took_ns, PART));
        kept
    }
}
