//! Records of one trace into timelines, one per process.
//!
//! Assigns operations to processes. The links within a process are `collect/part.rs`.

mod handles;
pub(super) mod part;
mod parts;

use super::calls::CallEffect;
use super::timeline::{
    AnnotationSpan, Call, CodeSpan, Communicator, HostSamples, Op, StepSource, StepSpan, Stream,
    StringTable, Thread, ThreadIndex, Timeline,
};
use crate::spans::index::{Index, SmallNumber};
use crate::spans::{PackedPauses, PauseSpan};
use crate::time::intervals::Intervals;
use gctrace_event::{
    Annotation, CpuSamples, CudaCall, CudaLaunches, GpuOp, GpuSync, HostCode, HostCodeKind,
    NamedMarker, OffCpu, OmittedGpuWork, Pause, StepMark,
};
use indexmap::IndexSet;
use parts::InParts;
use std::collections::{BTreeMap, HashMap};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

const KIB: u64 = 1 << 10;

/// Stands for the process of operations that cannot be given to one.
const NO_PROCESS: u32 = 0;

/// Collects the records of one trace; [`TimelineCollector::finish`] makes timelines of them.
#[derive(Debug, Default)]
pub struct TimelineCollector {
    processes: BTreeMap<u32, ProcessBuilder>,
    names: StringTable,
    streams: IndexSet<Stream>,
    ops: Vec<RawOp>,
    syncs: Vec<GpuSync>,
    /// By process id; for processes and threads that do nothing else, it is of no use.
    code: HashMap<u32, Vec<RawCode>>,
    /// The profiler's overhead in threads that it does not name.
    overhead: Vec<RawCode>,
    /// By process id: when GPU work was that was only counted.
    omitted: HashMap<u32, Vec<(u64, u64)>>,
}

/// An operation before its process and call are determined. Its stream is one of the trace's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RawOp {
    op: Op,
    bytes: Option<u64>,
    pid: Option<u32>,
    correlation: Option<u64>,
}

/// A call before it is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RawCall {
    call: Call,
    correlation: Option<u64>,
    stream: Option<u64>,
}

/// A Python function or an operator of a thread id that may not be known.
type RawCode = CodeSpan<Option<u32>>;

/// Work of a process that was kept for the whole trace.
#[derive(Debug, Default)]
struct WorkOfProcess {
    ops: Vec<RawOp>,
    syncs: Vec<GpuSync>,
    code: Vec<RawCode>,
}

/// One process while its trace is read.
#[derive(Debug, Default)]
struct ProcessBuilder {
    /// The records that need no others: threads, annotations, samples and steps.
    timeline: Timeline,
    thread_indices: HashMap<u32, ThreadIndex>,
    calls: Vec<RawCall>,
    counted_launches: Vec<(ThreadIndex, CudaLaunches)>,
    pauses: PackedPauses,
    /// The marks of steps, by thread.
    marks: BTreeMap<(u32, NamedMarker), Vec<TimedMark>>,
}

/// Time of a mark, and the CPU time of its thread then; `None` if unknown.
type TimedMark = (u64, Option<u64>);

impl ProcessBuilder {
    fn thread(&mut self, tid: u32) -> ThreadIndex {
        let new = || Index::push(&mut self.timeline.threads, Thread { tid, name: None });
        *self.thread_indices.entry(tid).or_insert_with(new)
    }
}

/// Facts about a trace and a process other than their events.
#[derive(Debug, Default, Clone)]
pub struct TimelineContext {
    /// Index of the trace in the report's list of traces, from 0.
    pub trace: usize,
    /// Whether the trace is gctrace's own.
    pub is_ours: bool,
    /// Rank of the whole trace; `None` if unknown.
    pub rank: Option<u32>,
    /// Number of ranks in its job; `None` if unknown.
    pub world_size: Option<u32>,
    /// Ranks of its processes, by process id. A process that is missing here has the rank of the
    /// trace.
    pub ranks: HashMap<u32, u32>,
    /// Process ids of its processes in their own namespaces.
    pub namespace_pids: HashMap<u32, u32>,
    /// Names of its threads, by process id and thread id.
    pub thread_names: HashMap<(u32, u32), String>,
    /// Add this to a time to get nanoseconds since 1970 (UTC).
    pub unix_offset_ns: Option<i64>,
}

