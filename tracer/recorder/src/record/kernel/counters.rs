//! Performance counters of one recording: the recorded ones, and the totals of processes.
//!
//! Owns the requested counters, and their availability on this machine. `gctrace_probes::counters` opens them; the BPF
//! programs read them.

use crate::record::kernel::recorded_processes::RecordedProcesses;
use crate::record::output::{RecordOutput, RecordSink as _};
use gctrace_ebpf::{BpfSession, CounterSet};
use gctrace_event::{Counter, Counters, ProcessCounters, Record, TraceHeader};
use gctrace_probes::counters;
use gctrace_probes::counters::CounterError;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::collections::BTreeMap;

/// The requested counters: available and unavailable on this machine.
#[derive(Debug, Default)]
pub(crate) struct CounterRecording {
    counted: Vec<Counter>,
    missing: Vec<(Counter, CounterError)>,
    cpus: Vec<u32>,
    warned: bool,
}

impl CounterRecording {
    /// Checks the requested counters for availability on this machine.
    pub(crate) fn examine(asked: &[Counter]) -> Self {
        let mut counting = Self::default();
        let cpus = counters::online_cpus();
        for counter in asked.iter().copied() {
            let there = match &cpus {
                _ if !counters::is_per_cpu(counter) => Ok(()),
                Ok(cpus) => counters::check(counter, cpus),
                Err(error) => Err(error.clone()),
            };
            match there {
                Ok(()) => counting.counted.push(counter),
                Err(error) => counting.missing.push((counter, error)),
            }
        }
        // Without them no counter of a CPU is counted.
        counting.cpus.extend(cpus.into_iter().flatten());
        counting
    }

    /// The counters, for the BPF programs.
    pub(crate) fn set(&self) -> CounterSet {
        CounterSet::new(self.counted.iter().copied())
    }

    /// Describes the counters in the trace's header.
    pub(crate) fn describe(&self, header: &mut TraceHeader) {
        let name = |counter: &Counter| counter.as_ref().to_owned();
        header.counters = self.counted.iter().map(name).collect();
        header.counters_missing =
            self.missing.iter().map(|(counter, why)| (name(counter), why.to_string())).collect();
    }

    /// One sentence for each reason why counters are missing.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (counter, why) in &self.missing {
            let names = reasons.entry(why.to_string()).or_default();
            names.push(counter.as_ref());
        }
        let sentence =
            |(why, names): (String, Vec<&str>)| format!("not counted: {}: {why}", names.join(", "));
        reasons.into_iter().map(sentence).collect()
    }

    /// Opens the per-CPU counters and hands them to the BPF programs; those keep them.
    pub(crate) fn open(&mut self, session: &BpfSession) {
        for counter in self.counted.iter().copied() {
            if !counters::is_per_cpu(counter) {
                continue;
            }
            for cpu in self.cpus.iter().copied() {
                let opened =
                    counters::open(counter, cpu).map_err(anyhow::Error::from).and_then(|event| {
                        Ok(session.add_perf_event(counter, cpu, event.descriptor())?)
                    });
                if let Err(error) = opened {
                    let name = counter.as_ref();
                    tracing::warn!("{name} is not counted on CPU {cpu}: {error:#}");
                }
            }
        }
        self.visit_cpus();
    }

    /// Starts counting for a process that is already running.
    pub(crate) fn start_process(&mut self, session: &BpfSession, pid: u32, now_ns: u64) {
        let started = session.count_process(pid, now_ns);
        self.warn_once(started);
        self.visit_cpus();
    }

    /// Drops counters that were not requested: the BPF programs read more.
    pub(crate) fn select(&self, counters: &mut Counters) {
        let mut selected = Counters::default();
        selected.scaled = counters.scaled;
        selected.migrated = counters.migrated;
        for (counter, value) in counters.iter() {
            if self.counted.contains(&counter) {
                selected.set(counter, value);
            }
        }
        *counters = selected;
    }

    /// Writes the totals of an exited process, if it was recorded.
    pub(crate) fn ended(
        &mut self,
        session: &BpfSession,
        pid: u32,
        at_ns: u64,
        processes: &RecordedProcesses,
        output: &mut RecordOutput,
    ) {
        if self.counted.is_empty() {
            return;
        }
        let found = session.ended_process(pid, at_ns);
        if let Some(Some(totals)) = self.warn_once(found) {
            self.write(totals, processes, output);
        }
    }

    /// Writes the totals of the processes that are still running.
    pub(crate) fn write_living(
        &mut self,
        session: &BpfSession,
        at_ns: u64,
        processes: &RecordedProcesses,
        output: &mut RecordOutput,
    ) {
        self.visit_cpus();
        let found = session.living_processes(at_ns);
        for totals in self.warn_once(found).into_iter().flatten() {
            self.write(totals, processes, output);
        }
    }

    fn write(
        &self,
        mut totals: ProcessCounters,
        processes: &RecordedProcesses,
        output: &mut RecordOutput,
    ) {
        self.select(&mut totals.counters);
        if processes.contains(totals.pid) && !totals.counters.is_empty() {
            output.write(&Record::Counters(totals));
        }
    }

    /// Per-CPU counters are accounted to processes at context switches. These may be rare while a single thread
    /// computes: running on a CPU briefly forces one there. A CPU outside our affinity mask is skipped: its counts are
    /// accounted later.
    fn visit_cpus(&self) {
        if !self.set().has_hardware() {
            return;
        }
        let this = Pid::from_raw(0);
        let Ok(before) = sched_getaffinity(this) else {
            return;
        };
        for cpu in &self.cpus {
            let mut one = CpuSet::new();
            if one.set(*cpu as usize).is_ok() {
                let _ = sched_setaffinity(this, &one);
            }
        }
        if let Err(errno) = sched_setaffinity(this, &before) {
            tracing::debug!("cannot restore gctrace's CPU affinity: {errno}");
        }
    }

    fn warn_once<T>(&mut self, result: Result<T, gctrace_ebpf::Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                if !std::mem::replace(&mut self.warned, true) {
                    let message = crate::text::chain(&error.into());
                    tracing::warn!("process counter totals are incomplete: {message}");
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_lists_each_reason_once() {
        let counting = CounterRecording {
            counted: vec![Counter::PageFaults],
            missing: vec![
                (Counter::Cycles, CounterError::NoUnit),
                (Counter::BranchMisses, CounterError::NotInUnit { cpu: 3 }),
                (Counter::Instructions, CounterError::NoUnit),
            ],
            ..CounterRecording::default()
        };
        assert_eq!(
            counting.missing(),
            [
                "not counted: cycles, instructions: no hardware PMU (common in virtual machines)",
                "not counted: branch-misses: the PMU of CPU 3 does not support this event",
            ]
        );
        let mut header = TraceHeader::default();
        counting.describe(&mut header);
        assert_eq!(header.counters, ["page-faults"]);
        assert_eq!(header.counters_missing.len(), 3);
    }

    #[test]
    fn select_keeps_requested_counters() {
        let counting = CounterRecording::examine(&[Counter::TaskClock]);
        let mut counters = Counters::default();
        counters.migrated = true;
        counters.set(Counter::TaskClock, 7);
        counters.set(Counter::PageFaults, 8);
        counting.select(&mut counters);
        let kept: Vec<_> = counters.iter().collect();
        assert_eq!(kept, [(Counter::TaskClock, 7)]);
        assert!(counters.migrated);
    }

    #[test]
    fn no_counters_requested() {
        let counting = CounterRecording::examine(&[]);
        assert_eq!(counting.set(), CounterSet::default());
        assert!(counting.missing().is_empty());
    }
}
