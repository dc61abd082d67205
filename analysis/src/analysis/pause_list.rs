//! Pauses one by one and memory over time, on one clock, for pages that draw them.
//!
//! Owns that clock: it counts from the start of the first trace.

use super::Analysis;
use crate::accumulate::kept_pauses::{KeptPause, KeptPauses};
pub use crate::accumulate::kept_pauses::{ListedPause, StackId};
use crate::accumulate::process::ProcessState;
use crate::report::{Location, PauseTotal};
use crate::time::{after, beyond, duration_ns};
use std::collections::HashMap;

/// The pauses of all traces, the longest one by one.
#[derive(Debug, Default)]
pub struct PauseList {
    /// The processes of the pauses.
    pub processes: Vec<PausedProcess>,
    /// By start.
    pub pauses: Vec<ListedPause>,
    /// The sums of the pauses that are not listed, by time.
    pub not_listed: Vec<PausesNotListed>,
    /// Time from the start of the first trace to the end of the last, in ns.
    pub duration_ns: u64,
}

/// A process with pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PausedProcess {
    /// Index of its trace, in the order of reading.
    pub trace: usize,
    /// Process id as the trace states it; `None` of processes beyond the first 10,000 of a trace.
    pub pid: Option<u32>,
    /// Rank in a distributed job; `None` if unknown.
    pub rank: Option<u32>,
}

/// Sums of pauses that are not listed.
#[derive(Clone, Copy, Debug)]
pub struct PausesNotListed {
    /// From then on they start, in ns after the start of the first trace.
    pub at_ns: u64,
    /// For so long, in ns.
    pub width_ns: u64,
    /// By generation: 0, 1, 2, unknown.
    pub by_generation: [PauseTotal; 4],
}

/// Memory of a process over time: times in ns after the start of the first trace, in order, and bytes. Each is the
/// least of some time, but for the last.
#[derive(Clone, Debug)]
pub struct ProcessMemoryList {
    /// The process.
    pub process: PausedProcess,
    /// Resident memory; empty if it is unknown.
    pub resident: Vec<(u64, u64)>,
    /// Memory allocated by PyTorch on devices; empty if unknown.
    pub on_devices: Vec<(u64, u64)>,
}

/// The clocks of all traces on one.
#[derive(Debug)]
pub struct CommonClock {
    /// Start of each trace on its own clock, and on the common one.
    starts: Vec<(u64, u64)>,
}

impl CommonClock {
    /// A time on the clock of a trace, in ns after the start of the first trace.
    pub fn after_first(&self, trace: usize, at_ns: u64) -> u64 {
        let (start_ns, lead_ns) = self.starts.get(trace).copied().unwrap_or_default();
        after(duration_ns(start_ns, at_ns), lead_ns)
    }
}

impl CommonClock {
    /// A time after the start of a trace, in ns after the start of the first.
    pub fn after_start(&self, trace: usize, after_ns: u64) -> u64 {
        let lead_ns = if let Some((_, lead_ns)) = self.starts.get(trace) { *lead_ns } else { 0 };
        after(lead_ns, after_ns)
    }
}

impl Analysis {
    /// An analysis that keeps at least this many of the longest pauses of each trace one by one, for
    /// [`Analysis::pause_list`].
    pub fn keeping_pauses(most: usize) -> Self {
        Self { kept_pauses: Some(KeptPauses::new(most)), ..Self::default() }
    }

    /// One clock for all traces: by the wall clock, or from the start of each trace if the wall clock of one is
    /// unknown, or if they are of several runs.
    pub fn common_clock(&self, runs: u64) -> CommonClock {
        let unix: Option<Vec<u64>> =
            self.traces.iter().map(|trace| trace.started_unix_ns()).collect();
        let unix = if runs < 2 { unix } else { None };
        let leads = unix.unwrap_or_else(|| vec![0; self.traces.len()]);
        let first = leads.iter().min().copied().unwrap_or(0);
        let leads = leads.into_iter().map(|unix_ns| beyond(unix_ns, first));
        let starts = self.traces.iter().map(|trace| trace.started_ns());
        CommonClock { starts: starts.zip(leads).collect() }
    }

    /// The pauses one by one, `most` at most; empty unless it was [made for that](Analysis::keeping_pauses).
    /// To be called after [`Analysis::settle`].
    pub fn pause_list(&mut self, clock: &CommonClock, most: usize) -> PauseList {
        let mut list = PauseList::default();
        for (index, trace) in self.traces.iter().enumerate() {
            let last_ns = trace.last_ns();
            let ended_ns =
                if let Some(end) = &trace.end { end.ended_ns.max(last_ns) } else { last_ns };
            list.duration_ns = list.duration_ns.max(clock.after_first(index, ended_ns));
        }
        if let Some(kept) = &mut self.kept_pauses {
            kept.keep(most);
        }
        let Some(kept) = &self.kept_pauses else { return list };
        let mut places: HashMap<PausedProcess, usize> = HashMap::new();
        for KeptPause { trace, process, pause, .. } in &kept.pauses {
            let process = process.and_then(|process| self.processes.get(process));
            let process = PausedProcess {
                trace: *trace,
                pid: process.map(|process| process.sums.pid),
                rank: self.rank_in(*trace, process),
            };
            let place = *places.entry(process).or_insert_with(|| {
                list.processes.push(process);
                list.processes.len() - 1
            });
            let at_ns = clock.after_first(*trace, pause.at_ns);
            list.pauses.push(ListedPause { process: place, at_ns, ..*pause });
        }
        list.pauses.sort_by_key(|pause| (pause.at_ns, pause.process));
        for dropped in &kept.dropped {
            list.not_listed.extend(dropped.slots().map(|(start_ns, width_ns, sums)| {
                let at_ns = clock.after_first(dropped.trace, start_ns);
                PausesNotListed { at_ns, width_ns, by_generation: *sums }
            }));
        }
        list
    }

    /// The rank of a process of a trace, or else of the trace.
    fn rank_in(&self, trace: usize, process: Option<&ProcessState>) -> Option<u32> {
        match process {
            Some(process) if process.sums.rank().is_some() => process.sums.rank(),
            _ => self.traces.get(trace)?.rank(),
        }
    }

    /// Memory of the processes with at least two known values over time.
    pub fn memory_lists(&self, clock: &CommonClock) -> Vec<ProcessMemoryList> {
        let lists = self.processes.iter().map(|process| {
            let trace = process.trace;
            let [resident, on_devices] = process.sums.leaks.memory().map(|mut samples| {
                samples.iter_mut().for_each(|(at_ns, _)| *at_ns = clock.after_first(trace, *at_ns));
                samples
            });
            let rank = self.rank_in(trace, Some(process));
            let process = PausedProcess { trace, pid: Some(process.sums.pid), rank };
            ProcessMemoryList { process, resident, on_devices }
        });
        lists.filter(|list| list.resident.len() > 1 || list.on_devices.len() > 1).collect()
    }

    /// The frames of a stack, the outermost first.
    pub fn frames_of(&self, stack: StackId) -> Vec<&Location> {
        self.stacks.frames_from_outermost(stack.0)
    }
}
