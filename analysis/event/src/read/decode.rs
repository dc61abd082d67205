//! Decodes events to records.
//!
//! Owns the meaning of each event. Records that only gctrace writes deserialize from their `args`;
//! those that other tools write too are in the modules below, member by member: there an invalid
//! value is ignored and reported as an anomaly, and the event only if its times or ids are invalid.

mod frames;
mod pauses;
mod profiler;

pub(crate) use frames::FrameNumbers;
pub(crate) use frames::stack_frame;
pub use profiler::TraceProperty;
pub(crate) use profiler::property;

use super::events::ChromeEvent;
use super::value::JsonValue;
use crate::Allocations;
use crate::Frame;
use crate::GcSettings;
use crate::GpuDevice;
use crate::GpuSample;
use crate::Note;
use crate::PauseMemory;
use crate::Pressure;
use crate::Process;
use crate::ProcessExit;
use crate::Record;
use crate::TraceEnd;
use crate::TraceHeader;
use serde::de::DeserializeOwned;

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
        Some(b"X") => profiler::slice(&event).map(DecodedItem::Record),
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
    /// It is present but invalid.
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

fn process_id(event: &ChromeEvent<'_>, problem: Problem) -> Result<u32, Problem> {
    id(event.pid).ok_or(problem)
}

/// The record in the `args` of an event of gctrace's; what is in the event's head is missing.
fn args<T: DeserializeOwned>(event: &ChromeEvent<'_>, problem: Problem) -> Result<T, Problem> {
    event.args.parse().or(Err(problem))
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
            return Ok(DecodedItem::Header(args(event, "the header is damaged")?));
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
        b"gctrace_process" => Record::Process(Process {
            pid: process_id(event, "a process's \"pid\" is not a process id")?,
            since_ns: time(event.ts)?,
            ..args(event, "the description of a process is damaged")?
        }),
        b"gctrace_settings" => Record::Settings(GcSettings {
            pid: process_id(event, "the \"pid\" of settings is not a process id")?,
            at_ns: time(event.ts)?,
            ..args(event, "collector settings are damaged")?
        }),
        b"gctrace_frame" => Record::Frame(args::<Frame>(event, "a stack frame is damaged")?),
        b"gctrace_counters" => Record::Counters(pauses::process_counters(event, report)?),
        b"gctrace_pressure" => Record::Pressure(pressure(event)?),
        b"gctrace_pause_memory" => Record::PauseMemory(PauseMemory {
            pid: process_id(event, "the \"pid\" of a pause's memory is not a process id")?,
            tid: id(event.tid).ok_or("the \"tid\" of a pause's memory is not a thread id")?,
            start_ns: time(event.ts)?,
            ..args(event, "the device memory of a pause is damaged")?
        }),
        b"gctrace_allocations" => Record::Allocations(Allocations {
            pid: process_id(event, "the \"pid\" of allocations is not a process id")?,
            at_ns: time(event.ts)?,
            ..args(event, "a summary of allocations is damaged")?
        }),
        b"gctrace_gpu" => Record::GpuDevice(GpuDevice {
            at_ns: time(event.ts)?,
            ..args(event, "the description of a GPU is damaged")?
        }),
        b"gctrace_gpu_sample" => Record::GpuSample(GpuSample {
            at_ns: time(event.ts)?,
            ..args(event, "a sample of a GPU is damaged")?
        }),
        b"gctrace_end" => Record::End(end(event, report)?),
        _ => return Err(DecodeError::Other),
    };
    Ok(DecodedItem::Record(record))
}

fn pressure(event: &ChromeEvent<'_>) -> Result<Pressure, Problem> {
    let pressure = Pressure {
        pid: process_id(
            event,
            "the \"pid\" of allocation pressure is not a process id",
        )?,
        at_ns: time(event.ts)?,
        ..args(event, "the allocation pressure of a process is damaged")?
    };
    match pressure.since_ns > pressure.at_ns {
        true => Err("an interval of allocation pressure ends before it starts"),
        false => Ok(pressure),
    }
}

fn display_name(event: &ChromeEvent<'_>) -> Result<String, DecodeError> {
    let name = event.args.member("name").text().ok_or(DecodeError::Other)?;
    Ok(name.into_owned())
}

fn end(event: &ChromeEvent<'_>, report: &mut impl FnMut(Problem)) -> Result<TraceEnd, DecodeError> {
    let mut end: TraceEnd = args(event, "the last line is damaged")?;
    match event.ts.us_as_ns() {
        Some(at) => end.ended_ns = at,
        None => report("\"ts\" of the last line is not a time"),
    }
    Ok(end)
}

fn instant<'a>(event: &ChromeEvent<'a>) -> Result<DecodedItem<'a>, DecodeError> {
    let record = match event.name.raw_text().unwrap_or_default() {
        b"gctrace_process_exit" => Record::ProcessExit(ProcessExit {
            pid: process_id(event, "the \"pid\" of an exit is not a process id")?,
            at_ns: time(event.ts)?,
            ..args(event, "the exit of a process is damaged")?
        }),
        b"gctrace_note" => Record::Note(Note {
            pid: match event.scope.raw_text() {
                Some(b"p") => id(event.pid),
                _ => None,
            },
            at_ns: time(event.ts)?,
            ..args(event, "a note is damaged")?
        }),
        b"[memory]" => Record::DeviceMemory(profiler::memory(event).ok_or(DecodeError::Other)?),
        _ => return Err(DecodeError::Other),
    };
    Ok(DecodedItem::Record(record))
}
