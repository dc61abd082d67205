//! A timeline between the times that its work is looked at: packed, except for what other ranks have
//! something to do with.
//!
//! All ranks of a job are read before anything is computed of one. Operations and calls take 40 and
//! 32 bytes, packed some 10: the pauses, the steps and the kernels of NCCL stay at hand.

use super::calls::CallEffect;
use super::ranks::reduced;
use super::timeline::{
    AnnotationSpan, Call, CodeSpan, CountedLaunches, EventWait, HostSamples, Op, ProcessTimeline,
    Stream, StringTable, Timeline,
};
use crate::spans::FirstToLast;
use crate::spans::index::{Index, SmallNumber};
use bitcode::{Decode, Encode};
use gctrace_event::{GpuOpKind, HostCodeKind};
use std::borrow::Cow;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A timeline that may be packed. It can be used as its [`ProcessTimeline`].
#[derive(Clone, Debug)]
pub struct KeptTimeline {
    /// The whole timeline, or, if its work is packed, what [`reduced`] leaves of it.
    timeline: Timeline,
    packed: Option<PackedWork>,
}

/// The work of a timeline, and what is known of it without unpacking.
#[derive(Clone, Debug)]
struct PackedWork {
    bytes: Box<[u8]>,
    ops: usize,
    calls: usize,
    window: FirstToLast,
    activity: FirstToLast,
}

impl From<Timeline> for KeptTimeline {
    /// Packs a timeline with GPU times.
    fn from(timeline: Timeline) -> Self {
        if !timeline.has_gpu_times() {
            return Self { timeline, packed: None };
        }
        let packed = PackedWork {
            bytes: bitcode::encode(&Work::of(&timeline)).into(),
            ops: timeline.ops.len(),
            calls: timeline.calls.len(),
            window: timeline.window(),
            activity: timeline.activity(),
        };
        Self { timeline: reduced(timeline), packed: Some(packed) }
    }
}

impl Deref for KeptTimeline {
    type Target = ProcessTimeline;

    fn deref(&self) -> &ProcessTimeline {
        &self.timeline.process
    }
}

impl DerefMut for KeptTimeline {
    fn deref_mut(&mut self) -> &mut ProcessTimeline {
        &mut self.timeline.process
    }
}

impl KeptTimeline {
    /// The timeline as it was kept, unpacked if necessary.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the bytes are those of `from`")]
    pub fn whole(&self) -> Cow<'_, Timeline> {
        let Some(packed) = &self.packed else {
            return Cow::Borrowed(&self.timeline);
        };
        let work: Work = bitcode::decode(&packed.bytes).expect("invariant: encoded work");
        Cow::Owned(work.timeline(self.timeline.process.clone()))
    }

    /// The part that other ranks have something to do with, at least. Its operations and calls have
    /// other places than in the whole timeline, in the same order.
    pub(crate) fn at_hand(&self) -> &Timeline {
        &self.timeline
    }

    /// Whether it contains operations with GPU times.
    #[must_use]
    pub fn has_gpu_times(&self) -> bool {
        self.ops() > 0
    }

    /// Number of operations.
    pub(crate) fn ops(&self) -> usize {
        let packed = self.packed.as_ref();
        packed.map_or(self.timeline.ops.len(), |packed| packed.ops)
    }

    /// Number of times in a model of it alone: one for its process, two for each call and operation.
    pub(crate) fn timestamps(&self) -> u64 {
        let packed = self.packed.as_ref();
        let calls = packed.map_or(self.timeline.calls.len(), |packed| packed.calls);
        2 * (calls + self.ops()) as u64 + 1
    }

    /// As [`Timeline::window`].
    pub(crate) fn window(&self) -> FirstToLast {
        let packed = self.packed.as_ref();
        packed.map_or_else(|| self.timeline.window(), |packed| packed.window)
    }

    /// As [`Timeline::activity`].
    pub(crate) fn activity(&self) -> FirstToLast {
        let packed = self.packed.as_ref();
        packed.map_or_else(|| self.timeline.activity(), |packed| packed.activity)
    }
}

