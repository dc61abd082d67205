//! One record as lines of `trace.json` (Chrome trace event format, object form).
//!
//! Owns the text of every event. Does not own where the text goes (`write.rs`, `file.rs`) nor how
//! it is read back (`decode.rs`). Lines carry no separator: whoever writes them puts
//! [`SEPARATOR`] between two and [`FOOTER`] after the last, or the section of frames instead.

mod counters;
mod cuda;
mod frames;
mod gpu;
mod gpu_work;
mod pressure;

pub(crate) use cuda::BACKWARD;
pub(crate) use frames::WrittenFrames;

use crate::EventSource;
use crate::GcSettings;
use crate::Note;
use crate::Pause;
use crate::Process;
use crate::ProcessExit;
use crate::Record;
use crate::TraceHeader;
use gpu::GpuTracks;
use pressure::CounterTracks;
use serde::Serialize;
use std::io;
use std::io::Write;

/// The text before the header on the first line.
pub(crate) const OPENING: &[u8] = br#"{"displayTimeUnit":"ns","traceEvents":["#;
/// The first bytes of every trace: [`OPENING`] and the name of the header's event.
pub(crate) const FIRST_BYTES: &[u8] =
    br#"{"displayTimeUnit":"ns","traceEvents":[{"ph":"M","name":"gctrace_header""#;
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
    push_metadata(out, "gctrace_header", NO_PROCESS, header.started_ns, header)
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
                push_exit(out, exit)?;
                self.timelines.end(out, exit.pid)
            }
            Record::ThreadName { pid, tid, name } => {
                push_name(out, "thread_name", *pid, *tid, name)
            }
            Record::Settings(settings) => push_settings(out, settings),
            Record::Frame(frame) => {
                frames::push_frame(out, frame)?;
                self.frames.add(frame);
                Ok(())
            }
            Record::Counters(process) => counters::push_process_counters(out, process),
            Record::Pressure(pressure) => self.timelines.push(out, pressure),
            Record::Allocations(allocations) => push_metadata(
                out,
                "gctrace_allocations",
                allocations.pid,
                allocations.at_ns,
                allocations,
            ),
            Record::GpuDevice(device) => gpu::push_device(out, device),
            Record::GpuSample(sample) => self.gpus.push(out, sample),
            Record::CudaCall(call) => cuda::push_call(out, call),
            Record::CudaLaunches(launches) => cuda::push_launches(out, launches),
            Record::DeviceMemory(memory) => cuda::push_memory(out, memory),
            Record::PauseMemory(memory) => cuda::push_pause_memory(out, memory),
            Record::Step(step) => cuda::push_step(out, step),
            Record::GpuOp(op) => gpu_work::push_op(out, op),
            Record::GpuSync(sync) => gpu_work::push_sync(out, sync),
            Record::Annotation(annotation) => gpu_work::push_annotation(out, annotation),
            Record::Note(note) => push_note(out, note),
            Record::End(end) => push_metadata(out, "gctrace_end", NO_PROCESS, end.ended_ns, end),
        }
    }

    /// The frames written so far, taken out of the state.
    pub(crate) fn into_frames(self) -> WrittenFrames {
        self.frames
    }
}

