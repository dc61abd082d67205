//! Events as records.
//!
//! Owns which event means what; processes and the recording as a whole here, the rest in the
//! modules below. A value that makes no sense is left out and said; only an event whose times or
//! ids make no sense is left out whole.

mod cuda;
mod frames;
mod gpu;
mod gpu_work;
mod pauses;
mod pressure;
mod properties;

pub(crate) use frames::FrameNames;
pub(crate) use frames::stack_frame;
pub use properties::TraceProperty;
pub(crate) use properties::property;

use super::events::Event;
use super::value::Value;
use crate::Allocations;
use crate::End;
use crate::Header;
use crate::Interpreter;
use crate::Note;
use crate::Origin;
use crate::Process;
use crate::ProcessExit;
use crate::Record;
use crate::Settings;
use serde::Deserialize;

/// What one event of a trace says.
#[derive(Debug)]
pub enum Item<'a> {
    /// The first line of our traces.
    Header(Box<Header>),
    /// A record of ours, or what other tools write with the same meaning: thread names, garbage
    /// collections under `cat` `gc` or the PyTorch profiler's name `Python GC`, and the frames of
    /// a section `stackFrames`, which may come behind the pauses that name them.
    Record(Record),
    /// The name of a process for trace viewers; in our traces [`Record::Process`] says it better.
    ProcessName {
        /// Process.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// What the trace of another tool says of itself.
    Property(TraceProperty),
    /// An event, or what a trace says of itself, that would be one of the above if its values made
    /// sense; it has been reported as an anomaly.
    Unusable,
    /// Any other event.
    Other(Event<'a>),
}

/// What to report: a sentence without subject, as in `"collected" is not a count`.
pub(crate) type Problem = &'static str;

/// Decodes `event`; `report` is called for every value that is left out.
pub(crate) fn decode<'a>(
    event: Event<'a>,
    names: &mut FrameNames,
    mut report: impl FnMut(Problem),
) -> Item<'a> {
    let item = match event.phase.raw_text() {
        Some(b"X") if pauses::is_collection(&event) => pauses::pause(&event, names, &mut report)
            .map(|pause| Item::Record(Record::Pause(pause))),
        Some(b"X") => cuda::slice(&event).map(Item::Record),
        Some(b"M") => metadata(&event, &mut report),
        Some(b"i") => instant(&event),
        _ => return Item::Other(event),
    };
    match item {
        Ok(item) => item,
        Err(Unread::Other) => Item::Other(event),
        Err(Unread::Problem(problem)) => {
            report(problem);
            Item::Unusable
        }
    }
}

/// Why an event is no record.
enum Unread {
    /// It is none of ours.
    Other,
    /// It is, but it cannot be used.
    Problem(Problem),
}

impl From<Problem> for Unread {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

fn id(value: Value<'_>) -> Option<u32> {
    u32::try_from(value.unsigned()?).ok()
}

fn time(ts: Value<'_>) -> Result<u64, Problem> {
    ts.us_as_ns()
        .ok_or("\"ts\" is missing, negative, absurd or not a number of microseconds")
}

fn metadata<'a>(event: &Event<'a>, report: &mut impl FnMut(Problem)) -> Result<Item<'a>, Unread> {
    let record = match event.name.raw_text().unwrap_or_default() {
        b"gctrace_header" => {
            let header = event.args.parse();
            return Ok(Item::Header(header.or(Err("the header is damaged"))?));
        }
        b"process_name" => {
            let pid = id(event.pid).ok_or(Unread::Other)?;
            return Ok(Item::ProcessName {
                pid,
                name: display_name(event)?,
            });
        }
        b"thread_name" => Record::ThreadName {
            pid: id(event.pid).ok_or(Unread::Other)?,
            tid: id(event.tid).ok_or(Unread::Other)?,
            name: display_name(event)?,
        },
        b"gctrace_process" => Record::Process(process(event)?),
        b"gctrace_settings" => Record::Settings(settings(event)?),
        b"gctrace_frame" => Record::Frame(frames::frame(event)?),
        b"gctrace_counters" => Record::Counters(pressure::process_counters(event, report)?),
        b"gctrace_pressure" => Record::Pressure(pressure::pressure(event)?),
        b"gctrace_pause_memory" => Record::PauseMemory(cuda::pause_memory(event)?),
        b"gctrace_allocations" => Record::Allocations(allocations(event)?),
        b"gctrace_gpu" => Record::GpuDevice(gpu::device(event)?),
        b"gctrace_gpu_sample" => Record::GpuSample(gpu::sample(event)?),
        b"gctrace_end" => Record::End(end(event, report)?),
        _ => return Err(Unread::Other),
    };
    Ok(Item::Record(record))
}

