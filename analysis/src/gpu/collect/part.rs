//! One process's records as a timeline.
//!
//! Owns the links (operation to call, call to thread, wait to event) and the ignored records.

use super::{
    NO_PROCESS, ProcessBuilder, RawCall, RawCode, RawOp, TimedMark, TimelineContext, WorkOfProcess,
};
use crate::gpu::calls::CallEffect;
use crate::gpu::periods;
use crate::gpu::timeline::{
    Call, CallIndex, CodeSpan, EventWait, Op, ProcessTimeline, StepSpan, Stream, StreamIndex,
    StringTable, ThreadIndex, Timeline,
};
use crate::spans::StepSource;
use crate::spans::index::Index;
use gctrace_event::{GpuSync, GpuSyncKind};
use indexmap::IndexSet;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

impl ProcessBuilder {
    pub(super) fn timeline(
        mut self,
        pid: u32,
        work: WorkOfProcess,
        (names, all_streams): (&Arc<StringTable>, &IndexSet<Stream>),
        about: &TimelineContext,
    ) -> Timeline {
        let WorkOfProcess { ops, syncs, code } = work;
        for thread in &mut self.timeline.threads {
            thread.name = about.thread_names.get(&(pid, thread.tid)).cloned();
        }
        if self.timeline.steps.is_empty() {
            self.timeline.steps = self.steps_between_marks();
        }
        let streams = if ops.is_empty() {
            self.streams_by_handle()
        } else {
            SortedStreams::of(ops.iter().map(|raw| all_streams[raw.op.stream.at()]))
        };
        let counted_launches = self.take_counted_launches(&streams);
        let mut timeline = Timeline { counted_launches, names: Arc::clone(names), ..self.timeline };
        timeline.process = ProcessTimeline {
            trace: about.trace,
            process_trace: about.trace,
            pid,
            namespace_pid: about.namespace_pids.get(&pid).copied(),
            rank: about.ranks.get(&pid).copied().or(about.rank),
            world_size: about.world_size,
            unix_offset_ns: about.unix_offset_ns,
            is_ours: about.is_ours,
            packed: Arc::new(self.pauses.sorted()),
            ..timeline.process
        };
        let correlations = timeline.add_calls(self.calls, &streams);
        timeline.add_ops(&ops, &correlations, (&streams, all_streams));
        if pid == NO_PROCESS && timeline.calls.is_empty() {
            timeline.ignored.operations_without_process = timeline.ops.len() as u64;
        }
        timeline.waits = waits(&syncs, &correlations, &streams);
        timeline.streams = streams.sorted;
        timeline.annotations.sort_by_key(|annotation| annotation.start_ns);
        timeline.samples.sort_by_key(|samples| samples.start_ns);
        if timeline.has_gpu_times() {
            timeline.code = code_by_thread(&code, &self.thread_indices, &timeline.calls, names);
        }
        timeline.steps = apart(std::mem::take(&mut timeline.steps));
        if timeline.steps.is_empty() {
            timeline.steps = periods::steps(&timeline);
        }
        let idle = timeline.ops.is_empty()
            && timeline.calls.is_empty()
            && timeline.counted_launches.is_empty()
            && timeline.steps.is_empty()
            && timeline.annotations.is_empty();
        if !(idle && about.is_ours) {
            timeline.unpack();
        }
        timeline
    }

    /// Steps from one mark to the next of the same thread: of the preferred marker that has any, on
    /// each thread of the one with the most marks (a program may have several optimizers).
    fn steps_between_marks(&mut self) -> Vec<StepSpan> {
        let mut by_source: BTreeMap<StepSource, BTreeMap<u32, Vec<TimedMark>>> = BTreeMap::new();
        for ((tid, marker), mut marks) in std::mem::take(&mut self.marks) {
            marks.sort_unstable();
            marks.dedup_by_key(|(at_ns, _)| *at_ns);
            let threads = by_source.entry(StepSource::from(&marker)).or_default();
            let most = threads.entry(tid).or_default();
            if marks.len() > most.len() {
                *most = marks;
            }
        }
        for (source, threads) in by_source {
            let of_thread = |(tid, marks): (u32, Vec<TimedMark>)| {
                periods::steps_between(source, self.thread(tid), &marks)
            };
            let steps: Vec<StepSpan> = threads.into_iter().flat_map(of_thread).collect();
            if !steps.is_empty() {
                return steps;
            }
        }
        Vec::new()
    }
}

