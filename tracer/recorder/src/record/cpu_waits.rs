//! How long the threads that collect waited for a CPU, by the kernel's own count, whatever source records
//! them.
//!
//! Owns the times of the readings: less and less often, at most a 64th of the recorded time apart, or 100 ms.

use crate::record::output::RecordSink;
use gctrace_event::{Pause, Pressure, Record};
use gctrace_probes::proc_status::{self, ThreadTimes};
use gctrace_units::{after, beyond};
use std::collections::{BTreeMap, HashMap};

/// Least time between two readings of a process.
const SHORTEST_NS: u64 = 100_000_000;
/// Part of the time since the first reading until the next one.
const PART: u64 = 64;
/// Maximum number of threads of a process to read: its first ones.
const THREADS: usize = 64;

/// By process.
#[derive(Default)]
pub(crate) struct CpuWaits(HashMap<u32, ProcessWaits>);

#[derive(Default)]
struct ProcessWaits {
    /// The first reading; 0: there was none.
    first_ns: u64,
    due_ns: u64,
    /// Their times when they were first read, and the latest.
    threads: BTreeMap<u32, (ThreadTimes, ThreadTimes)>,
}

impl CpuWaits {
    /// Notes the collecting thread.
    pub(crate) fn pause(&mut self, pause: &Pause) {
        let waits = self.0.entry(pause.pid).or_default();
        if !waits.threads.contains_key(&pause.tid)
            && waits.threads.len() < THREADS
            && let Some(times) = proc_status::thread_times(pause.pid, pause.tid)
        {
            waits.threads.insert(pause.tid, (times, times));
        }
    }

    /// Writes the times due. A process that has ended has no times.
    pub(crate) fn tick(&mut self, now_ns: u64, output: &mut impl RecordSink) {
        self.0.retain(|pid, waits| {
            if now_ns < waits.due_ns {
                return true;
            }
            let read = waits.read(*pid, now_ns);
            if let Some(times) = read {
                output.write(&Record::Pressure(Pressure {
                    pid: *pid,
                    since_ns: now_ns,
                    at_ns: now_ns,
                    cpu_ns: Some(times.cpu_ns),
                    cpu_wait_ns: Some(times.waited_ns),
                    ..Pressure::default()
                }));
            }
            read.is_some()
        });
    }
}

impl ProcessWaits {
    /// Time that its threads have used and waited since each was first seen; `None` if none is left.
    fn read(&mut self, pid: u32, now_ns: u64) -> Option<ThreadTimes> {
        if self.first_ns == 0 {
            self.first_ns = now_ns;
        }
        self.due_ns = after(now_ns, SHORTEST_NS.max((now_ns - self.first_ns) / PART));
        let mut is_left = false;
        let mut sum = ThreadTimes::default();
        for (tid, (first, latest)) in &mut self.threads {
            if let Some(times) = proc_status::thread_times(pid, *tid) {
                is_left = true;
                *latest = times;
            }
            sum.cpu_ns += beyond(latest.cpu_ns, first.cpu_ns);
            sum.waited_ns += beyond(latest.waited_ns, first.waited_ns);
        }
        if is_left { Some(sum) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn readings_become_rare_and_end_with_the_process() {
        let thread = std::fs::read_link("/proc/thread-self").unwrap();
        let tid = thread.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let pid = std::process::id();
        // The kernel counts a thread's time when it gives up its CPU.
        std::thread::sleep(std::time::Duration::from_millis(1));
        let mut waits = CpuWaits::default();
        waits.pause(&Pause { pid, tid, ..Pause::default() });
        waits.pause(&Pause { pid: u32::MAX, tid: u32::MAX, ..Pause::default() });
        let mut records: Vec<Record> = Vec::new();
        let mut read_at = |at_ns| {
            let before = records.len();
            waits.tick(at_ns, &mut records);
            records.len() - before
        };
        assert_eq!([1, 99_999_999].map(|ns| read_at(SECOND_NS + ns)), [1, 0]);
        assert_eq!(read_at(SECOND_NS + 100_000_001), 1);
        let hour_ns = 3_600 * SECOND_NS;
        assert_eq!([hour_ns, hour_ns + 50 * SECOND_NS].map(&mut read_at), [1, 0]);
        let times: Vec<(Option<u64>, Option<u64>)> = records
            .iter()
            .map(|record| match record {
                Record::Pressure(pressure) => (pressure.cpu_ns, pressure.cpu_wait_ns),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(times.is_sorted() && times.iter().all(|(used, _)| used.is_some()), "{times:?}");
        assert_eq!(waits.0.len(), 1, "the other one has no times");
    }
}
