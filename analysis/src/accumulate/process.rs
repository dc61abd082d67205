//! The state of one process while a trace is read: its sums, and data that only the report shows.

use super::process_sums::ProcessSums;
use crate::allocations::LastAllocations;
use crate::bounded::Keep;
use crate::called::CalledSums;
use crate::cleanup::CleanupSums;
use crate::counters::CounterSums;
use crate::cpu::CpuSums;
use crate::cpu::waits::CpuWaits;
use crate::growth;
use crate::layers::LayerSums;
use crate::leak_watch::alive::AliveByLine;
use crate::pauses::{PauseTally, reason_index};
use crate::report::{
    Basis, CleanupScale, CpuReport, HeapTrend, InterpreterReport, LinesReport, PressureReport,
    ProcessReport, Workload,
};
use crate::settings::ExplicitCalls;
use crate::spans::StepSpan;
use crate::stacks::{NodeId, RankingLimits, StackRanking, StackTree, TraceStacks};
use crate::time::{duration_ns, extend};
use crate::turns::LoopSums;
use gctrace_event::{CollectorKind, FrameId, GcReason, Pause, Process, Record};
use gctrace_stats::{rate, ratio};
use std::collections::BTreeSet;

/// Significant digits of one process's percentiles; there may be thousands of processes.
const DIGITS: u8 = 2;

/// Disjoint pauses kept for comparison with later ones, 16 bytes each. Traces are nearly in order of
/// time, except for pauses of `--mode both` that only one source saw: they are written a second
/// later. A program that does nothing but collect reaches 10,000 pauses per second.
const PAUSES_KEPT: usize = 16_384;

/// This many pauses, if there is nothing else, show by the first and last timestamp how long a
/// process ran: the share of time is then off by at most about one tenth.
pub(crate) const ENOUGH_PAUSES: u64 = 10;

/// Facts about a process from records kept elsewhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherRecords {
    /// Its training steps after the warm-up, of one thread by start.
    pub(crate) steps: Vec<StepSpan>,
    /// Its trace has CUDA calls.
    pub(crate) has_device: bool,
    /// Device memory that it freed during pauses, in bytes; `None` if that was not recorded.
    pub(crate) device_bytes: Option<u64>,
}

/// One process of one trace.
#[derive(Debug, Default)]
pub(crate) struct ProcessState {
    pub(crate) trace: usize,
    pub(crate) sums: ProcessSums,
    /// Name given by another tool.
    pub(crate) name: Option<String>,
    /// First and last time of its events.
    seen: Option<(u64, u64)>,
    /// Whether something but pauses was seen of it.
    seen_at_work: bool,
    /// Threads that ran the collector.
    threads: BTreeSet<u32>,
    pub(crate) tally: PauseTally,
    freed_by_automatic: u64,
    pub(crate) stacks: TraceStacks,
    pub(crate) allocations: LastAllocations,
    pub(crate) called: CalledSums,
    /// The line that set its settings.
    pub(crate) settings_by: Option<NodeId>,
    pub(crate) alive: AliveByLine<NodeId>,
    pub(crate) cleanup: Box<CleanupSums>,
    calls: ExplicitCalls,
    pub(crate) layers: LayerSums,
    pub(crate) cpu: CpuSums,
    pub(crate) loops: LoopSums,
    pub(crate) waits: CpuWaits,
    pub(crate) counters: Box<CounterSums>,
}

impl ProcessState {
    pub(crate) fn new(trace: usize, pid: u32) -> Self {
        Self {
            trace,
            sums: ProcessSums::new(pid, Keep::All, PAUSES_KEPT),
            tally: PauseTally::new(DIGITS),
            ..Self::default()
        }
    }

    /// Extends its time by the first and last timestamp of other events.
    pub(crate) fn see_at_work(&mut self, start_ns: u64, end_ns: u64) {
        self.seen_at_work = true;
        self.see(start_ns, end_ns);
    }

    fn see(&mut self, start_ns: u64, end_ns: u64) {
        extend(&mut self.seen, start_ns, end_ns);
    }

