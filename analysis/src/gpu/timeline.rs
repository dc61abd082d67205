//! One process's GPU work, with the calls, pauses and steps of the same process.
//!
//! Owns the form that all figures are computed from: timestamps on one clock, sorted, linked by
//! index. `collect.rs` builds it from records.

use super::calls::CallEffect;
use crate::spans::index::{Index, SmallNumber};
pub use crate::spans::index::{Thread, ThreadIndex};
use crate::spans::{PackedPauses, PauseSpan};
pub use crate::spans::{StepSource, StepSpan};
use crate::time::{after, beyond, duration_ns};
use bitcode::{Decode, Encode};
use gctrace_event::{Collective, GpuOpKind, HostCodeKind};
use serde::Serialize;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Place of an operation in [`Timeline::ops`].
pub type OpIndex = Index<Op>;
/// Place of a call in [`Timeline::calls`].
pub type CallIndex = Index<Call>;
/// Place of a stream in [`Timeline::streams`].
pub type StreamIndex = Index<Stream>;
/// Place of a pause in [`ProcessTimeline::pauses`].
pub type PauseIndex = Index<PauseSpan>;
/// Place of a string in [`Timeline::names`].
pub type NameIndex = Index<String>;

/// What one process's interpreter did: pauses and steps on the clock of its trace, in ns. Every index
/// is within its list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessTimeline {
    /// Index of the trace it was read from, in the order of the report.
    pub trace: usize,
    /// Index of the trace that describes the process; differs from `trace` if two traces were
    /// merged.
    pub process_trace: usize,
    /// Process id; 0 if the trace does not contain it.
    pub pid: u32,
    /// Its process id in its own namespace, where that is another.
    pub namespace_pid: Option<u32>,
    /// Rank in a distributed job; `None` if unknown.
    pub rank: Option<u32>,
    /// Number of ranks in that job; `None` if unknown.
    pub world_size: Option<u32>,
    /// Offset in ns from a timestamp to Unix time; `None` if unknown.
    pub unix_offset_ns: Option<i64>,
    /// Whether the trace is gctrace's own: its pauses are complete.
    pub is_ours: bool,
    /// Which of its process's two timelines this is, if a recorder wrote the GPU work in parts.
    pub gpu_part: Option<GpuPart>,
    /// Threads that made calls or collected, by thread id.
    pub threads: Vec<Thread>,
    /// Pauses by start. Empty where they are `packed`.
    pub pauses: Vec<PauseSpan>,
    /// Pauses of a process of gctrace's trace with no other records here, by start.
    pub packed: Arc<PackedPauses>,
    /// Training steps of one thread, by start; they do not overlap.
    pub steps: Vec<StepSpan>,
    /// Records of the trace that were ignored.
    pub ignored: IgnoredWork,
}

/// One of the two timelines of a process with GPU work that a recorder wrote in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuPart {
    /// A part of its GPU work, with the pauses and steps of that part.
    Kept,
    /// All its pauses and steps; its GPU work is not known here.
    Elsewhere,
}

/// The recorded work of one process. All times are nanoseconds on the clock of its trace; every
/// index is within its list. Encoded, it is without its process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Timeline {
    /// Its process, pauses and steps; a `Timeline` can be used as one.
    #[bitcode(skip)]
    pub process: ProcessTimeline,
    /// Streams, in order of device and number. Without operations they are streams that calls name by their handles;
    /// their device is unknown then.
    pub streams: Vec<Stream>,
    /// Operations by start; empty if the trace contains no GPU times.
    pub ops: Vec<Op>,
    /// Bytes that operations copied or set, by operation; operations without bytes in the trace are
    /// missing.
    pub op_bytes: Vec<(OpIndex, u64)>,
    /// Outermost calls of all threads by start.
    pub calls: Vec<Call>,
    /// Launches that were only counted, by the first; `calls` does not contain them.
    pub counted_launches: Vec<CountedLaunches>,
    /// Annotations of all threads by start, except profiler steps: they are in `steps`.
    pub annotations: Vec<AnnotationSpan>,
    /// Python functions of the program and outermost operators, by thread and start.
    pub code: Vec<CodeSpan>,
    /// Samples of what threads executed, by start.
    pub samples: Vec<HostSamples>,
    /// Waits for events that are in the trace.
    pub waits: Vec<EventWait>,
    /// Names of operations, functions, annotations, code and samples.
    pub names: Arc<StringTable>,
}