fn push_pause(out: &mut Vec<u8>, pause: &Pause) -> io::Result<()> {
    let generation = Some(pause.generation).filter(|known| *known != Pause::UNKNOWN_GENERATION);
    out.extend_from_slice(br#"{"ph":"X","cat":"gc","name":"gc"#);
    if let Some(generation) = generation {
        write!(out, " gen{generation}")?;
    }
    write!(out, r#"","pid":{},"tid":{},"ts":"#, pause.pid, pause.tid)?;
    push_us(out, pause.start_ns)?;
    out.extend_from_slice(br#","dur":"#);
    push_us(out, pause.duration_ns())?;
    push_optional(out, "sf", pause.stack)?;
    write!(out, r#","args":{{"reason":"{}""#, pause.reason.as_str())?;
    push_optional(out, "generation", generation)?;
    push_optional(out, "collected", pause.collected)?;
    push_optional(out, "uncollectable", pause.uncollectable)?;
    push_optional(out, "interpreter", pause.interpreter)?;
    push_optional(out, "cpu_ns", pause.cpu_ns)?;
    push_optional(out, "stop_the_world_ns", pause.stop_the_world_ns)?;
    push_optional(out, "oldest_objects", pause.oldest_objects)?;
    push_optional(out, "heap_objects", pause.heap_objects)?;
    push_optional(out, "young_count", pause.young_count)?;
    if pause.unfinished {
        out.extend_from_slice(br#","unfinished":true"#);
    }
    push_source(out, pause.source)?;
    counters::push_counters(out, &pause.counters)?;
    out.extend_from_slice(b"}}");
    Ok(())
}

/// Nothing for probes, which traces from before there was another source have too.
fn push_source(out: &mut Vec<u8>, source: EventSource) -> io::Result<()> {
    match source {
        EventSource::Probes => Ok(()),
        EventSource::Injected => write!(out, r#","source":"injected""#),
        EventSource::Both { start_ns, end_ns } => {
            out.extend_from_slice(br#","source":"both","injected_ts":"#);
            push_us(out, start_ns)?;
            out.extend_from_slice(br#","injected_dur":"#);
            push_us(out, end_ns.saturating_sub(start_ns))
        }
    }
}

/// Nanoseconds as microseconds with exactly three decimals, without going through a float.
fn push_us(out: &mut Vec<u8>, ns: u64) -> io::Result<()> {
    write!(out, "{}.{:03}", ns / 1000, ns % 1000)
}

fn push_optional<T: std::fmt::Display>(
    out: &mut Vec<u8>,
    key: &str,
    value: Option<T>,
) -> io::Result<()> {
    match value {
        Some(value) => write!(out, r#","{key}":{value}"#),
        None => Ok(()),
    }
}

/// The parts of a [`Process`] that are neither `pid` nor `ts`.
#[derive(Serialize)]
struct ProcessArgs<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace_pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<u32>,
    origin: crate::ProcessOrigin,
    command: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interpreter: Option<&'a crate::Interpreter>,
}

fn push_process(out: &mut Vec<u8>, process: &Process) -> io::Result<()> {
    let name = process_name(process);
    // Perfetto takes an empty name for an error.
    if !name.is_empty() {
        push_name(out, "process_name", process.pid, process.pid, &name)?;
        out.extend_from_slice(SEPARATOR);
    }
    let args = ProcessArgs {
        namespace_pid: process.namespace_pid,
        parent: process.parent,
        origin: process.origin,
        command: &process.command,
        rank: process.rank,
        interpreter: process.interpreter.as_ref(),
    };
    push_metadata(out, "gctrace_process", process.pid, process.since_ns, &args)
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
struct ExitArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
}

fn push_exit(out: &mut Vec<u8>, exit: &ProcessExit) -> io::Result<()> {
    let args = ExitArgs {
        code: exit.code,
        signal: exit.signal,
    };
    push_instant(
        out,
        "gctrace_process_exit",
        Some(exit.pid),
        exit.at_ns,
        &args,
    )
}

#[derive(Serialize)]
struct SettingsArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    thresholds: [i32; 3],
}

fn push_settings(out: &mut Vec<u8>, settings: &GcSettings) -> io::Result<()> {
    let args = SettingsArgs {
        enabled: settings.enabled,
        thresholds: settings.thresholds,
    };
    push_metadata(out, "gctrace_settings", settings.pid, settings.at_ns, &args)
}

#[derive(Serialize)]
struct NoteArgs<'a> {
    message: &'a str,
}

fn push_note(out: &mut Vec<u8>, note: &Note) -> io::Result<()> {
    let args = NoteArgs {
        message: &note.message,
    };
    push_instant(out, "gctrace_note", note.pid, note.at_ns, &args)
}

/// A metadata event: viewers know the standard names and ignore the others.
fn push_metadata<T: Serialize>(
    out: &mut Vec<u8>,
    name: &str,
    pid: u32,
    ns: u64,
    args: &T,
) -> io::Result<()> {
    push_metadata_head(out, name, pid)?;
    out.extend_from_slice(br#","ts":"#);
    push_us(out, ns)?;
    push_args(out, args)
}

fn push_metadata_head(out: &mut Vec<u8>, name: &str, pid: u32) -> io::Result<()> {
    write!(out, r#"{{"ph":"M","name":"{name}","pid":{pid},"tid":{pid}"#)
}

/// An instant event, shown by viewers as a mark on the process, or on the whole trace without one.
fn push_instant<T: Serialize>(
    out: &mut Vec<u8>,
    name: &str,
    pid: Option<u32>,
    ns: u64,
    args: &T,
) -> io::Result<()> {
    let scope = if pid.is_some() { "p" } else { "g" };
    let pid = pid.unwrap_or(NO_PROCESS);
    write!(
        out,
        r#"{{"ph":"i","s":"{scope}","cat":"gctrace","name":"{name}","pid":{pid},"tid":{pid},"ts":"#
    )?;
    push_us(out, ns)?;
    push_args(out, args)
}

fn push_args<T: Serialize>(out: &mut Vec<u8>, args: &T) -> io::Result<()> {
    out.extend_from_slice(br#","args":"#);
    serde_json::to_writer(&mut *out, args)?;
    out.push(b'}');
    Ok(())
}

#[derive(Serialize)]
struct NameArgs<'a> {
    name: &'a str,
}

/// A standard name event, which viewers show as the heading of a process or thread.
fn push_name(out: &mut Vec<u8>, kind: &str, pid: u32, tid: u32, name: &str) -> io::Result<()> {
    write!(out, r#"{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid}"#)?;
    push_args(out, &NameArgs { name })
}
