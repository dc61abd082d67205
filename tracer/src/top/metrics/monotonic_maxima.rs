//! Counters that never go down, as long as a process is there.
//!
//! Times of a GPU are told late: a stretch first called idle may turn out to have been busy. The figure is then a
//! little smaller than before; Prometheus would take that for a restart and add the whole of it again. Collections
//! are only told when they are over, and never taken back.

use gctrace_analysis::live::GpuBusy;
use gctrace_analysis::live::Snapshot;
use std::collections::HashMap;

/// A GPU of a process: its id, from when on it is recorded (the id alone may return), the device.
type Key = (u32, u64, u32);

/// The largest figures so far, of the processes that are there.
#[derive(Debug, Default)]
pub(super) struct MonotonicMaxima {
    gpus: HashMap<Key, GpuBusy>,
}

impl MonotonicMaxima {
    /// Raises figures that have become smaller to what they were.
    pub(super) fn hold(&mut self, snapshot: &mut Snapshot) {
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
    use gctrace_analysis::live::ProcessFigures;
    use gctrace_analysis::live::ProcessGpu;

    fn snapshot(pid: u32, since_ns: u64, times: [u64; 3]) -> Snapshot {
        let busy = GpuBusy {
            total_busy_ns: times[0],
            total_idle_ns: times[1],
            total_idle_in_gc_ns: times[2],
            ..GpuBusy::default()
        };
        let gpus = vec![ProcessGpu {
            busy: Some(busy),
            ..ProcessGpu::default()
        }];
        Snapshot {
            processes: vec![ProcessFigures {
                pid,
                since_ns,
                gpus,
                ..ProcessFigures::default()
            }],
            ..Snapshot::default()
        }
    }

    fn held(steady: &mut MonotonicMaxima, mut snapshot: Snapshot) -> [u64; 3] {
        steady.hold(&mut snapshot);
        let busy = snapshot.processes[0].gpus[0].busy.unwrap();
        [
            busy.total_busy_ns,
            busy.total_idle_ns,
            busy.total_idle_in_gc_ns,
        ]
    }

    #[test]
    fn figures_of_a_process_never_become_smaller() {
        let mut steady = MonotonicMaxima::default();
        assert_eq!(held(&mut steady, snapshot(1, 5, [10, 8, 4])), [10, 8, 4]);
        assert_eq!(held(&mut steady, snapshot(1, 5, [12, 6, 3])), [12, 8, 4]);
        assert_eq!(held(&mut steady, snapshot(1, 5, [12, 9, 3])), [12, 9, 4]);
    }

    #[test]
    fn another_process_with_the_same_id_begins_anew() {
        let mut steady = MonotonicMaxima::default();
        held(&mut steady, snapshot(1, 5, [10, 8, 4]));
        assert_eq!(held(&mut steady, snapshot(1, 99, [1, 1, 1])), [1, 1, 1]);
        assert_eq!(steady.gpus.len(), 1, "what ended is forgotten");
    }
}
