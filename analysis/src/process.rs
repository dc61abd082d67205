//! The state of one process while a trace is read.

use crate::allocations::LastAllocations;
use crate::counters::CounterSums;
use crate::growth;
use crate::growth::GrowthState;
use crate::pressure::PressureSums;
use crate::report::Basis;
use crate::report::InterpreterReport;
use crate::report::LinesReport;
use crate::report::PauseTotal;
use crate::report::PressureReport;
use crate::report::ProcessReport;
use crate::report::SettingsReport;
use crate::stacks::RankingLimits;
use crate::stacks::StackRanking;
use crate::stacks::StackTree;
use crate::stacks::TraceStacks;
use crate::tally::PauseTally;
use crate::tally::rate;
use crate::tally::ratio;
use crate::time::intervals::Intervals;
use gctrace_event::GcReason;
use gctrace_event::GcSettings;
use gctrace_event::Pause;
use gctrace_event::Process;
use gctrace_event::ProcessExit;
use gctrace_event::ProcessOrigin;
use std::collections::BTreeSet;

/// Significant digits of one process's percentiles; there may be thousands of processes.
const DIGITS: u8 = 2;

/// Disjoint paused intervals that are kept to compare later ones with. Traces are nearly in order
/// of time; this covers what threads overlap in practice many times over.
const INTERVALS: usize = 1024;

/// This many pauses, if there is nothing else, show by the first and last timestamp how long a
/// process ran: the share of time is then off by at most about one tenth.
pub(crate) const ENOUGH_PAUSES: u64 = 10;

/// Index of a generation in arrays of four: 0, 1, 2, unknown.
pub(crate) fn generation_index(generation: u8) -> usize {
    usize::from(generation.min(3))
}

/// Index of a reason in arrays of four: automatic, manual, shutdown, unknown.
pub(crate) fn reason_index(reason: GcReason) -> usize {
    match reason {
        GcReason::Automatic => 0,
        GcReason::Manual => 1,
        GcReason::Shutdown => 2,
        GcReason::Unknown => 3,
    }
}

/// One process of one trace. A process id that is reused after its process ended is another
/// process.
#[derive(Debug)]
pub(crate) struct ProcessState {
    pub(crate) trace: usize,
    pub(crate) pid: u32,
    pub(crate) described: Option<Process>,
    /// Name given by another tool.
    pub(crate) name: Option<String>,
    pub(crate) exit: Option<ProcessExit>,
    /// First and last time of its events.
    seen: Option<(u64, u64)>,
    /// Whether something but pauses was seen of it.
    seen_at_work: bool,
    settings: Option<(GcSettings, u64)>,
    /// Threads that ran the collector.
    threads: BTreeSet<u32>,
    pub(crate) tally: PauseTally,
    by_generation: [PauseTotal; 4],
    by_reason: [PauseTotal; 4],
    young_automatic: u64,
    freed_by_automatic: u64,
    paused: Intervals,
    growth: GrowthState,
    pub(crate) stacks: TraceStacks,
    pub(crate) pressure: PressureSums,
    pub(crate) allocations: LastAllocations,
    pub(crate) counters: Box<CounterSums>,
}

impl ProcessState {
    pub(crate) fn new(trace: usize, pid: u32) -> Self {
        Self {
            trace,
            pid,
            described: None,
            name: None,
            exit: None,
            seen: None,
            seen_at_work: false,
            settings: None,
            threads: BTreeSet::new(),
            tally: PauseTally::new(DIGITS),
            by_generation: [PauseTotal::default(); 4],
            by_reason: [PauseTotal::default(); 4],
            young_automatic: 0,
            freed_by_automatic: 0,
            paused: Intervals::default(),
            growth: GrowthState::default(),
            stacks: TraceStacks::default(),
            pressure: PressureSums::default(),
            allocations: LastAllocations::default(),
            counters: Box::default(),
        }
    }

