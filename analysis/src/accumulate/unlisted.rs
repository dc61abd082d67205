//! Sums over the processes of a trace that are not listed: a hundred bytes for each.

use super::process::{ENOUGH_PAUSES, ProcessState};
use crate::stacks::{StackTree, TraceFrames};
use crate::time::add_to;
use gctrace_event::{GcReason, Pause, Process, ProcessCounters, ProcessExit, ProcessOrigin};
use gctrace_stats::ratio;
use std::collections::HashMap;

/// Name of all unlisted processes together in exported stacks.
const NAME: &str = "processes that are not listed";

/// The state of a process that is not listed.
#[derive(Debug, Clone, Copy, Default)]
struct UnlistedProcess {
    since_ns: Option<u64>,
    exit_ns: Option<u64>,
    pauses: u64,
    first_ns: u64,
    last_ns: u64,
    /// Time in pauses, in ns; overlaps count once if pauses come in order.
    paused_ns: u64,
    attached: bool,
    free_threaded: bool,
    without_python: bool,
    calls_collect: bool,
}

/// Sums over the processes of a trace that are not listed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UnlistedSums {
    /// Number of processes with pauses.
    pub(crate) collecting: u64,
    pub(crate) without_python: u64,
    pub(crate) without_pauses: u64,
    pub(crate) attached: u64,
    pub(crate) observed_ns: u64,
    pub(crate) paused_ns: u64,
    /// Pause time of the processes with observed time, in ns.
    pub(crate) paused_of_observed_ns: u64,
    pub(crate) worst_ratio: Option<f64>,
    /// Whether the start or end of some is unknown.
    pub(crate) inferred: bool,
    /// Some are of free-threaded builds.
    pub(crate) free_threaded: bool,
    /// Number of processes that call `gc.collect()`.
    pub(crate) callers: u64,
    pub(crate) callers_observed_ns: u64,
}

/// The processes of the trace being read that are not listed.
#[derive(Debug, Default)]
pub(crate) struct UnlistedProcesses {
    processes: HashMap<u32, UnlistedProcess>,
    /// Sums over processes with a reused id.
    sums: UnlistedSums,
    /// Their stacks and counters.
    together: Option<Box<ProcessState>>,
}

impl UnlistedProcesses {
    /// Counts a pause of such a process; whether it was a full collection.
    pub(crate) fn add_pause(&mut self, trace: usize, pause: &Pause) -> bool {
        let full = self.processes.entry(pause.pid).or_default().add(pause);
        self.together(trace).add_shared(pause, full);
        full
    }

    fn together(&mut self, trace: usize) -> &mut ProcessState {
        self.together.get_or_insert_with(|| {
            let mut together = ProcessState::new(trace, 0);
            together.name = Some(NAME.to_owned());
            Box::new(together)
        })
    }

    pub(crate) fn add_counters(&mut self, trace: usize, whole: ProcessCounters) {
        let mut counter_sums = crate::counters::CounterSums::default();
        counter_sums.set_whole(whole);
        self.together(trace).counters.merge(&counter_sums);
    }

    /// A description after an end belongs to another process.
    pub(crate) fn describe(&mut self, process: &Process) {
        let known = self.processes.entry(process.pid).or_default();
        if matches!(known.exit_ns, Some(exit) if exit <= process.since_ns) {
            let gone = std::mem::take(known);
            self.sums.add(&gone, None);
        }
        let known = self.processes.entry(process.pid).or_default();
        let since_ns = known.since_ns.unwrap_or(process.since_ns).min(process.since_ns);
        let interpreter = process.interpreter.as_ref();
        known.since_ns = Some(since_ns);
        known.attached = process.origin == ProcessOrigin::Attached;
        known.without_python = interpreter.is_none();
        known.free_threaded = matches!(interpreter, Some(interpreter) if interpreter.free_threaded);
    }

    pub(crate) fn end(&mut self, exit: ProcessExit) {
        self.processes.entry(exit.pid).or_default().exit_ns = Some(exit.at_ns);
    }

    /// The sums; `ended_ns` and `last_ns` as in [`ProcessState::observed`].
    pub(crate) fn finish(self, ended_ns: Option<u64>, last_ns: u64) -> UnlistedSums {
        let mut sums = self.sums;
        for process in self.processes.values() {
            let ended_ns = match ended_ns {
                None if process.since_ns.is_some() => Some(last_ns),
                ended_ns => ended_ns,
            };
            sums.add(process, ended_ns);
        }
        sums
    }

    /// Their pauses with the stacks looked up; empties them.
    pub(crate) fn take_together(
        &mut self,
        frames: &TraceFrames,
        tree: &mut StackTree,
    ) -> Option<ProcessState> {
        let mut together = self.together.take()?;
        together.stacks.resolve(frames, tree);
        Some(*together)
    }
}

impl UnlistedProcess {
    /// Counts a pause; whether it was a full collection.
    fn add(&mut self, pause: &Pause) -> bool {
        if self.pauses == 0 {
            (self.first_ns, self.last_ns) = (pause.start_ns, pause.start_ns);
        }
        let from_ns = pause.start_ns.max(self.last_ns.min(pause.end_ns));
        add_to(&mut self.paused_ns, pause.end_ns - from_ns);
        self.pauses += 1;
        self.first_ns = self.first_ns.min(pause.start_ns);
        self.last_ns = self.last_ns.max(pause.end_ns);
        self.calls_collect |= pause.reason == GcReason::Manual;
        pause.generation == 2 || self.free_threaded
    }
}

impl UnlistedSums {
    fn add(&mut self, process: &UnlistedProcess, ended_ns: Option<u64>) {
        if process.pauses == 0 {
            let described = process.since_ns.is_some();
            self.without_python += u64::from(described && process.without_python);
            self.without_pauses += u64::from(described && !process.without_python);
            return;
        }
        let end_ns = process.exit_ns.or(ended_ns);
        let observed_ns = match (process.since_ns, end_ns) {
            (None, _) if process.pauses < ENOUGH_PAUSES => 0,
            (since, end) => {
                let start = since.unwrap_or(process.first_ns).min(process.first_ns);
                let end = end.unwrap_or(process.last_ns).max(process.last_ns);
                end - start
            }
        };
        self.collecting += 1;
        self.attached += u64::from(process.attached);
        self.inferred |= process.since_ns.is_none() || end_ns.is_none();
        self.free_threaded |= process.free_threaded;
        add_to(&mut self.observed_ns, observed_ns);
        add_to(&mut self.paused_ns, process.paused_ns);
        if process.calls_collect {
            self.callers += 1;
            add_to(&mut self.callers_observed_ns, observed_ns);
        }
        if let Some(ratio) = ratio(process.paused_ns.min(observed_ns), observed_ns) {
            add_to(&mut self.paused_of_observed_ns, process.paused_ns);
            self.worst_ratio = Some(self.worst_ratio.unwrap_or(ratio).max(ratio));
        }
    }
}
