//! Tables of one trace: pauses, GPU work, steps, frames, annotations, garbage and layers.

use super::columns::{CellValue, ColumnKind, ParquetColumn, table};
use super::{Table, TableError, TraceTables};
use crate::gpu::timeline::{
    AnnotationSpan, Call, CallIndex, Op, OpIndex, StepSpan, StreamIndex, ThreadIndex, Timeline,
};
use crate::spans::index::{Index, SmallNumber};
use crate::time::{duration_ns, signed};
use gctrace_event::{
    Counter, EventSource, Frame, Garbage, KindCount, KindName, LayerRow, Layers, LayersRemark,
    Pause,
};
use std::io::Write;

/// The first columns of most tables: trace, rank and process id.
#[derive(Clone, Copy)]
pub(super) struct RowProcess {
    pub(super) trace: u64,
    pub(super) rank: Option<u32>,
    /// `None`: the trace does not contain it.
    pub(super) pid: Option<u32>,
}

impl RowProcess {
    /// `pid` 0: the trace does not contain it.
    pub(super) fn new(trace: usize, rank: Option<u32>, pid: u32) -> Self {
        Self { trace: trace as u64, rank, pid: if pid != 0 { Some(pid) } else { None } }
    }
}

table! { PAUSES, pause(
    of: RowProcess, source: &'static str, pause: &Pause, examining_ns: u64, called_ns: u64
) {
    let known = pause.generation != Pause::UNKNOWN_GENERATION;
    let counter = |counter| pause.counters.get(counter);
    let counted = !pause.counters.is_empty();
}
    ..of,
    tid: Id = pause.tid,
    ts_ns: Time = signed(pause.start_ns),
    dur_ns: Time = signed(pause.duration_ns()),
    generation: Id = if known { Some(u32::from(pause.generation)) } else { None },
    reason: Text = <&'static str>::from(pause.reason),
    source: Text = source,
    collected: Number = pause.collected,
    uncollectable: Number = pause.uncollectable,
    cpu_ns: Number = pause.cpu_ns,
    stop_the_world_ns: Number = pause.stop_the_world_ns,
    young_count: Number = pause.young_count,
    oldest_objects: Number = pause.oldest_objects,
    heap_objects: Number = pause.heap_objects,
    freed_bytes: Number = pause.freed_bytes,
    interpreter: Id = pause.interpreter,
    frame_id: Id = pause.stack,
    unfinished: Flag = pause.unfinished,
    counters_scaled: Flag = if counted { Some(pause.counters.scaled) } else { None },
    counters_migrated: Flag = if counted { Some(pause.counters.migrated) } else { None },
    examining_ns: Number = examining_ns,
    called_ns: Number = called_ns,
    cycles: Number = counter(Counter::Cycles),
    instructions: Number = counter(Counter::Instructions),
    cache_misses: Number = counter(Counter::CacheMisses),
    llc_load_misses: Number = counter(Counter::LlcLoadMisses),
    dtlb_load_misses: Number = counter(Counter::DtlbLoadMisses),
    branch_misses: Number = counter(Counter::BranchMisses),
    page_faults: Number = counter(Counter::PageFaults),
    major_faults: Number = counter(Counter::MajorFaults),
    context_switches: Number = counter(Counter::ContextSwitches),
    cpu_migrations: Number = counter(Counter::CpuMigrations),
    task_clock_ns: Number = counter(Counter::TaskClock),
    cpu_clock_ns: Number = counter(Counter::CpuClock),
}