    /// Adds any record of it but a pause. `node`: the stack of a frame.
    pub(crate) fn record(
        &mut self,
        record: Record,
        mut node: impl FnMut(FrameId) -> Option<NodeId>,
    ) {
        let stack = record.head().stack.and_then(&mut node);
        let sets = self.sums.record(&record);
        match record {
            Record::Settings(_) if sets => self.settings_by = stack,
            Record::Counters(whole) => self.counters.set_whole(whole),
            Record::Pressure(pressure) => self.waits.add(&pressure),
            Record::Allocations(allocations) => {
                let stacks = allocations.stacks.iter();
                let stacks = stacks.filter_map(|(frame, count)| Some((node(*frame)?, *count)));
                let stacks = stacks.collect();
                self.allocations.set(allocations, stacks);
            }
            Record::Called(called) => self.called.add(&called, stack),
            Record::AliveLines(alive) => self.alive.add(&alive, node),
            Record::Layers(layers) => self.layers.add(layers),
            Record::Turns(turns) => self.loops.add(&turns, stack),
            Record::Turn(turn) => self.loops.add_turn(turn),
            other => self.cleanup.record(&other, stack),
        }
    }

    /// Whether the program asked for the next collection, and the basis of that; `None`: no, or unknown.
    pub(crate) fn explicit(&mut self, pause: &Pause) -> Option<Basis> {
        let generational = match self.sums.interpreter() {
            Some(interpreter) => interpreter.collector == CollectorKind::Generational,
            None => false,
        };
        let thresholds = self.sums.settings.thresholds();
        if let Some(thresholds) = thresholds {
            self.calls.set(thresholds);
        }
        let is_explicit = self.calls.is_explicit(pause.generation, pause.reason);
        match pause.reason {
            GcReason::Manual => Some(Basis::Measured),
            GcReason::Unknown if is_explicit && generational => thresholds.map(|_| Basis::Inferred),
            _ => None,
        }
    }

    pub(crate) fn add(&mut self, pause: &Pause) {
        self.see(pause.start_ns, pause.end_ns);
        self.tally.add(pause);
        self.loops.add_pause(pause);
        let paused = &mut self.sums.paused;
        paused.add(pause.start_ns, pause.end_ns, |_, _| {});
        paused.trim(|_, _| {});
        self.threads.insert(pause.tid);
        if pause.reason == GcReason::Automatic {
            gctrace_units::add_if_known(&mut self.freed_by_automatic, pause.collected);
        }
        let full = self.sums.is_full(pause.generation);
        self.sums.add_pause(pause, full);
        self.add_shared(pause, full);
    }

    /// Counts the parts that are also summed over processes: the stack and the counters.
    pub(crate) fn add_shared(&mut self, pause: &Pause, full: bool) {
        self.stacks.add(pause, full);
        let traversed = if full { growth::traversed(pause) } else { None };
        self.counters.add(pause, traversed);
    }

