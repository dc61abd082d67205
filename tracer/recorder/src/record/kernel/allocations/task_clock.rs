//! CPU time of a process to the nanosecond.
//!
//! The CPU clocks of other processes are updated by the timer tick only; the software counter
//! task-clock is exact at each reading.

use gctrace_probes::proc_status;
use perf_event::events::Software;
use perf_event::{Builder, Counter};
use std::collections::HashMap;

/// Maximum number of threads with counted time.
const MAX_THREADS: usize = 256;

/// The task clocks of all threads of a process.
pub(crate) struct TaskClock {
    pid: u32,
    threads: HashMap<u32, Counter>,
}

impl TaskClock {
    pub(crate) fn new(pid: u32) -> Self {
        let mut clock = Self { pid, threads: HashMap::new() };
        clock.add_threads();
        clock
    }

    /// Counts threads that are new, too.
    pub(crate) fn add_threads(&mut self) {
        for tid in proc_status::threads(self.pid).into_iter().flatten() {
            if self.threads.len() < MAX_THREADS && !self.threads.contains_key(&tid) {
                self.threads.extend(open(tid).map(|counter| (tid, counter)));
            }
        }
    }

    /// Nanoseconds of CPU time since the threads were first counted.
    pub(crate) fn now_ns(&mut self) -> u64 {
        self.threads.values_mut().filter_map(|counter| counter.read().ok()).sum()
    }
}

fn open(tid: u32) -> Option<Counter> {
    let mut counter =
        Builder::new(Software::TASK_CLOCK).observe_pid(tid.cast_signed()).any_cpu().build().ok()?;
    counter.enable().ok()?;
    Some(counter)
}
