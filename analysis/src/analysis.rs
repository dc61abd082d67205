//! The aggregator: the items of one trace after another in, one report out.
//!
//! Owns the sums over pauses. Does not read files; texts are in `verdict.rs` and `advice.rs`, the
//! report is built in `summary.rs`.

mod append;
mod deferred;
mod one_clock;
mod pause_list;
mod process_stacks;
mod records;
mod thread_times;
mod unlisted;

use self::deferred::DeferredCollections;
pub use self::one_clock::{OneClock, ProcessOnClock};
pub use self::pause_list::{
    CommonClock, ListedPause, PauseList, PausedProcess, PausesNotListed, ProcessMemoryList, StackId,
};
pub use self::process_stacks::{ProcessStacks, SampledStack, WeightedStack};
use crate::accumulate::kept_pauses::KeptPauses;
use crate::accumulate::process::ProcessState;
use crate::accumulate::process_sums::PidTable;
use crate::accumulate::trace_state::TraceState;
use crate::accumulate::unlisted::UnlistedProcesses;
use crate::accumulate::worst_pauses::WorstPauses;
use crate::cpu::spans::TraceSpans;
use crate::gpu::collect::{TimelineCollector, TimelineContext};
use crate::gpu::kept::KeptTimeline;
use crate::pauses::{PauseTally, freed_nothing, generation_index, reason_index};
use crate::report::{ByCause, PauseTotal, TraceWriter};
use crate::stacks::{StackTree, TraceFrames};
use gctrace_event::read::{DecodedItem, TraceCompletion};
use gctrace_event::{ForeignTimes, GcReason, Pause, Record};
use std::collections::HashMap;
use std::num::NonZeroUsize;

/// Sums over all traces so far. For each trace call [`Analysis::begin_trace`], [`Analysis::add`]
/// for every item, [`Analysis::end_trace`]; then [`Analysis::settle`] and [`Analysis::report`].
/// Traces may also be read into analyses of their own, one [appended](Analysis::append) to another.
#[derive(Debug, Default)]
pub struct Analysis {
    pub(crate) traces: Vec<TraceState>,
    pub(crate) processes: Vec<ProcessState>,
    /// For each trace with more processes than are listed: the stacks and counters of the others.
    pub(crate) unlisted: Vec<ProcessState>,
    pub(crate) all: PauseTally,
    pub(crate) by_generation: [PauseTally; 4],
    pub(crate) by_reason: [PauseTally; 4],
    pub(crate) worst: WorstPauses,
    /// Unless only their sums are wanted.
    kept_pauses: Option<KeptPauses>,
    pub(crate) nothing: ByCause,
    /// Automatic full collections, whatever they freed.
    pub(crate) automatic_full: PauseTotal,
    pub(crate) unfinished: PauseTotal,
    pub(crate) unreadable: Vec<String>,
    pub(crate) stacks: StackTree,
    /// One per process that collected or used a GPU, trace by trace.
    pub(crate) timelines: Vec<KeptTimeline>,
    /// One per trace.
    thread_spans: Vec<TraceSpans>,
    deferred: Vec<DeferredCollections>,
    current: CurrentTrace,
    /// 1 unless it is set.
    pub(crate) threads: Option<NonZeroUsize>,
}

/// State of the trace that is being read.
#[derive(Debug, Default)]
struct CurrentTrace {
    processes: PidTable<usize>,
    rest: UnlistedProcesses,
    thread_names: HashMap<(u32, u32), String>,
    process_names: HashMap<u32, String>,
    frames: TraceFrames,
    gpu: TimelineCollector,
    deferred: DeferredCollections,
    foreign: ForeignTimes,
    spans_of_threads: TraceSpans,
    /// First and last time of processes in traces of other tools.
    spans: HashMap<u32, (u64, u64)>,
}

impl Analysis {
    /// Starts the next trace; `file` is its name in the report.
    pub fn begin_trace(&mut self, file: &str) {
        self.current = CurrentTrace::default();
        self.traces.push(TraceState {
            file: file.to_owned(),
            first_process: self.processes.len(),
            ..TraceState::default()
        });
    }

