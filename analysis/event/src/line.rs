//! One record as lines of `trace.json` (Chrome trace event format, object form).
//!
//! Owns the head of every event; its `args` are the serialized record. Does not own where the text goes (`file.rs`) nor
//! how it is read back (`read/trace.rs`). Lines carry no separator: their writer puts [`SEPARATOR`] between two and
//! [`FOOTER`] after the last, or the section of frames instead.

mod frames;
mod gpu;
mod pressure;

pub(crate) use frames::WrittenFrames;

use crate::record::{Declared, OfAnyKind};
use crate::{FrameId, Phase, Process, Record, TraceHeader};
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
        if let Record::Process(process) = record {
            push_process_name(out, process)?;
        }
        record.with(PushEvent(out))?;
        // Draws timelines for viewers, and keeps frames for the section of frames.
        match record {
            Record::ProcessExit(exit) => self.timelines.end(out, exit.pid),
            Record::Frame(frame) => {
                self.frames.add(frame);
                Ok(())
            }
            Record::Pressure(pressure) => self.timelines.push(out, pressure),
            Record::GpuSample(sample) => self.gpus.push(out, sample),
            _ => Ok(()),
        }
    }

    /// The frames written so far, taken out of the state.
    pub(crate) fn into_frames(self) -> WrittenFrames {
        self.frames
    }
}

/// Appends the event of a record.
struct PushEvent<'a>(&'a mut Vec<u8>);

impl OfAnyKind for PushEvent<'_> {
    type Result = io::Result<()>;

    fn of<T: Declared + Serialize>(self, record: &T) -> io::Result<()> {
        let (pid, tid) = record.line_ids();
        let stack = record.stack();
        let head = EventHead { pid, tid, start_ns: record.ts_ns(), stack, ..EventHead::default() };
        let name = T::KIND.name;
        match T::KIND.phase {
            Phase::Meta => EventHead { phase: "M", name, ..head }.push(self.0, record),
            Phase::Instant(category) => {
                let scope = match (record.tid(), record.pid()) {
                    (Some(_), _) => "t",
                    (None, Some(_)) => "p",
                    (None, None) => "g",
                };
                let (scope, category) = (Some(scope), Some(category));
                EventHead { phase: "i", name, scope, category, ..head }.push(self.0, record)
            }
            Phase::Slice => {
                let (category, name) = record.title();
                let (category, name) = (Some(category), &*name);
                let duration_ns =
                    record.span_ns().map(|(start, end)| gctrace_units::duration_ns(start, end));
                EventHead { phase: "X", name, category, duration_ns, ..head }.push(self.0, record)
            }
        }
    }
}

/// The members of every event; its `args` are the record itself.
#[derive(Clone, Copy, Default)]
struct EventHead<'a> {
    phase: &'static str,
    /// The scope of an instant in viewers: a thread, a process or the whole trace.
    scope: Option<&'static str>,
    category: Option<&'a str>,
    name: &'a str,
    pid: u32,
    /// Thread; for GPU work the stream.
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

    /// A sample of a counter.
    fn counter(name: &'a str, pid: u32, ns: u64) -> Self {
        Self { phase: "C", category: Some("gctrace"), ..Self::metadata(name, pid, ns) }
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

fn push_process_name(out: &mut Vec<u8>, process: &Process) -> io::Result<()> {
    let name = process_name(process);
    // Perfetto takes an empty name for an error.
    if name.is_empty() {
        return Ok(());
    }
    let pid = process.pid;
    EventHead { start_ns: None, ..EventHead::metadata("process_name", pid, 0) }
        .push(out, &NameArgs { name: &name })?;
    out.extend_from_slice(SEPARATOR);
    Ok(())
}

/// The process name in trace viewers: the command line, its program without directories, preceded
/// by the rank.
fn process_name(process: &Process) -> String {
    let mut words = process.command.iter();
    let program = if let Some(program) = words.next() { program.as_str() } else { "" };
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
