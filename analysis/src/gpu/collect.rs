//! Records of one trace into timelines, one per process.
//!
//! Owns the links: operation to call, call to thread, wait to event; and what is left out.

mod handles;

use super::calls::CallKind;
use super::timeline::AnnotationSpan;
use super::timeline::Call;
use super::timeline::EventWait;
use super::timeline::NONE;
use super::timeline::Names;
use super::timeline::Op;
use super::timeline::PauseSpan;
use super::timeline::StepSource;
use super::timeline::StepSpan;
use super::timeline::Stream;
use super::timeline::Thread;
use super::timeline::Timeline;
use gctrace_event::Annotation;
use gctrace_event::CudaCall;
use gctrace_event::CudaLaunches;
use gctrace_event::GpuOp;
use gctrace_event::GpuOpKind;
use gctrace_event::GpuSync;
use gctrace_event::GpuSyncKind;
use gctrace_event::Pause;
use gctrace_event::Step;
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

/// `name` of the PyTorch profiler's steps, before the number.
const PROFILER_STEP: &str = "ProfilerStep#";

/// Collects the records of one trace; [`Collector::finish`] makes timelines of them.
#[derive(Debug, Default)]
pub struct Collector {
    processes: BTreeMap<u32, Part>,
    names: Names,
    ops: Vec<RawOp>,
    syncs: Vec<GpuSync>,
}

/// An operation before its process and its call are known.
#[derive(Debug, Clone, Copy)]
struct RawOp {
    begin_ns: u64,
    end_ns: u64,
    stream: Stream,
    name: u32,
    kind: GpuOpKind,
    group: u32,
    sequence: u32,
    pid: Option<u32>,
    correlation: Option<u64>,
}

/// A call before it is sorted.
#[derive(Debug, Clone, Copy)]
struct RawCall {
    call: Call,
    correlation: Option<u64>,
    stream: Option<u64>,
}

/// One process while its trace is read.
#[derive(Debug, Default)]
struct Part {
    threads: Vec<Thread>,
    thread_indices: HashMap<u32, u32>,
    calls: Vec<RawCall>,
    counted_launches: Vec<(u32, CudaLaunches)>,
    pauses: Vec<PauseSpan>,
    annotations: Vec<AnnotationSpan>,
    steps: Vec<StepSpan>,
    backward: Vec<Step>,
}

impl Part {
    fn thread(&mut self, tid: u32) -> u32 {
        let next = index(self.threads.len());
        *self.thread_indices.entry(tid).or_insert_with(|| {
            self.threads.push(Thread { tid, name: None });
            next
        })
    }
}

/// What is known of a trace and of a process besides its events.
#[derive(Debug, Default, Clone)]
pub struct About {
    /// Index of the trace.
    pub trace: usize,
    /// Whether the trace is gctrace's own.
    pub is_ours: bool,
    /// Rank of the whole trace, where it says one.
    pub rank: Option<u32>,
    /// Ranks of its processes.
    pub ranks: HashMap<u32, u32>,
    /// Process ids of its processes in their own namespaces.
    pub namespace_pids: HashMap<u32, u32>,
    /// Names of its threads.
    pub thread_names: HashMap<(u32, u32), String>,
    /// Add this to a time to get nanoseconds since 1970 (UTC).
    pub unix_offset_ns: Option<i64>,
}

impl Collector {
    /// Takes a pause.
    pub fn add_pause(&mut self, pause: &Pause) {
        let part = self.processes.entry(pause.pid).or_default();
        let thread = part.thread(pause.tid);
        let saturated = |count: Option<u64>| {
            count.map_or(NONE, |count| u32::try_from(count).unwrap_or(NONE - 1))
        };
        part.pauses.push(PauseSpan {
            begin_ns: pause.begin_ns,
            end_ns: pause.end_ns,
            thread,
            collected: saturated(pause.collected),
            objects: saturated(pause.heap_objects.or(pause.oldest_objects)),
            generation: pause.generation,
            reason: pause.reason,
        });
    }

    /// Takes a call.
    pub fn add_call(&mut self, call: &CudaCall) {
        let function = self.names.intern(&call.function);
        let part = self.processes.entry(call.pid).or_default();
        let kind = CallKind::of(&call.function);
        let thread = part.thread(call.tid);
        part.calls.push(RawCall {
            call: Call {
                begin_ns: call.begin_ns,
                end_ns: call.end_ns,
                thread,
                function,
                kind,
                stream: NONE,
                timed: call.end_ns > call.begin_ns,
            },
            correlation: call.correlation,
            stream: call.stream,
        });
    }

