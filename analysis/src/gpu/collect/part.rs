//! One process's records as a timeline.
//!
//! Owns the links (operation to call, call to thread, wait to event) and what is ignored.

use super::NO_PROCESS;
use super::ProcessBuilder;
use super::RawCall;
use super::RawOp;
use super::TimelineContext;
use super::index;
use crate::gpu::calls::CallEffect;
use crate::gpu::timeline::Call;
use crate::gpu::timeline::EventWait;
use crate::gpu::timeline::NONE;
use crate::gpu::timeline::Op;
use crate::gpu::timeline::StepSource;
use crate::gpu::timeline::StepSpan;
use crate::gpu::timeline::Stream;
use crate::gpu::timeline::StringTable;
use crate::gpu::timeline::Thread;
use crate::gpu::timeline::Timeline;
use gctrace_event::BackwardStep;
use gctrace_event::GpuSync;
use gctrace_event::GpuSyncKind;
use std::collections::HashMap;
use std::sync::Arc;

impl ProcessBuilder {
    pub(super) fn timeline(
        mut self,
        pid: u32,
        ops: Vec<RawOp>,
        syncs: &[GpuSync],
        names: &Arc<StringTable>,
        about: &TimelineContext,
    ) -> Timeline {
        for thread in &mut self.threads {
            thread.name = about.thread_names.get(&(pid, thread.tid)).cloned();
        }
        let mut timeline = Timeline {
            trace: about.trace,
            process_trace: about.trace,
            pid,
            namespace_pid: about.namespace_pids.get(&pid).copied(),
            rank: about.ranks.get(&pid).copied().or(about.rank),
            unix_offset_ns: about.unix_offset_ns,
            is_ours: about.is_ours,
            names: Arc::clone(names),
            ..Timeline::default()
        };
        let streams = match ops.is_empty() {
            true => self.streams_by_handle(),
            false => StreamIndex::of(&ops),
        };
        timeline.counted_launches = self.take_counted_launches(&streams);
        let correlations = self.take_calls(&mut timeline, &streams);
        timeline.add_ops(&ops, &correlations, &streams);
        if pid == NO_PROCESS && timeline.calls.is_empty() {
            timeline.ignored.without_process = timeline.ops.len() as u64;
        }
        timeline.waits = waits(syncs, &correlations, &streams);
        timeline.streams = streams.sorted;
        self.annotations
            .sort_by_key(|annotation| annotation.start_ns);
        timeline.annotations = self.annotations;
        if self.steps.is_empty() {
            self.steps = steps_between(&mut self.thread_indices, &mut self.threads, self.backward);
        }
        timeline.steps = apart(self.steps);
        timeline.threads = self.threads;
        timeline.packed = Arc::new(self.pauses);
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

    /// Sorts the calls, leaves out nested ones, and returns the index of each correlation id: that
    /// of the outermost call, since driver and runtime share the id.
    fn take_calls(&mut self, timeline: &mut Timeline, streams: &StreamIndex) -> CorrelationMap {
        let mut calls = std::mem::take(&mut self.calls);
        // Of two with the same start, the longer one encloses the other.
        calls.sort_by_key(|raw| (raw.call.start_ns, std::cmp::Reverse(raw.call.end_ns)));
        let mut correlations = Vec::with_capacity(calls.len());
        let mut open: Vec<Option<(u32, RawCall)>> = vec![None; self.threads.len()];
        timeline.calls.reserve_exact(calls.len());
        for raw in calls {
            let slot = open.get_mut(raw.call.thread as usize);
            let around = slot.as_ref().and_then(|slot| slot.as_ref());
            let at = match around {
                Some((at, outer)) if raw == *outer => {
                    timeline.ignored.duplicates += 1;
                    *at
                }
                Some((at, outer)) if raw.call.end_ns <= outer.call.end_ns && outer.call.timed => {
                    timeline.ignored.nested_calls += 1;
                    *at
                }
                _ => {
                    let at = index(timeline.calls.len());
                    let stream = raw.stream.map_or(NONE, |number| streams.only(number));
                    timeline.calls.push(Call { stream, ..raw.call });
                    if let Some(slot) = slot {
                        *slot = Some((at, raw));
                    }
                    at
                }
            };
            correlations.extend(raw.correlation.map(|id| (id, at)));
        }
        CorrelationMap::of(correlations)
    }
}

/// Calls by correlation id; of several with one id, the first.
#[derive(Debug, Default)]
struct CorrelationMap {
    sorted: Vec<(u64, u32)>,
}

impl CorrelationMap {
    fn of(mut calls: Vec<(u64, u32)>) -> Self {
        calls.sort_unstable();
        calls.dedup_by_key(|(id, _)| *id);
        Self { sorted: calls }
    }