table! { FRAMES, frame(trace: usize, frame: &'a Frame) {}
    trace: Trace = trace as u64,
    frame_id: Number = frame.id,
    parent_id: Number = frame.parent,
    function: Text = frame.function.as_str(),
    file: Text = frame.file.as_str(),
    line: Number = frame.line,
}

table! { GARBAGE, garbage(
    of: RowProcess, garbage: &Garbage, kind: &'a KindName, count: &KindCount
) {}
    ..of,
    tid: Id = garbage.tid,
    ts_ns: Time = signed(garbage.at_ns),
    type_name: Text = kind.type_name.as_str(),
    function: Text = kind.function.as_deref(),
    file: Text = kind.file.as_deref(),
    line: Number = kind.line,
    objects: Number = count.objects,
    bytes: Number = count.bytes,
}

table! { LAYERS, layer(of: RowProcess, layers: &Layers, row: &'a LayerRow) {}
    ..of,
    ts_ns: Time = signed(layers.at_ns),
    step: Number = layers.step,
    epoch: Id = layers.epoch,
    layer: Text = row.path.as_str(),
    type_name: Text = row.type_name.as_str(),
    shape: Text = row.shape.as_deref(),
    device: Text = row.device.as_deref(),
    calls: Number = row.calls,
    weights: Number = row.held.weights,
    gradients: Number = row.held.gradients,
    buffers: Number = row.held.buffers,
    optimizer: Number = row.held.optimizer,
    saved: Number = row.made.map(|made| made.saved),
    outputs: Number = row.made.map(|made| made.outputs),
    output_gradients: Number = row.made.map(|made| made.output_gradients),
}

table! { STEPS, step(of: RowProcess, timeline: &Timeline, step: &StepSpan) {}
    ..of,
    tid: Id = timeline.threads[step.thread].tid,
    number: Number = step.number,
    source: Text = step.source.basis(),
    ts_ns: Time = signed(step.start_ns),
    dur_ns: Time = signed(duration_ns(step.start_ns, step.end_ns)),
    cpu_ns: Number = step.cpu_ns,
}

table! { ANNOTATIONS, annotation(of: RowProcess, timeline: &'a Timeline, span: &AnnotationSpan) {}
    ..of,
    tid: Id = timeline.threads[span.thread].tid,
    name: Text = timeline.names.text(span.name),
    ts_ns: Time = signed(span.start_ns),
    dur_ns: Time = signed(duration_ns(span.start_ns, span.end_ns)),
}

table! { GPU_OPS, operation(of: RowProcess, timeline: &'a Timeline, op: &Op, bytes: Option<u64>) {
    let stream = timeline.streams[op.stream];
}
    ..of,
    device: Id = stream.device,
    stream: Id = stream.number,
    kind: Text = <&'static str>::from(op.kind),
    name: Text = timeline.op_name(op),
    ts_ns: Time = signed(op.start_ns),
    dur_ns: Time = signed(op.duration_ns()),
    call_id: Number = op.call.map(|call| call.at() as u64),
    bytes: Number = bytes,
    process_group: Text = op.group.map(|group| timeline.names.text(group)),
    seq: Number = op.sequence.map(SmallNumber::get),
}

/// A call with its layer, or launches that were only counted: these have neither a function nor a length.
#[derive(Clone, Copy)]
struct CallOrLaunches<'a> {
    thread: ThreadIndex,
    start_ns: u64,
    stream: Option<StreamIndex>,
    call: Option<(CallIndex, &'a Call, Option<&'static str>)>,
    launches: Option<u64>,
}

table! { CALLS, call(of: RowProcess, timeline: &'a Timeline, row: CallOrLaunches<'a>) {
    let stream = row.stream.map(|stream| timeline.streams[stream]);
}
    ..of,
    tid: Id = timeline.threads[row.thread].tid,
    call_id: Number = row.call.map(|(at, ..)| at.at() as u64),
    layer: Text = row.call.and_then(|(.., layer)| layer),
    function: Text = row.call.map(|(_, call, _)| timeline.names.text(call.function)),
    ts_ns: Time = signed(row.start_ns),
    dur_ns: Number = row.call.filter(|(_, call, _)| call.timed).map(|(_, call, _)| call.duration_ns()),
    device: Id = stream.and_then(|stream| stream.device),
    stream: Id = stream.map(|stream| stream.number),
    launches: Number = row.launches,
}

impl<W: Write + Send> TraceTables<W> {
    /// Writes the pauses that wait.
    pub(super) fn write_pauses(&mut self) -> Result<(), TableError> {
        let pauses = std::mem::take(&mut self.current.pauses);
        for (one, examining_ns, called_ns) in &pauses {
            let source = match one.source {
                _ if !self.current.is_ours => "other tool",
                EventSource::Probes => "probes",
                EventSource::Injected => "injected",
                EventSource::Both { .. } => "both",
            };
            let of = RowProcess::new(self.trace(), self.rank(one.pid), one.pid);
            let row = pause(of, source, one, *examining_ns, *called_ns);
            self.row(Table::Pauses, &row)?;
        }
        Ok(())
    }

    pub(super) fn write_frame(&mut self, one: &Frame) -> Result<(), TableError> {
        self.row(Table::Frames, &frame(self.trace(), one))
    }

    pub(super) fn write_garbage(&mut self, found: &Garbage) -> Result<(), TableError> {
        let of = RowProcess::new(self.trace(), self.rank(found.pid), found.pid);
        for count in &found.kinds {
            let kind = self.current.kinds.get(&(found.pid, count.kind)).cloned();
            let kind = kind.unwrap_or_default();
            self.row(Table::Garbage, &garbage(of, found, &kind, count))?;
        }
        Ok(())
    }

    /// Writes the layers of a measured step; the previous step's layers, if they did not change.
    pub(super) fn write_layers(&mut self, layers: &Layers) -> Result<(), TableError> {
        if layers.remarks.contains(&LayersRemark::AtEnd) {
            return Ok(());
        }
        let before = self.current.layer_rows.remove(&layers.pid).unwrap_or_default();
        let rows = layers.rows.clone().unwrap_or(before);
        let of = RowProcess::new(self.trace(), self.rank(layers.pid), layers.pid);
        for row in &rows {
            self.row(Table::Layers, &layer(of, layers, row))?;
        }
        self.current.layer_rows.insert(layers.pid, rows);
        Ok(())
    }

    /// Writes the GPU work, steps and annotations of a process.
    pub(super) fn write_timeline(&mut self, timeline: &Timeline) -> Result<(), TableError> {
        let of = RowProcess::new(timeline.trace, timeline.rank, timeline.pid);
        let mut bytes = timeline.op_bytes.iter().copied().peekable();
        for (at, op) in Index::enumerate(&timeline.ops) {
            let bytes = bytes.next_if(|(op, _): &(OpIndex, u64)| *op == at);
            let row = operation(of, timeline, op, bytes.map(|(_, bytes)| bytes));
            self.row(Table::GpuOps, &row)?;
        }
        self.write_calls(of, timeline)?;
        for one in &timeline.steps {
            self.row(Table::Steps, &step(of, timeline, one))?;
        }
        for span in &timeline.annotations {
            self.row(Table::Annotations, &annotation(of, timeline, span))?;
        }
        Ok(())
    }

    fn write_calls(&mut self, of: RowProcess, timeline: &Timeline) -> Result<(), TableError> {
        for (at, one) in Index::enumerate(&timeline.calls) {
            let layer = self.current.layers.get(timeline.names.text(one.function));
            let row = CallOrLaunches {
                thread: one.thread,
                start_ns: one.start_ns,
                stream: one.stream,
                call: Some((at, one, layer.map(<&str>::from))),
                launches: None,
            };
            self.row(Table::Calls, &call(of, timeline, row))?;
        }
        for launches in &timeline.counted_launches {
            let row = CallOrLaunches {
                thread: launches.thread,
                start_ns: launches.first_ns,
                stream: launches.stream,
                call: None,
                launches: Some(launches.count),
            };
            self.row(Table::Calls, &call(of, timeline, row))?;
        }
        Ok(())
    }
}
