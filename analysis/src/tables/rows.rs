//! Rows of one trace: pauses, GPU work, steps, frames, annotations and garbage.
//!
//! Owns the order of the cells, which is the order in `columns.rs`.

use super::columns::{ANNOTATIONS, CALLS, FRAMES, GARBAGE, GPU_OPS, LAYERS, PAUSES, STEPS};
use super::file::CellValue;
use super::{Table, TableError, TraceTables};
use crate::gpu::timeline::{StreamIndex, ThreadIndex, Timeline};
use crate::spans::index::Index;
use crate::time::{duration_ns, signed};
use gctrace_event::{Counter, EventSource, Frame, Garbage, Layers, LayersRemark, Pause};
use std::io::Write;

/// The first columns of most tables: trace, rank and process id.
#[derive(Clone, Copy)]
pub(super) struct RowProcess<'a> {
    pub(super) trace: CellValue<'a>,
    pub(super) rank: CellValue<'a>,
    pub(super) pid: CellValue<'a>,
}

impl RowProcess<'_> {
    /// `pid` 0: the trace does not contain it.
    pub(super) fn new(trace: usize, rank: Option<u32>, pid: u32) -> Self {
        Self {
            trace: CellValue::of(trace as u64),
            rank: CellValue::of(rank.map(u64::from)),
            pid: CellValue::of((pid != 0).then_some(u64::from(pid))),
        }
    }
}

/// A time, never null.
pub(super) fn time<'a>(at_ns: u64) -> CellValue<'a> {
    CellValue::Number(signed(at_ns))
}

fn pause<'a>(
    of: RowProcess<'a>,
    source: &'static str,
    pause: &Pause,
    (examining_ns, called_ns): (u64, u64),
) -> [CellValue<'a>; PAUSES.len()] {
    let known = pause.generation != Pause::UNKNOWN_GENERATION;
    let counter = |counter| CellValue::of(pause.counters.get(counter));
    let counted = !pause.counters.is_empty();
    let mark = |mark| if counted { CellValue::Flag(mark) } else { CellValue::Null };
    [
        of.trace,
        of.rank,
        of.pid,
        CellValue::of(u64::from(pause.tid)),
        time(pause.start_ns),
        time(pause.duration_ns()),
        CellValue::of(known.then_some(u64::from(pause.generation))),
        CellValue::Text(pause.reason.into()),
        CellValue::Text(source),
        CellValue::of(pause.collected),
        CellValue::of(pause.uncollectable),
        CellValue::of(pause.cpu_ns),
        CellValue::of(pause.stop_the_world_ns),
        CellValue::of(pause.young_count),
        CellValue::of(pause.oldest_objects),
        CellValue::of(pause.heap_objects),
        CellValue::of(pause.freed_bytes),
        CellValue::signed(pause.interpreter),
        CellValue::of(pause.stack.map(u64::from)),
        CellValue::Flag(pause.unfinished),
        mark(pause.counters.scaled),
        mark(pause.counters.migrated),
        CellValue::of(examining_ns),
        CellValue::of(called_ns),
        counter(Counter::Cycles),
        counter(Counter::Instructions),
        counter(Counter::CacheMisses),
        counter(Counter::LlcLoadMisses),
        counter(Counter::DtlbLoadMisses),
        counter(Counter::BranchMisses),
        counter(Counter::PageFaults),
        counter(Counter::MajorFaults),
        counter(Counter::ContextSwitches),
        counter(Counter::CpuMigrations),
        counter(Counter::TaskClock),
        counter(Counter::CpuClock),
    ]
}