    fn call(&self, id: Option<u64>) -> Option<u32> {
        let id = id?;
        let at = self.sorted.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.sorted.get(at).map(|(_, call)| *call)
    }
}

impl Timeline {
    fn add_ops(&mut self, ops: &[RawOp], correlations: &CorrelationMap, streams: &StreamIndex) {
        self.ops.reserve_exact(ops.len());
        let mut before = None;
        for op in ops {
            let call = correlations.call(op.correlation);
            // Many kernels of a graph share the id of its launch, and may be equal in all else.
            let kind = call.and_then(|call| self.calls.get(call as usize));
            let kind = kind.map(|call| call.kind);
            let named = op.correlation.is_some() && kind != Some(CallEffect::GraphLaunch);
            if named && before == Some(op) {
                self.ignored.duplicates += 1;
                continue;
            }
            before = Some(op);
            self.add(op, call.unwrap_or(NONE), streams);
        }
    }

    fn add(&mut self, raw: &RawOp, call: u32, streams: &StreamIndex) {
        match self.calls.get_mut(call as usize) {
            None => self.ignored.ops_without_call += 1,
            Some(call) => {
                if call.stream == NONE {
                    call.stream = streams.index(raw.stream);
                }
                if raw.start_ns < call.start_ns {
                    self.ignored.ops_before_call += 1;
                }
            }
        }
        self.ops.push(Op {
            start_ns: raw.start_ns,
            end_ns: raw.end_ns,
            stream: streams.index(raw.stream),
            name: raw.name,
            call,
            kind: raw.kind,
            group: raw.group,
            sequence: raw.sequence,
        });
    }
}

/// The streams of a process, sorted.
#[derive(Debug, Default)]
pub(super) struct StreamIndex {
    pub(super) sorted: Vec<Stream>,
}

impl StreamIndex {
    fn of(ops: &[RawOp]) -> Self {
        let mut sorted: Vec<Stream> = Vec::new();
        for op in ops {
            if let Err(at) = sorted.binary_search(&op.stream) {
                sorted.insert(at, op.stream);
            }
        }
        Self { sorted }
    }

    fn index(&self, stream: Stream) -> u32 {
        self.sorted.binary_search(&stream).map_or(NONE, index)
    }

    /// The stream of that number, if only one device has one.
    pub(super) fn only(&self, number: u64) -> u32 {
        let mut found = (0..)
            .zip(&self.sorted)
            .filter(|(_, stream)| stream.number == number);
        match (found.next(), found.next()) {
            (Some((at, _)), None) => at,
            _ => NONE,
        }
    }

    fn on(&self, device: Option<u32>, number: u64) -> u32 {
        match device {
            Some(device) => self.index(Stream { device, number }),
            None => self.only(number),
        }
    }
}

fn waits(
    syncs: &[GpuSync],
    correlations: &CorrelationMap,
    streams: &StreamIndex,
) -> Vec<EventWait> {
    let call = |id: Option<u64>| correlations.call(id);
    let stream = |sync: &GpuSync, number: Option<u64>| {
        number.map_or(NONE, |number| streams.on(sync.device, number))
    };
    let waits = syncs.iter().filter_map(|sync| {
        let waiting = match sync.kind {
            GpuSyncKind::StreamWaitEvent => stream(sync, sync.stream),
            GpuSyncKind::Event => NONE,
            GpuSyncKind::Stream | GpuSyncKind::Context => return None,
        };
        Some(EventWait {
            call: call(sync.correlation)?,
            stream: waiting,
            event_stream: stream(sync, sync.event_stream),
            event_call: call(sync.event_correlation).unwrap_or(NONE),
        })
    });
    let mut waits: Vec<EventWait> = waits.collect();
    waits.sort_by_key(|wait| wait.call);
    waits
}

/// Steps from the start of one backward pass to that of the next of the same thread.
fn steps_between(
    indices: &mut HashMap<u32, u32>,
    threads: &mut Vec<Thread>,
    mut backward: Vec<BackwardStep>,
) -> Vec<StepSpan> {
    backward.sort_by_key(|pass| (pass.tid, pass.start_ns));
    let mut number = 0;
    let steps = backward.windows(2).filter_map(|pair| match pair {
        [this, next] if this.tid == next.tid => {
            let thread = *indices.entry(this.tid).or_insert_with(|| {
                threads.push(Thread {
                    tid: this.tid,
                    name: None,
                });
                index(threads.len() - 1)
            });
            number += 1;
            Some(StepSpan {
                start_ns: this.start_ns,
                end_ns: next.start_ns,
                thread,
                number: number - 1,
                source: StepSource::BackwardPass,
            })
        }
        _ => None,
    });
    steps.collect()
}

/// Steps by start, cut where the next step of the thread starts.
fn apart(mut steps: Vec<StepSpan>) -> Vec<StepSpan> {
    steps.sort_by_key(|step| (step.thread, step.start_ns, step.end_ns));
    let mut list: Vec<StepSpan> = Vec::with_capacity(steps.len());
    for step in steps {
        match list.last_mut().filter(|last| last.thread == step.thread) {
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
