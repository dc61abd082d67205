//! Decodes events to records.
//!
//! Owns the meaning of each event; processes and the recording here, the rest in the modules below.
//! An invalid value is ignored and reported as an anomaly; an event is ignored as a whole only if
//! its times or ids are invalid.

mod cuda;
mod frames;
mod gpu;
mod gpu_work;
mod pauses;
mod pressure;
mod properties;

pub(crate) use frames::FrameNumbers;
pub(crate) use frames::stack_frame;
pub use properties::TraceProperty;
pub(crate) use properties::property;

use super::events::ChromeEvent;
use super::value::JsonValue;
use crate::Allocations;
use crate::GcSettings;
use crate::Interpreter;
use crate::Note;
use crate::Process;
use crate::ProcessExit;
use crate::ProcessOrigin;
use crate::Record;
use crate::TraceEnd;
use crate::TraceHeader;
use serde::Deserialize;

/// The meaning of one event of a trace.
#[derive(Debug)]
pub enum DecodedItem<'a> {
    /// The first line of our traces.
    Header(Box<TraceHeader>),
    /// A gctrace record, or an equivalent event of other tools: thread names, collections under
    /// `cat` `gc` or the PyTorch profiler's name `Python GC`, and the frames of a section
    /// `stackFrames`, which may follow the pauses that refer to them.
    Record(Record),
    /// The name of a process for trace viewers; in gctrace's traces [`Record::Process`] contains
    /// more.
    ProcessName {
        /// Process id.
        pid: u32,
        /// Name of the process.
        name: String,
    },
    /// Metadata of another tool's trace.
    Property(TraceProperty),
    /// An event or metadata that would be one of the above if its values were valid; it was
    /// reported as an anomaly.
    Unusable,
    /// Any other event, undecoded.
    Other(ChromeEvent<'a>),
}

/// What to report: a sentence without subject, as in `"collected" is not a count`.
pub(crate) type Problem = &'static str;

/// Decodes `event`; `report` is called for every value that is left out.
pub(crate) fn decode<'a>(
    event: ChromeEvent<'a>,
    names: &mut FrameNumbers,
    mut report: impl FnMut(Problem),
) -> DecodedItem<'a> {
    let item = match event.phase.raw_text() {
        Some(b"X") if pauses::is_collection(&event) => pauses::pause(&event, names, &mut report)
            .map(|pause| DecodedItem::Record(Record::Pause(pause))),
        Some(b"X") => cuda::slice(&event).map(DecodedItem::Record),
        Some(b"M") => metadata(&event, &mut report),
        Some(b"i") => instant(&event),
        _ => return DecodedItem::Other(event),
    };
    match item {
        Ok(item) => item,
        Err(DecodeError::Other) => DecodedItem::Other(event),
        Err(DecodeError::Problem(problem)) => {
            report(problem);
            DecodedItem::Unusable
        }
    }
}

/// Why an event is no record.
enum DecodeError {
    /// Not an event that this module decodes.
    Other,
    /// It is, but it cannot be used.
    Problem(Problem),
}

impl From<Problem> for DecodeError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

fn id(value: JsonValue<'_>) -> Option<u32> {
    u32::try_from(value.unsigned()?).ok()
}

fn time(ts: JsonValue<'_>) -> Result<u64, Problem> {
    ts.us_as_ns()
        .ok_or("\"ts\" is missing, negative, out of range or not a number of microseconds")
}

fn metadata<'a>(
    event: &ChromeEvent<'a>,
    report: &mut impl FnMut(Problem),
) -> Result<DecodedItem<'a>, DecodeError> {
    let record = match event.name.raw_text().unwrap_or_default() {
        b"gctrace_header" => {
            let header = event.args.parse();
            return Ok(DecodedItem::Header(
                header.or(Err("the header is damaged"))?,
            ));
        }
        b"process_name" => {
            let pid = id(event.pid).ok_or(DecodeError::Other)?;
            return Ok(DecodedItem::ProcessName {
                pid,
                name: display_name(event)?,
            });
        }
        b"thread_name" => Record::ThreadName {
            pid: id(event.pid).ok_or(DecodeError::Other)?,
            tid: id(event.tid).ok_or(DecodeError::Other)?,
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
        _ => return Err(DecodeError::Other),
    };
    Ok(DecodedItem::Record(record))
}

fn allocations(event: &ChromeEvent<'_>) -> Result<Allocations, Problem> {
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

fn display_name(event: &ChromeEvent<'_>) -> Result<String, DecodeError> {
    let name = event.args.member("name").text().ok_or(DecodeError::Other)?;
    Ok(name.into_owned())
}

fn end(event: &ChromeEvent<'_>, report: &mut impl FnMut(Problem)) -> Result<TraceEnd, DecodeError> {
    let mut end: TraceEnd = event.args.parse().or(Err("the last line is damaged"))?;
    match event.ts.us_as_ns() {
        Some(at) => end.ended_ns = at,
        None => report("\"ts\" of the last line is not a time"),
    }
    Ok(end)
}

#[derive(Deserialize)]
struct DecodedProcess {
    namespace_pid: Option<u32>,
    parent: Option<u32>,
    origin: ProcessOrigin,
    #[serde(default)]
    command: Vec<String>,
    rank: Option<u32>,
    interpreter: Option<Interpreter>,
}

fn process(event: &ChromeEvent<'_>) -> Result<Process, Problem> {
    let args: DecodedProcess = event
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
struct DecodedSettings {
    enabled: Option<bool>,
    thresholds: [i32; 3],
}

fn settings(event: &ChromeEvent<'_>) -> Result<GcSettings, Problem> {
    let args: DecodedSettings = event
        .args
        .parse()
        .or(Err("collector settings are damaged"))?;
    Ok(GcSettings {
        pid: id(event.pid).ok_or("the \"pid\" of settings is not a process id")?,
        at_ns: time(event.ts)?,
        enabled: args.enabled,
        thresholds: args.thresholds,
    })
}

#[derive(Deserialize)]
struct DecodedExit {
    code: Option<i32>,
    signal: Option<i32>,
}

#[derive(Deserialize)]
struct DecodedNote {
    message: String,
}

fn instant<'a>(event: &ChromeEvent<'a>) -> Result<DecodedItem<'a>, DecodeError> {
    let record = match event.name.raw_text().unwrap_or_default() {
        b"gctrace_process_exit" => {
            let args: DecodedExit = event
                .args
                .parse()
                .or(Err("the exit of a process is damaged"))?;
            Record::ProcessExit(ProcessExit {
                pid: id(event.pid).ok_or("the \"pid\" of an exit is not a process id")?,
                at_ns: time(event.ts)?,
                code: args.code,
                signal: args.signal,
            })
        }
        b"gctrace_note" => {
            let args: DecodedNote = event.args.parse().or(Err("a note is damaged"))?;
            Record::Note(Note {
                pid: match event.scope.raw_text() {
                    Some(b"p") => id(event.pid),
                    _ => None,
                },
                at_ns: time(event.ts)?,
                message: args.message,
            })
        }
        b"[memory]" => Record::DeviceMemory(cuda::memory(event).ok_or(DecodeError::Other)?),
        _ => return Err(DecodeError::Other),
    };
    Ok(DecodedItem::Record(record))
}