impl Deref for Timeline {
    type Target = ProcessTimeline;

    fn deref(&self) -> &ProcessTimeline {
        &self.process
    }
}

impl DerefMut for Timeline {
    fn deref_mut(&mut self) -> &mut ProcessTimeline {
        &mut self.process
    }
}

/// A stream of a device, identified by both numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct Stream {
    /// Number of the device in the process; `None` if unknown.
    pub device: Option<u32>,
    /// Id of the stream in the trace.
    pub number: u64,
}

/// An operation as a GPU ran it: a kernel, a memcpy or a memset; or a function that the host ran for a
/// stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Op {
    /// Start of the execution, in ns on the timeline's clock.
    pub start_ns: u64,
    /// End of the execution, in ns on the timeline's clock.
    pub end_ns: u64,
    /// The stream that the operation ran on.
    pub stream: StreamIndex,
    /// Name of the kernel or direction of the copy.
    pub name: NameIndex,
    /// The call that enqueued it; `None` if unknown.
    pub call: Option<CallIndex>,
    /// Kind of the operation.
    pub kind: GpuOpKind,
    /// The communicator it works for ([`Communicator`]); `None` if unknown.
    pub group: Option<NameIndex>,
    /// Sequence number of the collective in its communicator; `None` if unknown.
    pub sequence: Option<SmallNumber>,
}

impl Op {
    /// Start and end.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.start_ns, self.end_ns)
    }

    /// Time from start to end, in ns; 0 if the end precedes the start.
    pub fn duration_ns(&self) -> u64 {
        duration_ns(self.start_ns, self.end_ns)
    }
}

/// The communicator of an NCCL kernel, and its peer, as one name: there are few of them, and an
/// operation needs no more memory for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Communicator<'a> {
    /// Name and ranks: PyTorch 2.6 gives all communicators that are split from one the same name
    /// (`split_group`).
    pub identity: &'a str,
    /// The only other rank that takes part; `None` of a collective, or if unknown.
    pub peer: Option<TransferPeer>,
}

/// The peer of a kernel that sends or receives, as rank of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferPeer {
    /// Sends to this rank.
    To(u32),
    /// Receives from this rank.
    From(u32),
}

impl<'a> Communicator<'a> {
    /// The name of a collective's communicator; `None` if the profiler did not record it.
    pub(crate) fn name(collective: &Collective) -> Option<String> {
        let ranks = gctrace_units::if_known(collective.ranks.as_deref());
        let name = format!("{} {ranks}", collective.group.as_ref()?);
        let name = name.trim_end().replace('\n', " ");
        Some(match (collective.destination, collective.source) {
            (Some(to), _) => format!("{name}\nto {to}"),
            (None, Some(from)) => format!("{name}\nfrom {from}"),
            (None, None) => name,
        })
    }

    /// The parts of a name ([`Op::group`]).
    pub fn parse(name: &'a str) -> Self {
        let (identity, peer) = name.split_once('\n').unwrap_or((name, ""));
        let rank = |prefix| peer.strip_prefix(prefix)?.parse().ok();
        Self {
            identity,
            peer: match rank("to ") {
                Some(rank) => Some(TransferPeer::To(rank)),
                None => rank("from ").map(TransferPeer::From),
            },
        }
    }
}

/// A call of the CUDA runtime, the CUDA driver or NCCL on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Call {
    /// Start of the call on the CPU, in ns on the timeline's clock.
    pub start_ns: u64,
    /// End of the call; equal to the start if `timed` is false.
    pub end_ns: u64,
    /// The thread that made the call.
    pub thread: ThreadIndex,
    /// Name of the function that was called.
    pub function: NameIndex,
    /// Its effect on streams and threads.
    pub kind: CallEffect,
    /// The stream it is about; `None` if unknown or not one.
    pub stream: Option<StreamIndex>,
    /// Whether the end was recorded (gctrace's probes see only the start of launches).
    pub timed: bool,
}