impl TimelineCollector {
    /// Adds a pause to its process; the order of pauses does not matter.
    pub fn add_pause(&mut self, pause: &Pause) {
        let part = self.processes.entry(pause.pid).or_default();
        let thread = part.thread(pause.tid);
        let objects = pause.heap_objects.or(pause.oldest_objects);
        part.pauses.push(&PauseSpan {
            start_ns: pause.start_ns,
            end_ns: pause.end_ns,
            thread,
            cpu_ns: pause.cpu_ns.and_then(NonZeroU64::new),
            collected: pause.collected.map(SmallNumber::at_most_max),
            objects: objects.map(SmallNumber::at_most_max),
            freed_kib: pause.freed_bytes.map(|bytes| SmallNumber::at_most_max(bytes / KIB)),
            generation: pause.generation,
            reason: pause.reason,
            stack: pause.stack.and_then(NonZeroU32::new),
        });
    }

    /// Adds a call to its process, in any order. Calls inside other calls are ignored when the
    /// timeline is made.
    pub fn add_call(&mut self, call: &CudaCall) {
        let function = self.names.intern(&call.function);
        let part = self.processes.entry(call.pid).or_default();
        let kind = CallEffect::of(&call.function);
        let thread = part.thread(call.tid);
        part.calls.push(RawCall {
            call: Call {
                start_ns: call.start_ns,
                end_ns: call.end_ns,
                thread,
                function,
                kind,
                stream: None,
                timed: call.end_ns > call.start_ns,
            },
            correlation: call.correlation,
            stream: call.stream,
        });
    }

    /// Adds an operation, in any order; its process and its call are determined when all records
    /// were added.
    pub fn add_op(&mut self, op: &GpuOp) {
        let (group, sequence) = match op.collective.as_deref() {
            Some(collective) => (Communicator::name(collective), collective.sequence),
            None => (None, None),
        };
        let stream = Stream { device: Some(op.device), number: op.stream };
        self.ops.push(RawOp {
            op: Op {
                start_ns: op.start_ns,
                end_ns: op.end_ns,
                stream: Index::new(self.streams.insert_full(stream).0),
                name: self.names.intern(&op.name),
                call: None,
                kind: op.kind,
                group: group.map(|group| self.names.intern(&group)),
                sequence: sequence.and_then(SmallNumber::new),
            },
            bytes: op.bytes,
            pid: op.pid,
            correlation: op.correlation,
        });
    }

    /// Adds a synchronization, in any order. Timelines contain only synchronizations with events.
    pub fn add_sync(&mut self, sync: GpuSync) {
        self.syncs.push(sync);
    }

    /// Adds an annotation; `ProfilerStep#n` is a step.
    pub fn add_annotation(&mut self, annotation: &Annotation) {
        let name = self.names.intern(&annotation.name);
        let part = self.processes.entry(annotation.pid).or_default();
        let thread = part.thread(annotation.tid);
        let (start_ns, end_ns) = (annotation.start_ns, annotation.end_ns);
        match annotation.step_number() {
            Some(number) => part.timeline.steps.push(StepSpan {
                start_ns,
                end_ns,
                thread,
                cpu_ns: None,
                number,
                source: StepSource::ProfilerStep,
            }),
            None => {
                let annotation = AnnotationSpan { start_ns, end_ns, thread, name };
                part.timeline.annotations.push(annotation);
            }
        }
    }

    /// Adds samples of a known thread at a place, written as the profiler writes a function.
    pub fn add_samples(&mut self, samples: &CpuSamples, place: &str) {
        let name = self.names.intern(place);
        let part = self.processes.entry(samples.pid).or_default();
        let thread = part.thread(samples.tid);
        let (start_ns, end_ns) = (samples.at_ns, samples.until_ns);
        let count = samples.count;
        part.timeline.samples.push(HostSamples { start_ns, end_ns, count, thread, name });
    }