    /// Takes an operation.
    pub fn add_op(&mut self, op: &GpuOp) {
        let collective = op.collective.as_deref();
        let group = collective.and_then(|collective| collective.group.as_deref());
        let sequence = collective.and_then(|collective| collective.sequence);
        self.ops.push(RawOp {
            begin_ns: op.begin_ns,
            end_ns: op.end_ns,
            stream: Stream {
                device: op.device,
                number: op.stream,
            },
            name: self.names.intern(&op.name),
            kind: op.kind,
            group: group.map_or(NONE, |group| self.names.intern(group)),
            sequence: sequence.map_or(NONE, |number| u32::try_from(number).unwrap_or(NONE)),
            pid: op.pid,
            correlation: op.correlation,
        });
    }

    /// Takes what a call waited for.
    pub fn add_sync(&mut self, sync: GpuSync) {
        self.syncs.push(sync);
    }

    /// Takes an annotation; `ProfilerStep#n` is a step.
    pub fn add_annotation(&mut self, annotation: &Annotation) {
        let name = self.names.intern(&annotation.name);
        let part = self.processes.entry(annotation.pid).or_default();
        let thread = part.thread(annotation.tid);
        let (begin_ns, end_ns) = (annotation.begin_ns, annotation.end_ns);
        let number = annotation.name.strip_prefix(PROFILER_STEP);
        match number.and_then(|number| number.parse().ok()) {
            Some(number) => part.steps.push(StepSpan {
                begin_ns,
                end_ns,
                thread,
                number,
                source: StepSource::ProfilerStep,
            }),
            None => part.annotations.push(AnnotationSpan {
                begin_ns,
                end_ns,
                thread,
                name,
            }),
        }
    }

    /// Takes a backward pass.
    pub fn add_backward(&mut self, step: &Step) {
        let part = self.processes.entry(step.pid).or_default();
        part.backward.push(*step);
    }

    /// The timelines of processes that did any work on a GPU or collected.
    #[must_use]
    pub fn finish(mut self, about: &About) -> Vec<Timeline> {
        let owners = self.owners();
        let mut ops = self.ops_by_process(&owners);
        let mut syncs = self.syncs_by_process(&owners);
        for pid in ops.keys().chain(syncs.keys()) {
            self.processes.entry(*pid).or_default();
        }
        let names = Arc::new(self.names);
        let timelines = self.processes.into_iter().map(|(pid, part)| {
            let ops = ops.remove(&pid).unwrap_or_default();
            let syncs = syncs.remove(&pid).unwrap_or_default();
            part.timeline(pid, ops, &syncs, &names, about)
        });
        timelines.collect()
    }

    /// The process of each correlation id; of all others, the only process that makes calls.
    fn owners(&self) -> Owners {
        let mut owners = Owners::default();
        let calling = self
            .processes
            .iter()
            .filter(|(_, part)| !part.calls.is_empty());
        let mut pids = Vec::new();
        for (pid, part) in calling {
            pids.push(*pid);
            let ids = part.calls.iter().filter_map(|call| call.correlation);
            owners.by_correlation.extend(ids.map(|id| (id, *pid)));
        }
        owners.only = match pids.as_slice() {
            [only] => Some(*only),
            _ => None,
        };
        if let (None, [only]) = (owners.only, self.pids().as_slice()) {
            owners.only = Some(*only);
        }
        owners
    }

    fn pids(&self) -> Vec<u32> {
        self.processes.keys().copied().collect()
    }

    fn ops_by_process(&mut self, owners: &Owners) -> BTreeMap<u32, Vec<RawOp>> {
        let mut by_process: BTreeMap<u32, Vec<RawOp>> = BTreeMap::new();
        for op in std::mem::take(&mut self.ops) {
            let pid = op.pid.unwrap_or_else(|| owners.of(op.correlation));
            by_process.entry(pid).or_default().push(op);
        }
        by_process
    }

    fn syncs_by_process(&mut self, owners: &Owners) -> BTreeMap<u32, Vec<GpuSync>> {
        let mut by_process: BTreeMap<u32, Vec<GpuSync>> = BTreeMap::new();
        for sync in std::mem::take(&mut self.syncs) {
            let pid = sync.pid.unwrap_or_else(|| owners.of(sync.correlation));
            by_process.entry(pid).or_default().push(sync);
        }
        by_process
    }
}

/// Which process a correlation id belongs to.
#[derive(Debug, Default)]
struct Owners {
    by_correlation: HashMap<u64, u32>,
    only: Option<u32>,
}

impl Owners {
    /// 0 where it cannot be told.
    fn of(&self, correlation: Option<u64>) -> u32 {
        let known = correlation.and_then(|id| self.by_correlation.get(&id));
        known.copied().or(self.only).unwrap_or(0)
    }
}

