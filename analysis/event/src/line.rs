//! One record as lines of `trace.json` (Chrome trace event format, object form).
//!
//! Owns the head of every event; its `args` are what its record serializes to. Does not own where
//! the text goes (`file.rs`) nor how it is read back (`read/trace.rs`). Lines carry no separator: whoever writes them puts
//! [`SEPARATOR`] between two and [`FOOTER`] after the last, or the section of frames instead.

mod frames;
mod gpu;
mod pressure;

pub(crate) use frames::WrittenFrames;

use crate::{FrameId, Pause, Process, Record, TraceHeader};
use gpu::GpuTracks;
use pressure::CounterTracks;
use serde::Serialize;
use std::io;
use std::io::Write;

/// The text before the header on the first line.
pub(crate) const OPENING: &[u8] = br#"{"displayTimeUnit":"ns","traceEvents":["#;
/// The text between two lines.
pub(crate) const SEPARATOR: &[u8] = b",\n";
/// After the last line: closes the array and the object.
pub(crate) const FOOTER: &[u8] = b"\n]}\n";

/// `pid` of events that are about the whole recording.
const NO_PROCESS: u32 = 0;

/// Longest process name given to trace viewers, in characters; the full command line is in
/// `gctrace_process`.
const PROCESS_NAME_CHARS: usize = 120;

/// Appends the first line: the opening of the file and the header event.
pub(crate) fn push_header(out: &mut Vec<u8>, header: &TraceHeader) -> io::Result<()> {
    out.extend_from_slice(OPENING);
    EventHead::metadata("gctrace_header", NO_PROCESS, header.started_ns).push(out, header)
}

/// State kept between records.
#[derive(Debug, Default)]
pub(crate) struct RecordEncoder {
    frames: WrittenFrames,
    timelines: CounterTracks,
    gpus: GpuTracks,
}

