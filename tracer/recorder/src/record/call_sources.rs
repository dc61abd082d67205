//! The source that reports the driver and runtime calls of a process: CUPTI, in-process, or probes.
//!
//! A probed launch costs as much as CUPTI's record of it, so calls are left to CUPTI where it is
//! expected. Calls that both report are written once.

use crate::launch::CUDA_INJECTION;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::time::{Duration, Instant};

/// How long to wait for CUPTI records from a process that has the driver's library before its calls
/// are probed as well: programs initialize CUDA some seconds after their imports.
const PATIENCE_WITH_CUPTI: Duration = Duration::from_secs(10);

/// The source of the driver and runtime calls of each process.
#[derive(Default)]
pub struct CallSources {
    /// The injected library: expected to report the calls of programs with an environment that names it to the driver.
    /// `None`: no calls are expected from it, and all are probed.
    library: Option<OsString>,
    processes: HashMap<u32, ProcessCalls>,
    /// Processes without CUPTI, not yet taken.
    missing: Vec<u32>,
}

#[derive(Default)]
struct ProcessCalls {
    /// CUPTI reports the calls from each of these times on, CLOCK_MONOTONIC in ns.
    cupti_since_ns: Vec<u64>,
    without_cupti: bool,
    /// When gctrace started to wait for CUPTI; `None` if it does not.
    awaited: Option<Instant>,
}

impl CallSources {
    /// `library`: the injected library, if there are probes to fall back to.
    pub fn new(library: Option<OsString>) -> Self {
        Self { library, ..Self::default() }
    }

    /// CUPTI reports the calls of a process from then on.
    pub fn reported_by_cupti(&mut self, pid: u32, since_ns: u64) {
        let process = self.processes.entry(pid).or_default();
        process.cupti_since_ns.push(since_ns);
    }

    /// The library found no CUPTI in a process, or cannot use it.
    pub fn without_cupti(&mut self, pid: u32) {
        if self.library.is_some() && self.processes.entry(pid).or_default().give_up() {
            self.missing.push(pid);
        }
    }

    /// A process executed another program at that time; the new program may or may not use CUPTI.
    pub fn executed(&mut self, pid: u32, at_ns: u64) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.cupti_since_ns.retain(|since| *since > at_ns);
            process.without_cupti = false;
            process.awaited = None;
        }
    }

    /// The process exited.
    pub fn ended(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Whether a process with CUDA libraries needs no probes on its driver and runtime calls. The wait for CUPTI starts
    /// when this is first asked.
    pub fn is_left_to_cupti(&mut self, pid: u32) -> bool {
        let Some(library) = &self.library else { return false };
        let process = self.processes.entry(pid).or_default();
        let is_loaded = gctrace_probes::proc_status::environment(pid)
            .is_ok_and(|variables| variables.get(OsStr::new(CUDA_INJECTION)) == Some(library));
        let is_left = is_loaded && !process.without_cupti;
        if is_left {
            process.awaited.get_or_insert_with(Instant::now);
        }
        is_left
    }

    /// Whether CUPTI has reported a call that a probe saw too.
    pub fn is_reported(&self, pid: u32, start_ns: u64) -> bool {
        let process = self.processes.get(&pid);
        let since = process.into_iter().flat_map(|one| &one.cupti_since_ns);
        since.into_iter().any(|since_ns| start_ns >= *since_ns)
    }

    /// Processes to probe from now on, each once: CUPTI is missing or overdue. A driver that loads no library must not
    /// hide calls; a driver that is not initialized yet has none.
    pub fn take_missing(&mut self) -> Vec<u32> {
        let mut missing = std::mem::take(&mut self.missing);
        for (pid, process) in &mut self.processes {
            if matches!(process.awaited, Some(since) if since.elapsed() >= PATIENCE_WITH_CUPTI) {
                process.awaited = None;
                if process.give_up() {
                    missing.push(*pid);
                }
            }
        }
        missing
    }
}

impl ProcessCalls {
    /// Returns whether CUPTI has reported nothing so far.
    fn give_up(&mut self) -> bool {
        self.without_cupti |= self.cupti_since_ns.is_empty();
        self.without_cupti
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cupti_of_a_previous_program_does_not_count() {
        let mut calls = CallSources::new(Some("library".into()));
        calls.reported_by_cupti(7, 100);
        assert!(calls.is_reported(7, 100) && !calls.is_reported(7, 99));
        calls.without_cupti(7);
        assert_eq!(calls.take_missing(), [0; 0]);
        calls.executed(7, 200);
        assert!(!calls.is_reported(7, 300));
        calls.without_cupti(7);
        assert_eq!(calls.take_missing(), [7]);
        assert_eq!(calls.take_missing(), [0; 0]);
    }
}