impl Part {
    fn timeline(
        mut self,
        pid: u32,
        mut ops: Vec<RawOp>,
        syncs: &[GpuSync],
        names: &Arc<Names>,
        about: &About,
    ) -> Timeline {
        for thread in &mut self.threads {
            thread.name = about.thread_names.get(&(pid, thread.tid)).cloned();
        }
        let mut timeline = Timeline {
            trace: about.trace,
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
            false => Streams::of(&ops),
        };
        timeline.counted_launches = self.take_counted_launches(&streams);
        let correlations = self.take_calls(&mut timeline, &streams);
        ops.sort_by_key(|op| (op.begin_ns, op.end_ns));
        for op in ops {
            timeline.add(&op, &correlations, &streams);
        }
        timeline.waits = waits(syncs, &correlations, &streams);
        timeline.streams = streams.sorted;
        self.pauses.sort_by_key(|pause| pause.begin_ns);
        timeline.pauses = self.pauses;
        self.annotations
            .sort_by_key(|annotation| annotation.begin_ns);
        timeline.annotations = self.annotations;
        if self.steps.is_empty() {
            self.steps = steps_between(&mut self.thread_indices, &mut self.threads, self.backward);
        }
        self.steps.sort_by_key(|step| (step.begin_ns, step.end_ns));
        timeline.steps = self.steps;
        timeline.threads = self.threads;
        timeline
    }

    /// Sorts the calls, leaves out nested ones, and returns the index of each correlation id: that
    /// of the outermost call, since driver and runtime share the id.
    fn take_calls(&mut self, timeline: &mut Timeline, streams: &Streams) -> HashMap<u64, u32> {
        let mut calls = std::mem::take(&mut self.calls);
        // Of two that begin together the longer is around the other.
        calls.sort_by_key(|raw| (raw.call.begin_ns, std::cmp::Reverse(raw.call.end_ns)));
        let mut correlations = HashMap::with_capacity(calls.len());
        let mut open: Vec<Option<u32>> = vec![None; self.threads.len()];
        timeline.calls.reserve_exact(calls.len());
        for raw in calls {
            let slot = open.get_mut(raw.call.thread as usize);
            let around = slot.as_ref().and_then(|slot| **slot).filter(|around| {
                let outer = timeline.calls.get(*around as usize);
                outer.is_some_and(|outer| raw.call.end_ns <= outer.end_ns && outer.timed)
            });
            let at = match around {
                Some(around) => {
                    timeline.ignored.nested_calls += 1;
                    around
                }
                None => {
                    let at = index(timeline.calls.len());
                    let stream = raw.stream.map_or(NONE, |number| streams.only(number));
                    timeline.calls.push(Call { stream, ..raw.call });
                    if let Some(slot) = slot {
                        *slot = Some(at);
                    }
                    at
                }
            };
            if let Some(id) = raw.correlation {
                correlations.entry(id).or_insert(at);
            }
        }
        correlations
    }
}

impl Timeline {
    fn add(&mut self, raw: &RawOp, correlations: &HashMap<u64, u32>, streams: &Streams) {
        let call = raw
            .correlation
            .and_then(|id| correlations.get(&id).copied());
        let call = call.unwrap_or(NONE);
        match self.calls.get_mut(call as usize) {
            None => self.ignored.ops_without_call += 1,
            Some(call) => {
                if call.stream == NONE {
                    call.stream = streams.index(raw.stream);
                }
                if raw.begin_ns < call.begin_ns {
                    self.ignored.ops_before_call += 1;
                }
            }
        }
        self.ops.push(Op {
            begin_ns: raw.begin_ns,
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
struct Streams {
    sorted: Vec<Stream>,
}

impl Streams {
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
    fn only(&self, number: u64) -> u32 {
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

fn waits(syncs: &[GpuSync], correlations: &HashMap<u64, u32>, streams: &Streams) -> Vec<EventWait> {
    let call = |id: Option<u64>| id.and_then(|id| correlations.get(&id).copied());
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

/// Steps from the begin of one backward pass to that of the next of the same thread.
fn steps_between(
    indices: &mut HashMap<u32, u32>,
    threads: &mut Vec<Thread>,
    mut backward: Vec<Step>,
) -> Vec<StepSpan> {
    backward.sort_by_key(|pass| (pass.tid, pass.begin_ns));
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
                begin_ns: this.begin_ns,
                end_ns: next.begin_ns,
                thread,
                number: number - 1,
                source: StepSource::BackwardPass,
            })
        }
        _ => None,
    });
    steps.collect()
}

fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NONE)
}