/// Calls by correlation id; the first of several with one id.
#[derive(Debug, Default)]
struct CorrelationMap {
    sorted: Vec<(u64, CallIndex)>,
}

impl CorrelationMap {
    fn of(mut calls: Vec<(u64, CallIndex)>) -> Self {
        calls.sort_unstable();
        calls.dedup_by_key(|(id, _)| *id);
        Self { sorted: calls }
    }

    fn call(&self, id: Option<u64>) -> Option<CallIndex> {
        let id = id?;
        let at = self.sorted.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.sorted[at].1)
    }
}

impl Timeline {
    /// Adds the calls by start, leaves out nested ones, and returns for each correlation id the index of
    /// the outermost call, since driver and runtime share the id.
    fn add_calls(&mut self, mut calls: Vec<RawCall>, streams: &SortedStreams) -> CorrelationMap {
        // If two have the same start, the longer one encloses the other.
        calls.sort_by_key(|raw| (raw.call.start_ns, Reverse(raw.call.end_ns)));
        let mut correlations = Vec::with_capacity(calls.len());
        let mut open: Vec<Option<(CallIndex, RawCall)>> = vec![None; self.threads.len()];
        self.calls.reserve_exact(calls.len());
        for raw in calls {
            let around = &mut open[raw.call.thread.at()];
            let at = match around {
                Some((at, outer)) if raw == *outer => {
                    self.ignored.duplicates += 1;
                    *at
                }
                Some((at, outer)) if raw.call.end_ns <= outer.call.end_ns && outer.call.timed => {
                    self.ignored.nested_calls += 1;
                    *at
                }
                _ => {
                    let stream = raw.stream.and_then(|number| streams.only(number));
                    let at = Index::push(&mut self.calls, Call { stream, ..raw.call });
                    *around = Some((at, raw));
                    at
                }
            };
            correlations.extend(raw.correlation.map(|id| (id, at)));
        }
        CorrelationMap::of(correlations)
    }

    /// `streams`: of the process, and all of the trace; the operations refer to the latter.
    #[expect(clippy::expect_used, reason = "the list of streams was made of the operations")]
    fn add_ops(
        &mut self,
        ops: &[RawOp],
        correlations: &CorrelationMap,
        (streams, all_streams): (&SortedStreams, &IndexSet<Stream>),
    ) {
        self.ops.reserve_exact(ops.len());
        let mut before = None;
        for raw in ops {
            let call = correlations.call(raw.correlation);
            // Many kernels of a graph share the id of its launch, and may be equal in all else.
            let kind = call.map(|call| self.calls[call].kind);
            let named = raw.correlation.is_some() && kind != Some(CallEffect::GraphLaunch);
            if named && before == Some(raw) {
                self.ignored.duplicates += 1;
                continue;
            }
            before = Some(raw);
            let stream = streams.index(all_streams[raw.op.stream.at()]);
            let stream = stream.expect("invariant: the streams of all operations are listed");
            self.add(Op { stream, call, ..raw.op }, raw.bytes);
        }
    }

    fn add(&mut self, op: Op, bytes: Option<u64>) {
        match op.call {
            None => self.ignored.operations_without_call += 1,
            Some(call) => {
                let call = &mut self.calls[call];
                call.stream.get_or_insert(op.stream);
                if op.start_ns < call.start_ns {
                    self.ignored.operations_before_call += 1;
                }
            }
        }
        let at = Index::push(&mut self.ops, op);
        self.op_bytes.extend(bytes.map(|bytes| (at, bytes)));
    }
}

/// The streams of a process, sorted.
#[derive(Debug, Default)]
pub(super) struct SortedStreams {
    sorted: Vec<Stream>,
}