    /// Adds one item of the trace.
    pub fn add(&mut self, item: DecodedItem<'_>) {
        let Some(trace) = self.traces.last_mut() else {
            return;
        };
        match item {
            DecodedItem::Record(Record::Pause(mut pause)) => {
                self.current.foreign.without(&mut pause);
                trace.see(pause.start_ns, pause.end_ns);
                if self.is_unlisted(pause.pid) {
                    return self.add_unlisted_pause(&pause);
                }
                self.current.gpu.add_pause(&pause);
                let index = self.index_at(pause.pid, pause.start_ns);
                if let Some(pause) = self.defer(index, pause) {
                    self.add_pause(index, &pause);
                }
            }
            DecodedItem::Record(record) => {
                self.current.foreign.note(&record);
                if let Some(record) = self.add_unlisted(record) {
                    self.add_record(record);
                }
            }
            DecodedItem::Header(header) => trace.header = Some(*header),
            DecodedItem::ProcessName { pid, name } => {
                self.current.process_names.insert(pid, name);
            }
            DecodedItem::Other(event) => {
                if let Some((pid, start_ns, end_ns)) = event.work() {
                    self.see_work(pid, start_ns, end_ns);
                }
            }
            DecodedItem::Work { pid, start_ns, end_ns } => self.see_work(pid, start_ns, end_ns),
            DecodedItem::Property(property) => trace.profiler.set(property),
            DecodedItem::Unusable => {}
        }
    }

    /// The trace was written by this process when its reading began: it is not whole.
    pub fn is_still_written(&mut self, writer: TraceWriter) {
        if let Some(trace) = self.traces.last_mut() {
            trace.writer = Some(writer);
        }
    }

    /// Ends the trace. `damage`: why it could not be read to its end; what came before counts. A
    /// trace without evidence is only listed.
    pub fn end_trace(&mut self, ending: TraceCompletion, damage: Option<String>) {
        let mut current = std::mem::take(&mut self.current);
        let Some(trace) = self.traces.last_mut() else {
            return;
        };
        if !trace.has_evidence() {
            self.processes.truncate(trace.first_process);
            self.traces.pop();
            self.unreadable.extend(damage);
            return;
        }
        trace.ending = ending;
        trace.damage = damage;
        let index = self.traces.len() - 1;
        self.note_repetition(index);
        self.deferred.extend(current.deferred.take(index, &current.thread_names));
        std::mem::take(&mut current.spans_of_threads).push_to(&mut self.thread_spans);
        let about = self.about(index, &current);
        let timelines = current.gpu.finish(&about).into_iter();
        self.timelines.extend(timelines.map(KeptTimeline::from));
        let processes = self.processes.iter_mut().rev();
        for process in processes.take_while(|process| process.trace == index) {
            process.name = current.process_names.get(&process.sums.pid).cloned();
            process.stacks.resolve(&current.frames, &mut self.stacks);
            process.sums.garbage.settle();
            if let Some((start, end)) = current.spans.get(&process.sums.pid) {
                process.see_at_work(*start, *end);
            }
        }
        let rest = &mut current.rest;
        self.unlisted.extend(rest.take_together(&current.frames, &mut self.stacks));
        if let Some(trace) = self.traces.get_mut(index) {
            let ended_ns = trace.end.as_ref().map(|end| end.ended_ns);
            let last_ns = trace.last_ns();
            trace.unlisted = std::mem::take(rest).finish(ended_ns, last_ns);
        }
        if let Some(kept) = &mut self.kept_pauses {
            kept.resolve(index, &current.frames, &mut self.stacks);
        }
        for entry in &mut self.worst.entries {
            if entry.trace == index {
                let thread = (entry.pause.pid, entry.pause.tid);
                entry.thread = current.thread_names.get(&thread).cloned();
                entry.node = current.frames.known(entry.pause.stack, &mut self.stacks);
            }
        }
    }

    /// Whether the trace being read contributes to a report, that is, it is one of gctrace's or
    /// contains a collection; after the last trace, whether any does.
    pub fn has_evidence(&self) -> bool {
        self.traces.last().is_some_and(TraceState::has_evidence)
    }

    /// Ranks of the traces read so far and of their processes, as far as they are known.
    pub fn ranks(&self) -> impl Iterator<Item = u32> {
        let of_traces = self.traces.iter().filter_map(TraceState::rank);
        let of_processes = self.processes.iter();
        of_traces.chain(of_processes.filter_map(|process| process.sums.rank()))
    }

    /// The number of ranks that the traces state: the largest if they differ, `None` if none does.
    pub fn world_size(&self) -> Option<u32> {
        self.traces.iter().filter_map(|trace| trace.profiler.world_size).max()
    }

