//! How long a program will be stopped, at most: what is done then is rehearsed while it runs.

use super::RunningHeap;
use super::stopped::{COPY_LIMIT, be_urgent};
use crate::limits::Exceeded;
use crate::regions::Regions;
use crate::tables::copy_tables;
use crate::{HeapError, collector};
use nix::time::ClockId;
use std::time::{Duration, Instant};

/// How much longer it may take than in the rehearsal.
const MARGIN: f64 = 1.5;
/// What stopping itself takes.
const STOP_COST: Duration = Duration::from_millis(5);
/// How long a thread that becomes runnable waits for each that is runnable already: the time slice
/// (`base_slice_ns`, kernel/sched/fair.c, 6.6 and later: 2.8 ms with 2 to 3 CPUs, 3.5 with 4 to 7).
const SLICE: Duration = Duration::from_millis(4);

impl RunningHeap {
    /// How long the program will be stopped, at most (predicted): from a rehearsal while it runs, and
    /// from how many threads of this machine want to run. That includes the time until its threads run
    /// again.
    ///
    /// # Errors
    /// The process is gone, or it would be stopped for longer than it may be.
    pub fn longest_stop(&mut self) -> Result<Duration, HeapError> {
        let (cost, may_be_urgent) = std::thread::scope(|scope| -> Result<_, HeapError> {
            let rehearse = || (self.rehearse(), be_urgent());
            let thread = std::thread::Builder::new()
                .spawn_scoped(scope, rehearse)
                .map_err(|source| HeapError::Thread { source })?;
            match thread.join() {
                Ok(done) => Ok(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?;
        Ok(longest(cost?, waiting_threads(), may_be_urgent))
    }

    /// Does what is done while the program is stopped, and returns the CPU time of that.
    fn rehearse(&mut self) -> Result<Duration, HeapError> {
        let Some(state) = self.state else {
            return Ok(Duration::ZERO);
        };
        let before = cpu_time();
        // Time on the CPU counts, of which there may be little.
        let patience = Instant::now() + COPY_LIMIT * 8;
        self.image.reopen(self.pid, Regions::of(self.pid)?, Some(patience));
        self.image.refresh();
        let known = self.image.blocks();
        let tracked = collector::tracked_roughly(&mut self.image, &self.layout, &state);
        copy_tables(&mut self.image, &self.layout, &tracked, known);
        let cost = cpu_time().saturating_sub(before);
        let is_late = cost > COPY_LIMIT;
        let exceeded = self.image.exceeded();
        self.within_limits(exceeded.or(is_late.then_some(Exceeded::Time)))?;
        Ok(cost)
    }
}

/// `waiting`: threads that want to run and cannot, for each CPU.
fn longest(cost: Duration, waiting: f64, is_urgent: bool) -> Duration {
    let share = if is_urgent { 1.0 } else { 1.0 + waiting };
    STOP_COST + cost.mul_f64(MARGIN * share) + SLICE.mul_f64(2.0 * waiting)
}

/// Threads that are runnable, for each CPU, in addition to one: now, or on average over the last
/// minute if that is more (proc_loadavg(5)).
fn waiting_threads() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut fields = text.split_ascii_whitespace();
    let average: f64 = fields.next().and_then(|field| field.parse().ok()).unwrap_or(0.0);
    let now = fields.nth(2).and_then(|field| field.split('/').next()?.parse().ok());
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (average.max(now.unwrap_or(0.0)) / cpus as f64 - 1.0).max(0.0)
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    nix::time::clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_threads_make_a_stop_longer() {
        let cost = Duration::from_millis(100);
        let idle = longest(cost, 0.0, true);
        assert_eq!(idle, Duration::from_millis(155));
        assert_eq!(longest(cost, 0.0, false), idle);
        assert_eq!(longest(cost, 5.0, true), Duration::from_millis(195));
        assert_eq!(longest(cost, 5.0, false), Duration::from_millis(945));
        assert!(waiting_threads() >= 0.0);
    }
}
