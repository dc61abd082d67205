//! `--alloc`, counted in-process: each allocation, by size class.

use crate::clock;
use gctrace_event::Allocations;
use gctrace_ring::{RingConsumer, largest_of_class};
use gctrace_units::{beyond, sum};
use std::time::{Duration, Instant};

const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Last written values of the allocation counters that a process keeps in its ring's memory.
#[derive(Debug)]
pub(super) struct CountedAllocations {
    pid: u32,
    written: Option<Instant>,
    /// CPU time when counting started, and as last read: an exited process has none.
    cpu_ns: Option<(u64, u64)>,
}

impl CountedAllocations {
    /// Starts to measure the process's CPU time: it turns the counts into rates.
    pub(super) fn new(pid: u32) -> Self {
        let cpu_ns = cpu_ns(pid).map(|now| (now, now));
        Self { pid, written: None, cpu_ns }
    }

    /// The counts so far, if due (`last`: in any case) and if anything is counted at all.
    pub(super) fn look(&mut self, ring: &RingConsumer, last: bool) -> Option<Allocations> {
        let is_due = self.written.is_none_or(|written| written.elapsed() >= WRITE_EVERY);
        if !is_due && !last {
            return None;
        }
        let (since_ns, classes, _) = ring.allocations()?;
        self.written = Some(Instant::now());
        if let (Some((_, latest)), Some(now)) = (&mut self.cpu_ns, cpu_ns(self.pid)) {
            *latest = now;
        }
        let cpu_ns = if let Some((before, now)) = self.cpu_ns { beyond(now, before) } else { 0 };
        let sum = |of: fn(&gctrace_ring::AllocationTotals) -> u64| sum(classes.iter().map(of));
        let hits = sum(|class| class.count);
        let counts = classes.iter().enumerate();
        Some(Allocations {
            pid: self.pid,
            since_ns,
            at_ns: clock::monotonic_ns(),
            exact: true,
            hits,
            bytes: sum(|class| class.bytes),
            classes: counts
                .map(|(class, totals)| (largest_of_class(class), totals.count))
                .filter(|(_, count)| *count > 0)
                .collect(),
            per_cpu_second: per_second(hits, cpu_ns),
            basis: "each was counted in-process".to_owned(),
            cpu_ns,
            ..Allocations::default()
        })
    }
}

/// `None` for too short a time: the clock is updated by the timer tick (1 - 10 ms) only.
fn per_second(count: u64, cpu_ns: u64) -> Option<u64> {
    const SHORTEST_NS: u64 = 100_000_000;
    let rate = u128::from(count) * 1_000_000_000 / u128::from(cpu_ns.max(1));
    if cpu_ns >= SHORTEST_NS { u64::try_from(rate).ok() } else { None }
}

/// CPU time of a whole process, from its CPU clock (clock_getcpuclockid(3)).
fn cpu_ns(pid: u32) -> Option<u64> {
    let clock = nix::time::clock_getcpuclockid(nix::unistd::Pid::from_raw(pid.cast_signed()));
    let time = Duration::from(nix::time::clock_gettime(clock.ok()?).ok()?);
    u64::try_from(time.as_nanos()).ok()
}