    /// Adds a description; the earliest `since_ns` counts, because an exec does not end a process.
    pub(crate) fn describe(&mut self, process: Process) {
        let since_ns = match &self.described {
            Some(earlier) => earlier.since_ns.min(process.since_ns),
            None => process.since_ns,
        };
        self.described = Some(Process {
            since_ns,
            ..process
        });
    }

    pub(crate) fn set(&mut self, settings: GcSettings) {
        self.settings = match self.settings.take() {
            None => Some((settings, 0)),
            Some((old, changes)) => {
                let same = old.enabled == settings.enabled && old.thresholds == settings.thresholds;
                Some((settings, changes + u64::from(!same)))
            }
        };
    }

    /// Extends its time by the first and last timestamp of other events.
    pub(crate) fn see_at_work(&mut self, start_ns: u64, end_ns: u64) {
        self.seen_at_work = true;
        self.see(start_ns, end_ns);
    }

    fn see(&mut self, start_ns: u64, end_ns: u64) {
        let (first, last) = self.seen.get_or_insert((start_ns, end_ns));
        *first = start_ns.min(*first);
        *last = end_ns.max(*last);
    }

    pub(crate) fn add(&mut self, pause: &Pause) {
        let time_ns = pause.duration_ns();
        self.see(pause.start_ns, pause.end_ns);
        self.tally.add(pause);
        self.paused.add(pause.start_ns, pause.end_ns, |_, _| {});
        self.paused.trim(INTERVALS, u64::MAX, |_, _| {});
        self.threads.insert(pause.tid);
        if let Some(effort) = self
            .by_generation
            .get_mut(generation_index(pause.generation))
        {
            effort.add(time_ns);
        }
        if let Some(effort) = self.by_reason.get_mut(reason_index(pause.reason)) {
            effort.add(time_ns);
        }
        if pause.reason == GcReason::Automatic {
            self.young_automatic += u64::from(pause.generation == 0);
            let freed = pause.collected.unwrap_or(0);
            self.freed_by_automatic = self.freed_by_automatic.saturating_add(freed);
        }
        let full = self.is_full(pause);
        if full {
            self.growth.add(pause);
        }
        self.pressure.add_pause(pause);
        self.add_shared(pause, full);
    }

    /// Counts what is also summed over processes: the stack and the counters.
    pub(crate) fn add_shared(&mut self, pause: &Pause, full: bool) {
        self.stacks.add(pause, full);
        let traversed = growth::traversed(pause).filter(|_| full);
        self.counters.add(pause, traversed);
    }

    /// Whether the collection went through the whole heap. Free-threaded builds know no other,
    /// whatever generation they report.
    pub(crate) fn is_full(&self, pause: &Pause) -> bool {
        pause.generation == 2 || self.free_threaded()
    }

    pub(crate) fn free_threaded(&self) -> bool {
        self.described
            .as_ref()
            .and_then(|process| process.interpreter.as_ref())
            .is_some_and(|interpreter| interpreter.free_threaded)
    }

    /// Whether it is known to run no Python.
    pub(crate) fn without_python(&self) -> bool {
        self.described
            .as_ref()
            .is_some_and(|process| process.interpreter.is_none())
    }

    /// Start and end of its recording, and whether both are known rather than taken from its
    /// events. A process with nothing but a few pauses has no observed time. `ended_ns`: the end of
    /// the recording, if the trace has a last line; otherwise `last_ns`, the last timestamp in the
    /// trace, is used.
    pub(crate) fn observed(&self, ended_ns: Option<u64>, last_ns: u64) -> (u64, u64, Basis) {
        let (first, last) = self.seen.unwrap_or((last_ns, last_ns));
        if self.described.is_none() && !self.seen_at_work && self.tally.count() < ENOUGH_PAUSES {
            return (first, first, Basis::Inferred);
        }
        let since = self.described.as_ref().map(|process| process.since_ns);
        let end = self.exit.map(|exit| exit.at_ns).or(ended_ns);
        let basis = match (since, end) {
            (Some(_), Some(_)) => Basis::Measured,
            _ => Basis::Inferred,
        };
        let start = since.unwrap_or(first).min(first);
        let end = match (end, since) {
            (Some(end), _) => end.max(last),
            (None, Some(_)) => last_ns.max(last),
            (None, None) => last,
        };
        (start, end.max(start), basis)
    }