/// Everything of a timeline but its process. Times are differences from the entry before, places in
/// lists as they are, those that may be missing counted from 1.
#[derive(Encode, Decode)]
struct Work {
    streams: Vec<(Option<u32>, u64)>,
    ops: Vec<PackedOp>,
    op_bytes: Vec<(u32, u64)>,
    calls: Vec<PackedCall>,
    counted_launches: Vec<(PackedSpan, u64, u32, u32)>,
    annotations: Vec<(PackedSpan, u32, u32)>,
    code: Vec<(PackedSpan, u32, HostCodeKind, u32)>,
    samples: Vec<(PackedSpan, u64, u32, u32)>,
    waits: Vec<[u32; 4]>,
    names: Vec<String>,
}

/// A start as difference from the one before, and a length; both wrap around.
#[derive(Encode, Decode)]
struct PackedSpan {
    since_ns: u64,
    length_ns: u64,
}

/// An [`Op`] in a quarter of its memory: a job of 1,000 ranks is kept whole only so.
#[derive(Encode, Decode)]
struct PackedOp {
    span: PackedSpan,
    stream: u32,
    name: u32,
    call: u32,
    kind: GpuOpKind,
    group: u32,
    sequence: u32,
}

/// A [`Call`], as [`PackedOp`] is an operation.
#[derive(Encode, Decode)]
struct PackedCall {
    span: PackedSpan,
    thread: u32,
    function: u32,
    kind: CallEffect,
    stream: u32,
    timed: bool,
}

/// The start that the next one is a difference from.
#[derive(Default)]
struct LastStart(u64);

impl LastStart {
    fn pack(&mut self, (start_ns, end_ns): (u64, u64)) -> PackedSpan {
        let before_ns = std::mem::replace(&mut self.0, start_ns);
        PackedSpan {
            since_ns: start_ns.wrapping_sub(before_ns),
            length_ns: end_ns.wrapping_sub(start_ns),
        }
    }

    fn unpack(&mut self, span: &PackedSpan) -> (u64, u64) {
        self.0 = self.0.wrapping_add(span.since_ns);
        (self.0, self.0.wrapping_add(span.length_ns))
    }
}

fn place<T>(index: Index<T>) -> u32 {
    index.number().get()
}

fn index<T>(place: u32) -> Index<T> {
    Index::new(place as usize)
}

/// A place counted from 1, 0 for none: an index is at most `u32::MAX - 1`.
fn place_or_0<T>(index: Option<Index<T>>) -> u32 {
    index.map_or(0, |index| place(index) + 1)
}

fn index_unless_0<T>(place: u32) -> Option<Index<T>> {
    place.checked_sub(1).map(index)
}

impl Work {
    fn of(timeline: &Timeline) -> Self {
        let streams = timeline.streams.iter();
        let mut last = LastStart::default();
        let ops = timeline.ops.iter().map(|op| PackedOp {
            span: last.pack(op.span()),
            stream: place(op.stream),
            name: place(op.name),
            call: place_or_0(op.call),
            kind: op.kind,
            group: place_or_0(op.group),
            sequence: op.sequence.map_or(0, |number| number.get() + 1),
        });
        let ops = ops.collect();
        let mut last = LastStart::default();
        let calls = timeline.calls.iter().map(|call| PackedCall {
            span: last.pack(call.span()),
            thread: place(call.thread),
            function: place(call.function),
            kind: call.kind,
            stream: place_or_0(call.stream),
            timed: call.timed,
        });
        let calls = calls.collect();
        let mut last = LastStart::default();
        let counted_launches = timeline.counted_launches.iter().map(|counted_launch| {
            let span = last.pack((counted_launch.first_ns, counted_launch.last_ns));
            (
                span,
                counted_launch.count,
                place(counted_launch.thread),
                place_or_0(counted_launch.stream),
            )
        });
        let counted_launches = counted_launches.collect();
        let mut last = LastStart::default();
        let annotations = timeline.annotations.iter().map(|annotation| {
            let span = last.pack((annotation.start_ns, annotation.end_ns));
            (span, place(annotation.thread), place(annotation.name))
        });
        let annotations = annotations.collect();
        let mut last = LastStart::default();
        let code = timeline.code.iter().map(|code| {
            let span = last.pack((code.start_ns, code.end_ns));
            (span, place(code.thread), code.kind, place(code.name))
        });
        let mut last = LastStart::default();
        let samples = timeline.samples.iter().map(|samples| {
            let span = last.pack((samples.start_ns, samples.end_ns));
            (span, samples.count, place(samples.thread), place(samples.name))
        });
        let waits = timeline.waits.iter().map(|wait| {
            let streams = [wait.stream, wait.event_stream].map(place_or_0);
            let [stream, event_stream] = streams;
            let event_call = place_or_0(wait.event_call);
            [place(wait.call), stream, event_stream, event_call]
        });
        let op_bytes = timeline.op_bytes.iter();
        Self {
            streams: streams.map(|stream| (stream.device, stream.number)).collect(),
            ops,
            op_bytes: op_bytes.map(|(op, bytes)| (place(*op), *bytes)).collect(),
            calls,
            counted_launches,
            annotations,
            code: code.collect(),
            samples: samples.collect(),
            waits: waits.collect(),
            names: timeline.names.texts().to_vec(),
        }
    }