    /// Whether a call of this thread was added.
    pub fn knows_thread(&self, pid: u32, tid: u32) -> bool {
        let Some(process) = self.processes.get(&pid) else { return false };
        !process.calls.is_empty() && process.thread_indices.contains_key(&tid)
    }

    /// Adds a Python function or an operator, in any order.
    pub fn add_code(&mut self, code: &HostCode) {
        let name = self.names.intern(&code.name);
        let HostCode { tid, kind, start_ns, end_ns, .. } = *code;
        let of_process = match code.pid {
            Some(pid) => self.code.entry(pid).or_default(),
            None => &mut self.overhead,
        };
        of_process.push(RawCode { start_ns, end_ns, thread: tid, kind, name });
    }

    /// Adds times off the CPU of a known thread: the cause of the wait, and the place, written as the profiler writes
    /// a function.
    pub fn add_off_cpu(&mut self, off: &OffCpu, wait: &str, place: Option<&str>) {
        let name = self.names.intern(wait);
        let place = place.map(|place| self.names.intern(place));
        let part = self.processes.entry(off.pid).or_default();
        let thread = part.thread(off.tid);
        for (start_ns, end_ns) in off.spans() {
            if start_ns < end_ns {
                let wait = AnnotationSpan { start_ns, end_ns, thread, name };
                part.timeline.annotations.push(wait);
            }
        }
        if let Some(name) = place {
            let (thread, kind) = (Some(off.tid), HostCodeKind::Function);
            let code = self.code.entry(off.pid).or_default();
            code.extend(off.spans().map(|(start_ns, end_ns)| RawCode {
                start_ns,
                end_ns,
                thread,
                kind,
                name,
            }));
        }
    }

    /// Adds a mark of a step, in any order. Marks delimit steps in a process without `ProfilerStep#n`; marks with a
    /// duration, except backward passes, are annotations too.
    pub fn add_step(&mut self, step: &StepMark) {
        let part = self.processes.entry(step.pid).or_default();
        let marks = part.marks.entry((step.tid, step.marker.clone()));
        marks.or_default().push((step.at_ns(), step.cpu_ns));
        if step.marker != NamedMarker::Backward && step.end_ns > step.start_ns {
            self.add_annotation(&Annotation {
                pid: step.pid,
                tid: step.tid,
                name: step.marker.annotation().into_owned(),
                start_ns: step.start_ns,
                end_ns: step.end_ns,
            });
        }
    }

    /// Adds GPU work that was only counted, in any order.
    pub fn add_omitted(&mut self, work: &OmittedGpuWork) {
        self.omitted.entry(work.pid).or_default().push((work.since_ns, work.until_ns));
    }

    /// The timelines of processes that did any work on a GPU or collected. If a process's GPU work is there in parts,
    /// it has two ([`GpuPart`](super::timeline::GpuPart)).
    pub fn finish(mut self, about: &TimelineContext) -> Vec<Timeline> {
        let owners = self.owners();
        let mut ops = self.ops_by_process(&owners);
        let mut syncs = self.syncs_by_process(&owners);
        for pid in ops.keys().chain(syncs.keys()) {
            self.processes.entry(*pid).or_default();
        }
        for code in std::mem::take(&mut self.overhead) {
            self.code.entry(owners.of(None, code.start_ns)).or_default().push(code);
        }
        let names = Arc::new(self.names);
        let mut timelines = Vec::new();
        for (pid, process) in self.processes {
            let ops = ops.remove(&pid).unwrap_or_default();
            let syncs = syncs.remove(&pid).unwrap_or_default();
            let code = self.code.remove(&pid).unwrap_or_default();
            let mut parts = vec![(process, WorkOfProcess { ops, syncs, code })];
            if let Some(omitted) = self.omitted.remove(&pid)
                && let Some((process, work)) = parts.pop()
            {
                let InParts { elsewhere, kept } =
                    InParts::of(process, work, &Intervals::from_iter(omitted));
                parts.push((elsewhere, WorkOfProcess::default()));
                parts.extend(kept);
            }
            let of_part = |(process, work): (ProcessBuilder, _)| {
                process.timeline(pid, work, (&names, &self.streams), about)
            };
            timelines.extend(parts.into_iter().map(of_part));
        }
        timelines
    }

