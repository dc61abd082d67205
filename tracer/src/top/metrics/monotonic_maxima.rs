//! Keeps GPU counters from decreasing during the life of a process.
//!
//! GPU times arrive late: an interval first counted as idle may turn out to have been busy, which
//! makes the counter slightly smaller. Prometheus would take that for a counter reset and add the
//! whole value again. Collections are counted only when they have ended, and never revised.

use gctrace_analysis::live::{GpuBusy, Snapshot};
use std::collections::HashMap;

/// A GPU of a process: pid, start of its recording (as pids are reused), device.
type GpuBusyKey = (u32, u64, u32);

/// The largest values so far of the processes in the last snapshot.
#[derive(Debug, Default)]
pub(super) struct MonotonicMaxima {
    gpus: HashMap<GpuBusyKey, GpuBusy>,
}

impl MonotonicMaxima {
    /// Raises values that have decreased to their maximum.
    pub(super) fn apply(&mut self, snapshot: &mut Snapshot) {
        let mut now = HashMap::new();
        for process in &mut snapshot.processes {
            for gpu in &mut process.gpus {
                let Some(busy) = &mut gpu.busy else { continue };
                let key = (process.pid, process.since_ns, gpu.device);
                if let Some(before) = self.gpus.get(&key) {
                    busy.total_busy_ns = busy.total_busy_ns.max(before.total_busy_ns);
                    busy.total_idle_ns = busy.total_idle_ns.max(before.total_idle_ns);
                    busy.total_idle_in_gc_ns =
                        busy.total_idle_in_gc_ns.max(before.total_idle_in_gc_ns);
                }
                now.insert(key, *busy);
            }
        }
        self.gpus = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_analysis::live::{ProcessFigures, ProcessGpu};

    fn snapshot(pid: u32, since_ns: u64, times: [u64; 3]) -> Snapshot {
        let busy = GpuBusy {
            total_busy_ns: times[0],
            total_idle_ns: times[1],
            total_idle_in_gc_ns: times[2],
            ..GpuBusy::default()
        };
        let gpus = vec![ProcessGpu { busy: Some(busy), ..ProcessGpu::default() }];
        Snapshot {
            processes: vec![ProcessFigures { pid, since_ns, gpus, ..ProcessFigures::default() }],
            ..Snapshot::default()
        }
    }

    fn raised(steady: &mut MonotonicMaxima, mut snapshot: Snapshot) -> [u64; 3] {
        steady.apply(&mut snapshot);
        let busy = snapshot.processes[0].gpus[0].busy.unwrap();
        [busy.total_busy_ns, busy.total_idle_ns, busy.total_idle_in_gc_ns]
    }

    #[test]
    fn counters_of_a_process_never_decrease() {
        let mut steady = MonotonicMaxima::default();
        assert_eq!(raised(&mut steady, snapshot(1, 5, [10, 8, 4])), [10, 8, 4]);
        assert_eq!(raised(&mut steady, snapshot(1, 5, [12, 6, 3])), [12, 8, 4]);
        assert_eq!(raised(&mut steady, snapshot(1, 5, [12, 9, 3])), [12, 9, 4]);
    }

    #[test]
    fn another_process_with_the_same_pid_starts_anew() {
        let mut steady = MonotonicMaxima::default();
        raised(&mut steady, snapshot(1, 5, [10, 8, 4]));
        assert_eq!(raised(&mut steady, snapshot(1, 99, [1, 1, 1])), [1, 1, 1]);
        assert_eq!(steady.gpus.len(), 1, "what ended is forgotten");
    }
}