impl RecordEncoder {
    /// Appends the lines of one record, [`SEPARATOR`] before each.
    pub(crate) fn push(&mut self, out: &mut Vec<u8>, record: &Record) -> io::Result<()> {
        out.extend_from_slice(SEPARATOR);
        match record {
            Record::Pause(pause) => push_pause(out, pause),
            Record::Process(process) => push_process(out, process),
            Record::ProcessExit(exit) => {
                EventHead::instant("gctrace_process_exit", Some(exit.pid), exit.at_ns)
                    .push(out, exit)?;
                self.timelines.end(out, exit.pid)
            }
            Record::ThreadName { pid, tid, name } => {
                push_name(out, "thread_name", (*pid, *tid), name)
            }
            Record::Settings(settings) => {
                let head = EventHead::metadata("gctrace_settings", settings.pid, settings.at_ns);
                EventHead { stack: settings.stack, ..head }.push(out, settings)
            }
            Record::Frame(frame) => {
                // It applies to the whole trace.
                EventHead { start_ns: None, ..EventHead::metadata("gctrace_frame", NO_PROCESS, 0) }
                    .push(out, frame)?;
                self.frames.add(frame);
                Ok(())
            }
            Record::Counters(process) => {
                EventHead::metadata("gctrace_counters", process.pid, process.at_ns)
                    .push(out, process)
            }
            Record::Pressure(pressure) => {
                EventHead::metadata("gctrace_pressure", pressure.pid, pressure.at_ns)
                    .push(out, pressure)?;
                self.timelines.push(out, pressure)
            }
            Record::Allocations(allocations) => {
                EventHead::metadata("gctrace_allocations", allocations.pid, allocations.at_ns)
                    .push(out, allocations)
            }
            Record::ObjectKind(kind) => EventHead {
                start_ns: None,
                ..EventHead::metadata("gctrace_object_kind", kind.pid, 0)
            }
            .push(out, kind),
            Record::CycleSignature(cycle) => {
                EventHead { start_ns: None, ..EventHead::metadata("gctrace_cycle", cycle.pid, 0) }
                    .push(out, cycle)
            }
            Record::Garbage(garbage) => EventHead {
                tid: garbage.tid.into(),
                ..EventHead::metadata("gctrace_garbage", garbage.pid, garbage.at_ns)
            }
            .push(out, garbage),
            Record::Called(called) => EventHead {
                tid: called.tid.into(),
                stack: called.stack,
                ..EventHead::metadata("gctrace_called", called.pid, called.at_ns)
            }
            .push(out, called),
            Record::CpuSamples(samples) => EventHead {
                tid: samples.tid.into(),
                stack: samples.stack,
                ..EventHead::metadata("gctrace_samples", samples.pid, samples.at_ns)
            }
            .push(out, samples),
            Record::OffCpu(off) => EventHead {
                tid: off.tid.into(),
                stack: off.stack,
                ..EventHead::metadata("gctrace_off_cpu", off.pid, off.at_ns)
            }
            .push(out, off),
            Record::Layers(layers) => {
                EventHead::metadata("gctrace_layers", layers.pid, layers.at_ns).push(out, layers)
            }
            Record::GpuDevice(device) => {
                EventHead::metadata("gctrace_gpu", NO_PROCESS, device.at_ns).push(out, device)
            }
            Record::GpuSample(sample) => {
                EventHead::metadata("gctrace_gpu_sample", NO_PROCESS, sample.at_ns)
                    .push(out, sample)?;
                self.gpus.push(out, sample)
            }
            Record::CudaCall(call) => EventHead::slice(
                (call.layer.category(), &call.function),
                (call.pid, call.tid.into()),
                (call.start_ns, call.end_ns),
            )
            .push(out, call),
            Record::CudaLaunches(launches) => EventHead::slice(
                ("gctrace", "cuda launches"),
                (launches.pid, launches.tid.into()),
                (launches.first_ns, launches.last_ns),
            )
            .push(out, launches),
            Record::DeviceMemory(memory) => EventHead {
                scope: Some("t"),
                category: Some("cpu_instant_event"),
                tid: memory.tid.into(),
                ..EventHead::instant("[memory]", Some(memory.pid), memory.at_ns)
            }
            .push(out, memory),
            Record::PauseMemory(memory) => EventHead {
                tid: memory.tid.into(),
                ..EventHead::metadata("gctrace_pause_memory", memory.pid, memory.start_ns)
            }
            .push(out, memory),
            Record::EmptyCache(call) => EventHead {
                tid: call.tid.into(),
                stack: call.stack,
                ..EventHead::metadata("gctrace_empty_cache", call.pid, call.start_ns)
            }
            .push(out, call),
            Record::AliveLines(alive) => {
                EventHead::metadata("gctrace_alive", alive.pid, alive.at_ns).push(out, alive)
            }
            Record::Step(step) => EventHead::slice(
                ("user_annotation", &step.marker.annotation()),
                (step.pid, step.tid.into()),
                (step.start_ns, step.end_ns),
            )
            .push(out, &StepArgs { cpu_ns: step.cpu_ns }),
            Record::GpuOp(op) => EventHead::slice(
                (op.kind.category(), &op.name),
                (op.pid.unwrap_or(op.device), op.stream),
                (op.start_ns, op.end_ns),
            )
            .push(out, op),
            Record::GpuSync(sync) => EventHead::slice(
                ("cuda_sync", sync.kind.name()),
                (sync.pid.or(sync.device).unwrap_or(NO_PROCESS), sync.stream.unwrap_or(0)),
                (sync.start_ns, sync.end_ns),
            )
            .push(out, sync),
            Record::OmittedGpuWork(work) => {
                EventHead::metadata("gctrace_omitted_gpu_work", work.pid, work.since_ns)
                    .push(out, work)
            }
            Record::Annotation(annotation) => EventHead::slice(
                ("user_annotation", &annotation.name),
                (annotation.pid, annotation.tid.into()),
                (annotation.start_ns, annotation.end_ns),
            )
            .push(out, &NoArgs {}),
            Record::HostCode(code) => EventHead::slice(
                (code.kind.category(), &code.name),
                (code.pid.unwrap_or(NO_PROCESS), code.tid.unwrap_or_default().into()),
                (code.start_ns, code.end_ns),
            )
            .push(out, &NoArgs {}),
            Record::Note(note) => {
                EventHead::instant("gctrace_note", note.pid, note.at_ns).push(out, note)
            }
            Record::End(end) => {
                EventHead::metadata("gctrace_end", NO_PROCESS, end.ended_ns).push(out, end)
            }
        }
    }

    /// The frames written so far, taken out of the state.
    pub(crate) fn into_frames(self) -> WrittenFrames {
        self.frames
    }
}

/// The members of every event; its `args` are the record itself.
#[derive(Clone, Copy, Default)]
struct EventHead<'a> {
    phase: &'static str,
    /// What an instant marks in viewers: a thread, a process or the whole trace.
    scope: Option<&'static str>,
    category: Option<&'a str>,
    name: &'a str,
    pid: u32,
    /// Thread; of GPU work the stream.
    tid: u64,
    start_ns: Option<u64>,
    duration_ns: Option<u64>,
    stack: Option<FrameId>,
}

impl<'a> EventHead<'a> {
    /// A metadata event: viewers know the standard names and ignore the others.
    fn metadata(name: &'a str, pid: u32, ns: u64) -> Self {
        Self { phase: "M", name, pid, tid: pid.into(), start_ns: Some(ns), ..Self::default() }
    }