    /// Finds the process of operations that do not state it.
    fn owners(&self) -> OperationOwners {
        let calling = self.processes.iter();
        let calling: Vec<_> = calling.filter(|(_, part)| !part.calls.is_empty()).collect();
        let mut owners = OperationOwners::default();
        match calling.as_slice() {
            [(only, _)] => owners.only = Some(**only),
            [] => owners.only = self.only_process(),
            several => {
                for (pid, part) in several {
                    let calls = part.calls.iter();
                    let calls =
                        calls.filter_map(|raw| Some((raw.correlation?, raw.call.start_ns, **pid)));
                    owners.calls.extend(calls);
                }
                owners.calls.sort_unstable();
            }
        }
        owners
    }

    fn only_process(&self) -> Option<u32> {
        let mut pids = self.processes.keys();
        match (pids.next(), pids.next()) {
            (only, None) => only.copied(),
            _ => None,
        }
    }

    fn ops_by_process(&mut self, owners: &OperationOwners) -> BTreeMap<u32, Vec<RawOp>> {
        let mut ops = std::mem::take(&mut self.ops);
        // Sorted once, so that duplicates are adjacent and the operations of each process are in
        // order.
        ops.sort_by_key(|RawOp { op, correlation, .. }| {
            (op.start_ns, op.end_ns, self.streams[op.stream.at()], *correlation, op.name)
        });
        let mut by_process: BTreeMap<u32, Vec<RawOp>> = BTreeMap::new();
        if let Some(only) = owners.only
            && ops.iter().all(|op| op.pid.is_none_or(|pid| pid == only))
        {
            by_process.insert(only, ops);
            by_process.retain(|_, ops| !ops.is_empty());
            return by_process;
        }
        for raw in ops {
            let pid = raw.pid;
            let pid = pid.unwrap_or_else(|| owners.of(raw.correlation, raw.op.start_ns));
            by_process.entry(pid).or_default().push(raw);
        }
        by_process
    }

    fn syncs_by_process(&mut self, owners: &OperationOwners) -> BTreeMap<u32, Vec<GpuSync>> {
        let mut by_process: BTreeMap<u32, Vec<GpuSync>> = BTreeMap::new();
        for sync in std::mem::take(&mut self.syncs) {
            let pid = sync.pid;
            let pid = pid.unwrap_or_else(|| owners.of(sync.correlation, sync.start_ns));
            by_process.entry(pid).or_default().push(sync);
        }
        by_process
    }
}

/// The process of operations that do not state it.
#[derive(Debug, Default)]
struct OperationOwners {
    /// The only process that makes calls, or the only one at all.
    only: Option<u32>,
    /// If several make calls: correlation id, start and process of each call, sorted. Ids are
    /// unique within a process only, so several may share one.
    calls: Vec<(u64, u64, u32)>,
}

impl OperationOwners {
    /// [`NO_PROCESS`] if it cannot be determined. If calls have the same id, the last one before `start_ns` counts.
    fn of(&self, correlation: Option<u64>, start_ns: u64) -> u32 {
        if let Some(only) = self.only {
            return only;
        }
        let Some(id) = correlation else { return NO_PROCESS };
        let behind = self.calls.partition_point(|call| (call.0, call.1) <= (id, start_ns));
        let before = gctrace_units::part(&self.calls, ..behind).last();
        let mut around = before.into_iter().chain(self.calls.get(behind));
        if let Some(call) = around.find(|call| call.0 == id) { call.2 } else { NO_PROCESS }
    }
}