fn allocations(event: &Event<'_>) -> Result<Allocations, Problem> {
    let args: Allocations = event
        .args
        .parse()
        .or(Err("a summary of allocations is damaged"))?;
    Ok(Allocations {
        pid: id(event.pid).ok_or("the \"pid\" of allocations is not a process id")?,
        at_ns: time(event.ts)?,
        ..args
    })
}

fn display_name(event: &Event<'_>) -> Result<String, Unread> {
    let name = event.args.member("name").text().ok_or(Unread::Other)?;
    Ok(name.into_owned())
}

fn end(event: &Event<'_>, report: &mut impl FnMut(Problem)) -> Result<End, Unread> {
    let mut end: End = event.args.parse().or(Err("the last line is damaged"))?;
    match event.ts.us_as_ns() {
        Some(at) => end.ended_ns = at,
        None => report("\"ts\" of the last line is not a time"),
    }
    Ok(end)
}

#[derive(Deserialize)]
struct ProcessArgs {
    namespace_pid: Option<u32>,
    parent: Option<u32>,
    origin: Origin,
    #[serde(default)]
    command: Vec<String>,
    rank: Option<u32>,
    interpreter: Option<Interpreter>,
}

fn process(event: &Event<'_>) -> Result<Process, Problem> {
    let args: ProcessArgs = event
        .args
        .parse()
        .or(Err("the description of a process is damaged"))?;
    Ok(Process {
        pid: id(event.pid).ok_or("a process's \"pid\" is not a process id")?,
        namespace_pid: args.namespace_pid,
        parent: args.parent,
        origin: args.origin,
        since_ns: time(event.ts)?,
        command: args.command,
        rank: args.rank,
        interpreter: args.interpreter,
    })
}

#[derive(Deserialize)]
struct SettingsArgs {
    enabled: Option<bool>,
    thresholds: [i32; 3],
}

fn settings(event: &Event<'_>) -> Result<Settings, Problem> {
    let args: SettingsArgs = event
        .args
        .parse()
        .or(Err("collector settings are damaged"))?;
    Ok(Settings {
        pid: id(event.pid).ok_or("the \"pid\" of settings is not a process id")?,
        at_ns: time(event.ts)?,
        enabled: args.enabled,
        thresholds: args.thresholds,
    })
}

#[derive(Deserialize)]
struct ExitArgs {
    code: Option<i32>,
    signal: Option<i32>,
}

#[derive(Deserialize)]
struct NoteArgs {
    message: String,
}

fn instant<'a>(event: &Event<'a>) -> Result<Item<'a>, Unread> {
    let record = match event.name.raw_text().unwrap_or_default() {
        b"gctrace_process_exit" => {
            let args: ExitArgs = event
                .args
                .parse()
                .or(Err("the end of a process is damaged"))?;
            Record::ProcessExit(ProcessExit {
                pid: id(event.pid).ok_or("the \"pid\" of an exit is not a process id")?,
                at_ns: time(event.ts)?,
                code: args.code,
                signal: args.signal,
            })
        }
        b"gctrace_note" => {
            let args: NoteArgs = event.args.parse().or(Err("a note is damaged"))?;
            Record::Note(Note {
                pid: match event.scope.raw_text() {
                    Some(b"p") => id(event.pid),
                    _ => None,
                },
                at_ns: time(event.ts)?,
                message: args.message,
            })
        }
        b"[memory]" => Record::DeviceMemory(cuda::memory(event).ok_or(Unread::Other)?),
        _ => return Err(Unread::Other),
    };
    Ok(Item::Record(record))
}