impl Call {
    /// Start and end.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.start_ns, self.end_ns)
    }

    /// Time from start to end, in ns; 0 if `timed` is false.
    pub fn duration_ns(&self) -> u64 {
        duration_ns(self.start_ns, self.end_ns)
    }
}

/// Launches of one thread to one stream within a millisecond; only the first and the last have a
/// timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CountedLaunches {
    /// Start of the first launch, in ns on the timeline's clock.
    pub first_ns: u64,
    /// Start of the last launch, in ns on the timeline's clock.
    pub last_ns: u64,
    /// Number of launches, the first and the last included.
    pub count: u64,
    /// The thread that made the launches.
    pub thread: ThreadIndex,
    /// The stream they were put into; `None` if unknown.
    pub stream: Option<StreamIndex>,
}

/// A stream, or the calling thread, waits for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct EventWait {
    /// The call that waits (or makes a stream wait).
    pub call: CallIndex,
    /// The waiting stream; `None` where the thread waits, or if unknown.
    pub stream: Option<StreamIndex>,
    /// The stream that the event was recorded into; `None` if unknown.
    pub event_stream: Option<StreamIndex>,
    /// The call that recorded the event; `None` if unknown.
    pub event_call: Option<CallIndex>,
}

/// A named interval on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct AnnotationSpan {
    /// Start of the annotation, in ns on the timeline's clock.
    pub start_ns: u64,
    /// End of the annotation, in ns on the timeline's clock.
    pub end_ns: u64,
    /// The thread that made the annotation.
    pub thread: ThreadIndex,
    /// Text of the annotation, as the program named it.
    pub name: NameIndex,
}

/// An interval of a thread in a Python function or an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CodeSpan<T = ThreadIndex> {
    /// Start of the interval, in ns on the timeline's clock.
    pub start_ns: u64,
    /// End of the interval, in ns on the timeline's clock.
    pub end_ns: u64,
    /// The thread that ran it.
    pub thread: T,
    /// Kind of the named code.
    pub kind: HostCodeKind,
    /// Its name, as the profiler writes it.
    pub name: NameIndex,
}

/// Samples of a thread in a row that found it at the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HostSamples {
    /// The first of them, in ns on the timeline's clock.
    pub start_ns: u64,
    /// The last of them.
    pub end_ns: u64,
    /// Their number.
    pub count: u64,
    /// The thread.
    pub thread: ThreadIndex,
    /// The place, written as the profiler writes a function.
    pub name: NameIndex,
}

impl HostSamples {
    /// The time of each, evenly spaced: a clock took them.
    pub(crate) fn times(self) -> impl Iterator<Item = u64> {
        let (from, length) = (self.start_ns, duration_ns(self.start_ns, self.end_ns));
        let between = u128::from(beyond(self.count, 1).max(1));
        (0..self.count).map(move |at| {
            let later = u128::from(length) * u128::from(at) / between;
            after(from, later as u64)
        })
    }
}

/// Strings that are stored once each and referred to by index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct StringTable {
    texts: Vec<String>,
    #[bitcode(skip)]
    indices: HashMap<String, NameIndex>,
}

impl StringTable {
    /// The index of a string, added if new.
    pub fn intern(&mut self, text: &str) -> NameIndex {
        if let Some(index) = self.index(text) {
            return index;
        }
        let index = Index::push(&mut self.texts, text.to_owned());
        self.indices.insert(text.to_owned(), index);
        index
    }

    /// Finds the indices of strings that were decoded.
    pub(crate) fn find_indices(&mut self) {
        self.indices = self.texts.iter().cloned().zip((0..).map(Index::new)).collect();
    }

    /// All strings, by index.
    pub(crate) fn texts(&self) -> &[String] {
        &self.texts
    }