    /// Start and end of its recording, and whether both are known rather than taken from its
    /// events. A process with nothing but a few pauses has no observed time. `ended_ns`: the end of
    /// the recording, if the trace has a last line; otherwise `last_ns`, the last timestamp in the
    /// trace, is used.
    pub(crate) fn observed(&self, ended_ns: Option<u64>, last_ns: u64) -> (u64, u64, Basis) {
        let (first, last) = self.seen.unwrap_or((last_ns, last_ns));
        if self.sums.described.is_none() && !self.seen_at_work && self.tally.count() < ENOUGH_PAUSES
        {
            return (first, first, Basis::Inferred);
        }
        let since = self.sums.since_ns();
        let end = self.sums.exit.map(|exit| exit.at_ns).or(ended_ns);
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

    /// Time that its Python code was blocked, in ns, and whether this is known.
    pub(crate) fn stopped_ns(&self) -> (u64, bool) {
        let paused = self.sums.paused.length_ns();
        match self.tally.stopped_ns() {
            (stopped, true) if self.sums.free_threaded() => (stopped.min(paused), true),
            _ => (paused, !self.sums.free_threaded()),
        }
    }

    pub(crate) fn paused_ns(&self) -> u64 {
        self.sums.paused.length_ns()
    }

    pub(crate) fn inexact(&self) -> bool {
        self.sums.paused.inexact()
    }

    fn lines(&self, tree: &StackTree) -> Option<LinesReport> {
        let mut ranking = StackRanking::new(tree, self.tally.time_ns());
        ranking.add(&self.stacks);
        ranking.report(RankingLimits::PROCESS)
    }

    /// What its threads executed; `hertz`: samples a second.
    pub(crate) fn cpu(
        &self,
        (start_ns, end_ns, _): (u64, u64, Basis),
        tree: &StackTree,
        hertz: u32,
    ) -> Option<CpuReport> {
        let triggers = self.stacks.iter().map(|(node, _)| node).collect();
        self.cpu.report((self.trace, self.sums.pid), end_ns - start_ns, tree, &triggers, hertz)
    }

    fn pressure(&self, observed_ns: u64) -> Option<PressureReport> {
        self.sums.pressure.report(observed_ns, self.sums.version())
    }

    /// `observed`: the result of [`ProcessState::observed`]. `about`: what other records show of it.
    pub(crate) fn report(
        &self,
        started_ns: u64,
        observed: (u64, u64, Basis),
        tree: &StackTree,
        about: &OtherRecords,
    ) -> ProcessReport {
        let (start_ns, end_ns, basis) = observed;
        let observed_ns = end_ns - start_ns;
        let described = self.sums.described.as_ref();
        let undescribed = Process::default();
        let known = described.unwrap_or(&undescribed);
        let exit = self.sums.exit.unwrap_or_default();
        let stopped_ns = self.stopped_ns().0;
        let young = &self.tally.sums.totals[reason_index(GcReason::Automatic)][0];
        ProcessReport {
            trace: self.trace,
            pid: self.sums.pid,
            namespace_pid: known.namespace_pid,
            parent: known.parent,
            rank: self.sums.rank(),
            command: match described {
                Some(process) => process.command.clone(),
                None => self.name.iter().cloned().collect(),
            },
            origin: described.map(|process| process.origin),
            interpreter: self.interpreter(),
            torch: known.torch.clone(),
            since_start_ns: duration_ns(started_ns, start_ns),
            observed_ns,
            basis,
            unseen: known.unseen.map(Into::into),
            pauses: self.tally.report(),
            by_generation: self.tally.sums.by_generation(),
            by_reason: self.tally.sums.by_reason(),
            paused_ns: self.paused_ns(),
            stopped_ns,
            stopped_ratio: ratio(stopped_ns.min(observed_ns), observed_ns),
            threads: self.threads.len() as u64,
            young_per_s: rate(young.count, observed_ns),
            freed_per_s: rate(self.freed_by_automatic, observed_ns),
            settings: self
                .sums
                .settings
                .report(self.settings_by.and_then(|node| tree.frames(node).next().cloned())),
            growth: self.sums.growth.report(started_ns),
            largest_heap: self.sums.growth.largest(),
            inherited: self.sums.inherited,
            trend: self.trend((start_ns, end_ns), about, tree),
            memory: self
                .sums
                .memory
                .report(self.sums.memory_limit_bytes(), self.sums.leaks.kept_bytes()),
            after_freeze: self.sums.freeze.report(started_ns),
            garbage: self.sums.garbage.report(observed_ns, about.device_bytes, &about.steps),
            lines: self.lines(tree),
            called: self.called.report(tree),
            cleanup: self.cleanup.report(started_ns, tree, self.scale(about, observed_ns)),
            layers: self.layers.report(started_ns, observed_ns),
            pressure: self.pressure(observed_ns),
            allocations: self.allocations.report(tree),
            counters: self.counters.report(),
            exit_code: exit.code,
            exit_signal: exit.signal,
        }
    }

    fn trend(
        &self,
        span_ns: (u64, u64),
        about: &OtherRecords,
        tree: &StackTree,
    ) -> Option<HeapTrend> {
        let life = self.sums.life(span_ns, about.steps.first().map(|step| step.start_ns));
        let mut trend = self.sums.leaks.trend(&life)?;
        self.alive.explain(&mut trend, tree, &life);
        Some(trend)
    }

    /// The sizes that its explicit cleanup is judged by.
    fn scale(&self, about: &OtherRecords, observed_ns: u64) -> CleanupScale {
        CleanupScale {
            resident_bytes: self.sums.memory.report.resident_bytes,
            reserved_bytes: None,
            has_device: about.has_device,
            limit_bytes: self.sums.memory_limit_bytes(),
            observed_ns,
            workload: self.workload(about, observed_ns),
        }
    }

    fn workload(&self, about: &OtherRecords, observed_ns: u64) -> Workload {
        /// A script that runs for longer is a service, or a person waits for it.
        const SHORT_NS: u64 = 60_000_000_000;
        let mut command = self.sums.described.iter().flat_map(|process| &process.command);
        // `python -m ipykernel_launcher`, started by all front ends.
        if command.any(|word| word.contains("ipykernel")) {
            Workload::Notebook
        } else if !about.steps.is_empty() {
            Workload::Training
        } else if self.sums.exit.is_some() && observed_ns < SHORT_NS {
            Workload::Script
        } else {
            Workload::Service
        }
    }

    fn interpreter(&self) -> Option<InterpreterReport> {
        let interpreter = self.sums.interpreter()?;
        Some(InterpreterReport {
            version: interpreter.version.clone(),
            collector: interpreter.collector.clone(),
            free_threaded: interpreter.free_threaded,
            file: interpreter.file.clone(),
            found_by: interpreter.found_by.clone(),
        })
    }
}
