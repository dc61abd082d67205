//! Counters that never go down, as long as a process is there.
//!
//! Times of a GPU are told late: a stretch first called idle may turn out to have been busy. The figure is then a
//! little smaller than before; Prometheus would take that for a restart and add the whole of it again.

use gctrace_analysis::live::GpuBusy;
use gctrace_analysis::live::Snapshot;
use std::collections::HashMap;

/// A GPU of a process: its id, from when on it is recorded (the id alone may return), the device.
type Key = (u32, u64, u32);

/// The largest figures so far, of the processes that are there.
#[derive(Debug, Default)]
pub(super) struct Steady {
    gpus: HashMap<Key, GpuBusy>,
}

impl Steady {
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