    /// The GPU work read so far: one timeline for each process that collected or made calls, trace
    /// by trace.
    pub fn timelines(&self) -> &[KeptTimeline] {
        &self.timelines
    }

    /// How many threads [`Analysis::report`] uses where processes are independent of each other: 1
    /// if this is not called. The report does not depend on it.
    pub fn set_threads(&mut self, threads: NonZeroUsize) {
        self.threads = Some(threads);
    }

    /// Mentions in the report a file that could not be opened.
    pub fn leave_out(&mut self, why: String) {
        self.unreadable.push(why);
    }

    /// Completes the metadata from the processes and the header of the trace that ends.
    fn about(&self, index: usize, current: &CurrentTrace) -> TimelineContext {
        let described = || {
            let mine = self.processes.iter().rev();
            let mine = mine.take_while(|process| process.trace == index);
            mine.filter_map(|process| process.sums.described.as_ref())
        };
        let trace = self.traces.get(index);
        TimelineContext {
            trace: index,
            is_ours: matches!(trace, Some(trace) if trace.header.is_some()),
            rank: trace.and_then(TraceState::rank),
            world_size: trace.and_then(|trace| trace.profiler.world_size),
            ranks: described().filter_map(|process| Some((process.pid, process.rank?))).collect(),
            namespace_pids: described()
                .filter_map(|process| Some((process.pid, process.namespace_pid?)))
                .collect(),
            thread_names: current.thread_names.clone(),
            unix_offset_ns: trace.and_then(TraceState::unix_offset_ns),
        }
    }

    /// Notes if the trace that ends was given before, judged by the profiler's id of it.
    pub(super) fn note_repetition(&mut self, index: usize) {
        let Some((before, rest)) = self.traces.split_at_mut_checked(index) else {
            return;
        };
        let Some(trace) = rest.first_mut() else {
            return;
        };
        let same = |other: &&TraceState| {
            trace.profiler.trace_id.is_some() && other.profiler.trace_id == trace.profiler.trace_id
        };
        if let Some(same) = before.iter().find(same) {
            trace.repeats = Some(same.file.clone());
        }
    }

    fn add_pause(&mut self, index: usize, pause: &Pause) {
        let process = &mut self.processes[index];
        if let Some(basis) = process.explicit(pause) {
            let node = self.current.frames.known(pause.stack, &mut self.stacks);
            process.cleanup.add_collect(pause, basis, node);
        }
        process.add(pause);
        let (trace, full) = (process.trace, process.sums.is_full(pause.generation));
        self.count(trace, Some(index), pause, full);
    }

    /// Counts a pause in all that is not of one process.
    fn count(&mut self, index: usize, process: Option<usize>, pause: &Pause, full: bool) {
        if let Some(trace) = self.traces.get_mut(index) {
            trace.effort.add(pause.duration_ns());
            trace.max_ns = trace.max_ns.max(Some(pause.duration_ns()));
            trace.sources.add(pause.source, pause.start_ns, pause.end_ns);
        }
        self.all.add(pause);
        if let Some(tally) = self.by_generation.get_mut(generation_index(pause.generation)) {
            tally.add(pause);
        }
        if let Some(tally) = self.by_reason.get_mut(reason_index(pause.reason)) {
            tally.add(pause);
        }
        if full && pause.reason == GcReason::Automatic {
            self.automatic_full.add(pause.duration_ns());
        }
        if freed_nothing(pause) {
            self.nothing.of(pause.reason, full).add(pause.duration_ns());
        }
        if pause.unfinished {
            self.unfinished.add(pause.duration_ns());
        }
        self.worst.add(index, process, pause);
        if let Some(kept) = &mut self.kept_pauses {
            kept.add(index, process, pause);
        }
    }

    /// The process that had this id at that time.
    fn process_at(&mut self, pid: u32, at_ns: u64) -> &mut ProcessState {
        let index = self.index_at(pid, at_ns);
        &mut self.processes[index]
    }

    fn index_at(&mut self, pid: u32, at_ns: u64) -> usize {
        let since_ns = |index: usize| self.processes[index].sums.since_ns();
        let index = self.current.processes.at(pid, at_ns, since_ns);
        index.unwrap_or_else(|| self.new_process(pid))
    }

    fn new_process(&mut self, pid: u32) -> usize {
        let index = self.processes.len();
        self.processes.push(ProcessState::new(self.traces.len() - 1, pid));
        self.current.processes.begin(pid, index);
        index
    }
}