    /// Time for which its Python code was blocked, in ns, and whether that is known.
    pub(crate) fn stopped_ns(&self) -> (u64, bool) {
        let paused = self.paused_ns();
        match self.tally.stopped_ns() {
            (stopped, true) if self.free_threaded() => (stopped.min(paused), true),
            _ => (paused, !self.free_threaded()),
        }
    }

    /// Time in which any thread was paused, in ns; an upper bound if `inexact`.
    pub(crate) fn paused_ns(&self) -> u64 {
        self.paused.length_ns() + self.paused.late_ns()
    }

    pub(crate) fn inexact(&self) -> bool {
        self.paused.late_ns() > 0
    }

    fn lines(&self, tree: &StackTree) -> Option<LinesReport> {
        let mut ranking = StackRanking::new(tree, self.tally.time_ns());
        ranking.add(&self.stacks);
        ranking.report(RankingLimits::PROCESS)
    }

    fn pressure(&self, observed_ns: u64) -> Option<PressureReport> {
        let described = self.described.as_ref();
        let interpreter = described.and_then(|process| process.interpreter.as_ref());
        let version = interpreter.map(|interpreter| interpreter.version.as_str());
        self.pressure.report(observed_ns, version)
    }

    /// `observed`: the result of [`ProcessState::observed`].
    pub(crate) fn report(
        &self,
        started_ns: u64,
        observed: (u64, u64, Basis),
        tree: &StackTree,
    ) -> ProcessReport {
        let (start_ns, end_ns, basis) = observed;
        let observed_ns = end_ns - start_ns;
        let described = self.described.as_ref();
        let stopped_ns = self.stopped_ns().0;
        ProcessReport {
            trace: self.trace,
            pid: self.pid,
            namespace_pid: described.and_then(|process| process.namespace_pid),
            parent: described.and_then(|process| process.parent),
            rank: described.and_then(|process| process.rank),
            command: match described {
                Some(process) => process.command.clone(),
                None => self.name.iter().cloned().collect(),
            },
            origin: described.map(|process| origin(process.origin).to_owned()),
            interpreter: self.interpreter(),
            since_start_ns: start_ns.saturating_sub(started_ns),
            observed_ns,
            basis,
            pauses: self.tally.report(),
            by_generation: self.by_generation,
            by_reason: self.by_reason,
            paused_ns: self.paused_ns(),
            stopped_ns,
            stopped_ratio: ratio(stopped_ns.min(observed_ns), observed_ns),
            threads: self.threads.len() as u64,
            young_per_s: rate(self.young_automatic, observed_ns),
            freed_per_s: rate(self.freed_by_automatic, observed_ns),
            settings: self
                .settings
                .as_ref()
                .map(|(settings, changes)| SettingsReport {
                    basis: Basis::Measured,
                    enabled: settings.enabled,
                    thresholds: settings.thresholds,
                    changes: *changes,
                }),
            growth: self.growth.report(started_ns),
            lines: self.lines(tree),
            pressure: self.pressure(observed_ns),
            allocations: self.allocations.report(tree),
            counters: self.counters.report(),
            exit_code: self.exit.and_then(|exit| exit.code),
            exit_signal: self.exit.and_then(|exit| exit.signal),
        }
    }

    fn interpreter(&self) -> Option<InterpreterReport> {
        let interpreter = self.described.as_ref()?.interpreter.as_ref()?;
        Some(InterpreterReport {
            version: interpreter.version.clone(),
            collector: interpreter.collector.clone(),
            free_threaded: interpreter.free_threaded,
            file: interpreter.file.clone(),
            found_by: interpreter.found_by.clone(),
        })
    }
}

fn origin(origin: ProcessOrigin) -> &'static str {
    match origin {
        ProcessOrigin::Launched => "launched",
        ProcessOrigin::Child => "child",
        ProcessOrigin::Attached => "attached",
    }
}