pub(super) fn frame(trace: usize, frame: &Frame) -> [CellValue<'_>; FRAMES.len()] {
    [
        CellValue::of(trace as u64),
        CellValue::of(u64::from(frame.id)),
        CellValue::of(frame.parent.map(u64::from)),
        CellValue::text(frame.function.as_str()),
        CellValue::text(frame.file.as_str()),
        CellValue::of(frame.line.map(u64::from)),
    ]
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
            let row = pause(of, source, one, (*examining_ns, *called_ns));
            self.row(Table::Pauses, &row)?;
        }
        Ok(())
    }

    pub(super) fn write_garbage(&mut self, garbage: &Garbage) -> Result<(), TableError> {
        let of = RowProcess::new(self.trace(), self.rank(garbage.pid), garbage.pid);
        for count in &garbage.kinds {
            let kind = self.current.kinds.get(&(garbage.pid, count.kind)).cloned();
            let kind = kind.unwrap_or_default();
            let row: [CellValue<'_>; GARBAGE.len()] = [
                of.trace,
                of.rank,
                of.pid,
                CellValue::of(u64::from(garbage.tid)),
                time(garbage.at_ns),
                CellValue::text(kind.type_name.as_str()),
                CellValue::text(kind.function.as_deref()),
                CellValue::text(kind.file.as_deref()),
                CellValue::of(kind.line.map(u64::from)),
                CellValue::of(count.objects),
                CellValue::of(count.bytes),
            ];
            self.row(Table::Garbage, &row)?;
        }
        Ok(())
    }

    /// Writes the layers of a measured step; those of the step before, if they did not change.
    pub(super) fn write_layers(&mut self, layers: &Layers) -> Result<(), TableError> {
        if layers.remarks.contains(&LayersRemark::AtEnd) {
            return Ok(());
        }
        let before = self.current.layer_rows.remove(&layers.pid).unwrap_or_default();
        let rows = layers.rows.clone().unwrap_or(before);
        let of = RowProcess::new(self.trace(), self.rank(layers.pid), layers.pid);
        for row in &rows {
            let made = row.made.unwrap_or_default();
            let cells: [CellValue<'_>; LAYERS.len()] = [
                of.trace,
                of.rank,
                of.pid,
                time(layers.at_ns),
                CellValue::of(layers.step),
                CellValue::of(layers.epoch.map(u64::from)),
                CellValue::text(row.path.as_str()),
                CellValue::text(row.type_name.as_str()),
                CellValue::text(row.shape.as_deref()),
                CellValue::text(row.device.as_deref()),
                CellValue::of(row.calls),
                CellValue::of(row.held.weights),
                CellValue::of(row.held.gradients),
                CellValue::of(row.held.buffers),
                CellValue::of(row.held.optimizer),
                CellValue::of(made.saved),
                CellValue::of(made.outputs),
                CellValue::of(made.output_gradients),
            ];
            self.row(Table::Layers, &cells)?;
        }
        self.current.layer_rows.insert(layers.pid, rows);
        Ok(())
    }

    /// Writes the GPU work, steps and annotations of a process.
    pub(super) fn write_timeline(&mut self, timeline: &Timeline) -> Result<(), TableError> {
        let of = RowProcess::new(timeline.trace, timeline.rank, timeline.pid);
        self.write_ops(of, timeline)?;
        self.write_calls(of, timeline)?;
        let tid = |thread: ThreadIndex| CellValue::of(u64::from(timeline.threads[thread].tid));
        for step in &timeline.steps {
            let row: [CellValue<'_>; STEPS.len()] = [
                of.trace,
                of.rank,
                of.pid,
                tid(step.thread),
                CellValue::of(step.number),
                CellValue::Text(step.source.basis()),
                time(step.start_ns),
                time(duration_ns(step.start_ns, step.end_ns)),
                CellValue::of(step.cpu_ns),
            ];
            self.row(Table::Steps, &row)?;
        }
        for span in &timeline.annotations {
            let row: [CellValue<'_>; ANNOTATIONS.len()] = [
                of.trace,
                of.rank,
                of.pid,
                tid(span.thread),
                CellValue::text(timeline.names.text(span.name)),
                time(span.start_ns),
                time(duration_ns(span.start_ns, span.end_ns)),
            ];
            self.row(Table::Annotations, &row)?;
        }
        Ok(())
    }

    fn write_ops(&mut self, of: RowProcess<'_>, timeline: &Timeline) -> Result<(), TableError> {
        let mut bytes = timeline.op_bytes.iter().copied().peekable();
        for (at, op) in Index::enumerate(&timeline.ops) {
            let stream = timeline.streams[op.stream];
            let next = bytes.next_if(|(op, _)| *op == at);
            let row: [CellValue<'_>; GPU_OPS.len()] = [
                of.trace,
                of.rank,
                of.pid,
                CellValue::of(stream.device.map(u64::from)),
                CellValue::of(stream.number),
                CellValue::Text(op.kind.into()),
                CellValue::text(timeline.op_name(op)),
                time(op.start_ns),
                time(op.duration_ns()),
                CellValue::of(op.call.map(|call| call.at() as u64)),
                CellValue::of(next.map(|(_, bytes)| bytes)),
                CellValue::text(op.group.map(|group| timeline.names.text(group))),
                CellValue::of(op.sequence.map(|number| u64::from(number.get()))),
            ];
            self.row(Table::GpuOps, &row)?;
        }
        Ok(())
    }

    /// Calls, and launches that were only counted: those have neither a function nor a length.
    fn write_calls(&mut self, of: RowProcess<'_>, timeline: &Timeline) -> Result<(), TableError> {
        let stream = |stream: Option<StreamIndex>| stream.map(|stream| timeline.streams[stream]);
        let device = |at| {
            let device = stream(at).and_then(|stream| stream.device);
            CellValue::of(device.map(u64::from))
        };
        let number = |at| CellValue::of(stream(at).map(|stream| stream.number));
        for (at, call) in Index::enumerate(&timeline.calls) {
            let function = timeline.names.text(call.function);
            let layer = self.current.layers.get(function).map(<&str>::from);
            let row: [CellValue<'_>; CALLS.len()] = [
                of.trace,
                of.rank,
                of.pid,
                CellValue::of(u64::from(timeline.threads[call.thread].tid)),
                CellValue::of(at.at() as u64),
                CellValue::text(layer),
                CellValue::text(function),
                time(call.start_ns),
                CellValue::of(call.timed.then(|| call.duration_ns())),
                device(call.stream),
                number(call.stream),
                CellValue::Null,
            ];
            self.row(Table::Calls, &row)?;
        }
        for launches in &timeline.counted_launches {
            let row: [CellValue<'_>; CALLS.len()] = [
                of.trace,
                of.rank,
                of.pid,
                CellValue::of(u64::from(timeline.threads[launches.thread].tid)),
                CellValue::Null,
                CellValue::Null,
                CellValue::Null,
                time(launches.first_ns),
                CellValue::Null,
                device(launches.stream),
                number(launches.stream),
                CellValue::of(launches.count),
            ];
            self.row(Table::Calls, &row)?;
        }
        Ok(())
    }
}