impl SortedStreams {
    pub(super) fn of(streams: impl Iterator<Item = Stream>) -> Self {
        let mut sorted = BTreeSet::new();
        sorted.extend(streams);
        Self { sorted: sorted.into_iter().collect() }
    }

    fn index(&self, stream: Stream) -> Option<StreamIndex> {
        let found = self.sorted.binary_search(&stream);
        found.ok().map(Index::new)
    }

    /// The stream of that number, if only one device has one.
    pub(super) fn only(&self, number: u64) -> Option<StreamIndex> {
        let mut found =
            Index::enumerate(&self.sorted).filter(|(_, stream)| stream.number == number);
        match (found.next(), found.next()) {
            (Some((at, _)), None) => Some(at),
            _ => None,
        }
    }

    fn on(&self, device: Option<u32>, number: u64) -> Option<StreamIndex> {
        match device {
            Some(_) => self.index(Stream { device, number }),
            None => self.only(number),
        }
    }
}

/// Calls before a time that are searched for the one around it; of as many threads at least.
const AROUND: usize = 64;

/// The thread that is in a call for all of an interval; `None` without one.
fn calling(calls: &[Call], (start_ns, end_ns): (u64, u64)) -> Option<ThreadIndex> {
    let before = calls.partition_point(|call| call.start_ns <= start_ns);
    let near = calls[..before].iter().rev().take(AROUND);
    near.clone().find(|call| call.end_ns >= end_ns).map(|call| call.thread)
}

/// The code of threads that are known, or that a call shows: the profiler is called in those.
fn code_by_thread(
    code: &[RawCode],
    threads: &HashMap<u32, ThreadIndex>,
    calls: &[Call],
    names: &StringTable,
) -> Vec<CodeSpan> {
    let code = code.iter().filter_map(|code| {
        let RawCode { start_ns, end_ns, thread, kind, name } = *code;
        let thread = match thread {
            Some(tid) => threads.get(&tid).copied(),
            None => calling(calls, (start_ns, end_ns)),
        };
        Some(CodeSpan { start_ns, end_ns, thread: thread?, kind, name })
    });
    let mut code: Vec<CodeSpan> = code.collect();
    let order = |code: &CodeSpan| (code.thread, code.start_ns, Reverse(code.end_ns), code.kind);
    code.sort_unstable_by(|one, other| {
        let by_name = || names.text(one.name).cmp(names.text(other.name));
        order(one).cmp(&order(other)).then_with(by_name)
    });
    code
}

fn waits(
    syncs: &[GpuSync],
    correlations: &CorrelationMap,
    streams: &SortedStreams,
) -> Vec<EventWait> {
    let call = |id: Option<u64>| correlations.call(id);
    let stream = |sync: &GpuSync, number: Option<u64>| streams.on(sync.device, number?);
    let waits = syncs.iter().filter_map(|sync| {
        let waiting = match sync.kind {
            GpuSyncKind::StreamWaitEvent => stream(sync, sync.stream),
            GpuSyncKind::Event => None,
            GpuSyncKind::Stream | GpuSyncKind::Context => return None,
        };
        Some(EventWait {
            call: call(sync.correlation)?,
            stream: waiting,
            event_stream: stream(sync, sync.event_stream),
            event_call: call(sync.event_correlation),
        })
    });
    let mut waits: Vec<EventWait> = waits.collect();
    waits.sort_by_key(|wait| wait.call);
    waits
}

/// Steps by start, cut where the next step of the thread starts.
fn apart(mut steps: Vec<StepSpan>) -> Vec<StepSpan> {
    steps.sort_by_key(|step| (step.thread, step.start_ns, step.end_ns));
    let mut list: Vec<StepSpan> = Vec::with_capacity(steps.len());
    for step in steps {
        match list.last_mut() {
            Some(last) if last.thread != step.thread => list.push(step),
            Some(last) if last.start_ns == step.start_ns => *last = step,
            Some(last) => {
                last.end_ns = last.end_ns.min(step.start_ns);
                list.push(step);
            }
            None => list.push(step),
        }
    }
    list.sort_by_key(|step| (step.start_ns, step.end_ns));
    list
}