    /// The string that an index refers to.
    pub fn text(&self, index: NameIndex) -> &str {
        &self.texts[index]
    }

    /// The index of a string; `None` if it was not added.
    pub fn index(&self, text: &str) -> Option<NameIndex> {
        self.indices.get(text).copied()
    }
}

/// From the earlier start to the later end.
fn either(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (one.0.min(other.0), one.1.max(other.1))
}

impl ProcessTimeline {
    /// Its pauses by start, packed or not.
    pub(crate) fn all_pauses(&self) -> impl Iterator<Item = PauseSpan> + Clone {
        self.pauses.iter().copied().chain(self.packed.iter())
    }

    /// Unpacks the packed pauses into `pauses`; repeated ones count once.
    pub fn unpack(&mut self) {
        let (pauses, repeated) = self.packed.unpack();
        self.pauses.extend(pauses);
        self.packed = Arc::default();
        self.ignored.duplicates += repeated;
    }
}

impl Timeline {
    /// First start and last end of operations; `None` without any.
    pub fn gpu_span(&self) -> Option<(u64, u64)> {
        let first = self.ops.first()?.start_ns;
        let last = self.ops.iter().map(|op| op.end_ns).max()?;
        Some((first, last))
    }

    /// First and last time of anything on it; `None` without anything.
    pub(crate) fn window(&self) -> Option<(u64, u64)> {
        let annotations = self.annotations.iter();
        let annotations = annotations.map(|span| (span.start_ns, span.end_ns));
        let spans = self.activity().into_iter().chain(annotations);
        spans.reduce(either)
    }

    /// First and last time of anything but annotations; `None` without anything.
    pub(crate) fn activity(&self) -> Option<(u64, u64)> {
        let ops = self.ops.iter().map(Op::span);
        let calls = self.calls.iter().map(Call::span);
        let pauses = self.pauses.iter().map(PauseSpan::span);
        let steps = self.steps.iter().map(|step| (step.start_ns, step.end_ns));
        let spans = ops.chain(calls).chain(pauses).chain(steps);
        spans.reduce(either)
    }

    /// First start of an operation or a call; `None` without any.
    pub(crate) fn first_ns(&self) -> Option<u64> {
        let op = self.ops.first().map(|op| op.start_ns);
        let call = self.calls.first().map(|call| call.start_ns);
        op.into_iter().chain(call).min()
    }

    /// The same; without any operation and call no time is measured from it, and it is 0.
    pub(crate) fn origin_ns(&self) -> u64 {
        self.first_ns().unwrap_or(0)
    }

    /// Whether it contains operations with GPU times.
    pub fn has_gpu_times(&self) -> bool {
        !self.ops.is_empty()
    }

    /// The name of an operation's kernel, or the direction of its copy.
    pub fn op_name(&self, op: &Op) -> &str {
        self.names.text(op.name)
    }

    /// Number of the device of an operation; `None` if unknown.
    pub fn device(&self, op: &Op) -> Option<u32> {
        self.streams[op.stream].device
    }

    /// The call that enqueued an operation; `None` if unknown.
    pub fn call(&self, op: &Op) -> Option<&Call> {
        op.call.map(|call| &self.calls[call])
    }
}

// There are millions of these.
const _: () = assert!(size_of::<Op>() == 40 && size_of::<Call>() == 32);
const _: () = assert!(size_of::<EventWait>() == 16 && size_of::<PauseSpan>() == 48);

/// Records of GPU work that the figures ignore, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IgnoredWork {
    /// Operations whose call is not in the trace. They count as busy time, but the launching thread is unknown.
    pub operations_without_call: u64,
    /// Operations that started before their call, because the clocks of the trace disagree.
    pub operations_before_call: u64,
    /// Calls inside other calls of the same thread; only the outermost counts.
    pub nested_calls: u64,
    /// Repeated records of operations, calls and collections.
    pub duplicates: u64,
    /// Operations that cannot be attributed to a process, in a trace with several: neither they nor
    /// a call of theirs state it. They count as busy time of their device.
    pub operations_without_process: u64,
}