    fn timeline(self, process: ProcessTimeline) -> Timeline {
        let streams = self.streams.into_iter();
        let mut last = LastStart::default();
        let ops = self.ops.iter().map(|op| {
            let (start_ns, end_ns) = last.unpack(&op.span);
            Op {
                start_ns,
                end_ns,
                stream: index(op.stream),
                name: index(op.name),
                call: index_unless_0(op.call),
                kind: op.kind,
                group: index_unless_0(op.group),
                sequence: op
                    .sequence
                    .checked_sub(1)
                    .and_then(|number| SmallNumber::new(number.into())),
            }
        });
        let ops = ops.collect();
        let mut last = LastStart::default();
        let calls = self.calls.iter().map(|call| {
            let (start_ns, end_ns) = last.unpack(&call.span);
            Call {
                start_ns,
                end_ns,
                thread: index(call.thread),
                function: index(call.function),
                kind: call.kind,
                stream: index_unless_0(call.stream),
                timed: call.timed,
            }
        });
        let calls = calls.collect();
        let mut last = LastStart::default();
        let counted_launches = self.counted_launches.iter();
        let counted_launches = counted_launches.map(|(span, count, thread, stream)| {
            let (first_ns, last_ns) = last.unpack(span);
            CountedLaunches {
                first_ns,
                last_ns,
                count: *count,
                thread: index(*thread),
                stream: index_unless_0(*stream),
            }
        });
        let counted_launches = counted_launches.collect();
        let mut last = LastStart::default();
        let annotations = self.annotations.iter().map(|(span, thread, name)| {
            let (start_ns, end_ns) = last.unpack(span);
            AnnotationSpan { start_ns, end_ns, thread: index(*thread), name: index(*name) }
        });
        let annotations = annotations.collect();
        let mut last = LastStart::default();
        let code = self.code.iter().map(|(span, thread, kind, name)| {
            let (start_ns, end_ns) = last.unpack(span);
            let (thread, name) = (index(*thread), index(*name));
            CodeSpan { start_ns, end_ns, thread, kind: *kind, name }
        });
        let code = code.collect();
        let mut last = LastStart::default();
        let samples = self.samples.iter().map(|(span, count, thread, name)| {
            let (start_ns, end_ns) = last.unpack(span);
            let (thread, name) = (index(*thread), index(*name));
            HostSamples { start_ns, end_ns, count: *count, thread, name }
        });
        let samples = samples.collect();
        let waits = self.waits.into_iter();
        let waits = waits.map(|[call, stream, event_stream, event_call]| EventWait {
            call: index(call),
            stream: index_unless_0(stream),
            event_stream: index_unless_0(event_stream),
            event_call: index_unless_0(event_call),
        });
        let op_bytes = self.op_bytes.into_iter();
        Timeline {
            process,
            streams: streams.map(|(device, number)| Stream { device, number }).collect(),
            ops,
            op_bytes: op_bytes.map(|(op, bytes)| (index(op), bytes)).collect(),
            calls,
            counted_launches,
            annotations,
            code,
            samples,
            waits: waits.collect(),
            names: Arc::new(StringTable::from_texts(self.names)),
        }
    }
}