    /// An instant event, a mark on the process, or on the whole trace without one.
    fn instant(name: &'a str, pid: Option<u32>, ns: u64) -> Self {
        Self {
            phase: "i",
            scope: Some(if pid.is_some() { "p" } else { "g" }),
            category: Some("gctrace"),
            ..Self::metadata(name, pid.unwrap_or(NO_PROCESS), ns)
        }
    }

    /// A sample of a counter.
    fn counter(name: &'a str, pid: u32, ns: u64) -> Self {
        Self { phase: "C", category: Some("gctrace"), ..Self::metadata(name, pid, ns) }
    }

    /// A complete event.
    fn slice(
        (category, name): (&'a str, &'a str),
        (pid, tid): (u32, u64),
        (start_ns, end_ns): (u64, u64),
    ) -> Self {
        Self {
            phase: "X",
            category: Some(category),
            tid,
            duration_ns: Some(end_ns.saturating_sub(start_ns)),
            ..Self::metadata(name, pid, start_ns)
        }
    }

    /// Appends the event.
    fn push(&self, out: &mut Vec<u8>, args: &(impl Serialize + ?Sized)) -> io::Result<()> {
        const KEY: &[u8] = br#","args":"#;
        write!(out, r#"{{"ph":"{}""#, self.phase)?;
        if let Some(scope) = self.scope {
            write!(out, r#","s":"{scope}""#)?;
        }
        if let Some(category) = self.category {
            write!(out, r#","cat":"{category}""#)?;
        }
        out.extend_from_slice(br#","name":"#);
        serde_json::to_writer(&mut *out, self.name)?;
        write!(out, r#","pid":{},"tid":{}"#, self.pid, self.tid)?;
        if let Some(ns) = self.start_ns {
            push_us(out, "ts", ns)?;
        }
        if let Some(ns) = self.duration_ns {
            push_us(out, "dur", ns)?;
        }
        if let Some(stack) = self.stack {
            write!(out, r#","sf":{stack}"#)?;
        }
        out.extend_from_slice(KEY);
        let start = out.len();
        serde_json::to_writer(&mut *out, args)?;
        if self.duration_ns.is_some() && out.get(start..) == Some(b"{}") {
            out.truncate(start - KEY.len());
        }
        out.push(b'}');
        Ok(())
    }
}

/// Appends nanoseconds as microseconds with exactly three decimals, without going through a float.
fn push_us(out: &mut Vec<u8>, key: &str, ns: u64) -> io::Result<()> {
    write!(out, r#","{key}":{}.{:03}"#, ns / 1000, ns % 1000)
}

/// The `args` of a mark of a step.
#[derive(Serialize)]
struct StepArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_ns: Option<u64>,
}

/// The `args` of an event that has none.
#[derive(Serialize)]
struct NoArgs {}

fn push_pause(out: &mut Vec<u8>, pause: &Pause) -> io::Result<()> {
    let name = match pause.generation {
        Pause::UNKNOWN_GENERATION => "gc",
        0 => "gc gen0",
        1 => "gc gen1",
        2 => "gc gen2",
        other => &format!("gc gen{other}"),
    };
    let (thread, times) = ((pause.pid, pause.tid.into()), (pause.start_ns, pause.end_ns));
    EventHead { stack: pause.stack, ..EventHead::slice(("gc", name), thread, times) }
        .push(out, pause)
}

fn push_process(out: &mut Vec<u8>, process: &Process) -> io::Result<()> {
    let name = process_name(process);
    // Perfetto takes an empty name for an error.
    if !name.is_empty() {
        push_name(out, "process_name", (process.pid, process.pid), &name)?;
        out.extend_from_slice(SEPARATOR);
    }
    EventHead::metadata("gctrace_process", process.pid, process.since_ns).push(out, process)
}

/// The process name in trace viewers: the command line, its program without directories, preceded
/// by the rank.
fn process_name(process: &Process) -> String {
    let mut words = process.command.iter();
    let program = words.next().map_or("", String::as_str);
    let mut name = match process.rank {
        Some(rank) => format!("rank {rank}: "),
        None => String::new(),
    };
    name.push_str(program.rsplit('/').next().unwrap_or(program));
    for word in words {
        name.push(' ');
        name.push_str(word);
    }
    match name.char_indices().nth(PROCESS_NAME_CHARS) {
        Some((cut, _)) => format!("{}…", name.get(..cut).unwrap_or_default()),
        None => name,
    }
}

#[derive(Serialize)]
struct NameArgs<'a> {
    name: &'a str,
}

/// A standard name event, which viewers show as the heading of a process or thread.
fn push_name(out: &mut Vec<u8>, kind: &str, (pid, tid): (u32, u32), name: &str) -> io::Result<()> {
    EventHead { tid: tid.into(), start_ns: None, ..EventHead::metadata(kind, pid, 0) }
        .push(out, &NameArgs { name })
}
