//! A trace file as a sequence of records.
//!
//! Owns the meaning of each event, the version of the format and the list of anomalies. Records that only gctrace
//! writes deserialize from their `args`; records that other tools also write are in the modules below, member by
//! member: there an invalid value is ignored and reported as an anomaly, and the event only if its times or ids are
//! invalid.

mod code;
mod frames;
pub(crate) mod pauses;
mod profiler;

use super::error::{ReadError, TracePosition};
use super::events::{ChromeEvent, EventReader, SkippedValues, TraceEntry, TraceProperty};
use super::input::TraceInput;
use super::value::JsonValue;
use crate::record::Declared;
use crate::{
    EventSource, Head, Kind, Note, NotebookCells, Pause, ProcessExit, Record, RecordingMode,
    ThreadName, TraceEnd, TraceHeader, UnpairedPauses,
};
use bitcode::{Decode, Encode};
use code::CodeFilter;
use frames::{FrameNumbers, stack_frame};
use serde::de::DeserializeOwned;
use std::io::Read;
use std::path::Path;

/// An ignored invalid value in a trace.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Anomaly {
    /// Position of the event, frame or metadata that contains it.
    pub position: TracePosition,
    /// The problem, as in `"collected" is not a count`.
    pub problem: String,
}

/// The invalid values of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct Anomalies {
    /// Number of anomalies, including anomalies beyond the room of `first`.
    pub count: u64,
    /// The first of them, at most [`Anomalies::KEPT`].
    pub first: Vec<Anomaly>,
}

impl Anomalies {
    /// Length of `first`: enough to find the problem.
    pub const KEPT: usize = 8;

    fn push(&mut self, position: impl FnOnce() -> TracePosition, problem: &'static str) {
        self.count += 1;
        if self.first.len() < Self::KEPT {
            let position = position();
            let problem = problem.to_owned();
            self.first.push(Anomaly { position, problem });
        }
    }
}

/// How the reading of a trace ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct TraceCompletion {
    /// Events read, including events of no interest.
    pub events: u64,
    /// Where the file ends in the middle of something.
    pub cut: Option<TracePosition>,
    /// Values and events that were ignored.
    pub anomalies: Anomalies,
    /// Pauses that both sources recorded in the trace; each was read once.
    pub recorded_twice: u64,
    /// For a recorder without a last line: the sums of records that its earlier segments lost or only counted.
    pub before_end: Option<TraceEnd>,
}

/// Reads a trace: ours, or any in Chrome's trace event format.
pub struct TraceReader {
    name: String,
    events: EventReader,
    anomalies: Anomalies,
    names: FrameNumbers,
    codes: CodeFilter,
    cells: NotebookCells,
    /// There was a header of ours: frames are events, the section only repeats them.
    is_ours: bool,
    /// Pauses that one of two sources recorded alone; `None`: only one source.
    unpaired: Option<UnpairedPauses>,
    recorded_twice: u64,
}

impl TraceReader {
    /// Opens a file; `-` is standard input.
    ///
    /// # Errors
    /// See [`TraceInput::open`].
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Ok(Self::new(EventReader::new(TraceInput::open(path)?)))
    }

    /// Reads the rest of an event reader; for a file use [`TraceReader::open`].
    #[must_use]
    pub fn new(events: EventReader) -> Self {
        Self {
            name: events.input().name().to_owned(),
            events,
            anomalies: Anomalies::default(),
            names: FrameNumbers::default(),
            codes: CodeFilter::default(),
            cells: NotebookCells::default(),
            is_ours: false,
            unpaired: None,
            recorded_twice: 0,
        }
    }

    /// The events below, for position and progress.
    #[must_use]
    pub fn events(&self) -> &EventReader {
        &self.events
    }

    /// Goes on where another reader ended, with the next part of one recording: if the other reader has read a record
    /// of a pause, that pause is read once, and cells of notebooks keep their names. To be called before anything is
    /// read.
    pub fn go_on_after(&mut self, before: &mut Self) {
        self.unpaired = before.unpaired.take();
        self.cells = std::mem::take(&mut before.cells);
    }

    /// Returns how the file ended, once it was read to its end.
    #[must_use]
    pub fn finish(mut self) -> TraceCompletion {
        self.note_skipped();
        let first = &mut self.anomalies.first;
        first.sort_by_key(|anomaly| anomaly.position);
        TraceCompletion {
            events: self.events.events(),
            cut: self.events.cut(),
            anomalies: self.anomalies,
            recorded_twice: self.recorded_twice,
            before_end: None,
        }
    }

    fn note_skipped(&mut self) {
        let SkippedValues { first, count } = self.events.take_skipped();
        let unnamed = count - first.len() as u64;
        for (position, problem) in first {
            self.anomalies.push(|| position, problem);
        }
        self.anomalies.count += unnamed;
    }

    /// The next item, or `None` at the end.
    ///
    /// # Errors
    /// See [`EventReader::next_entry`]; [`ReadError::Format`] for traces of the future.
    pub fn next_item(&mut self) -> Result<Option<DecodedItem<'_>>, ReadError> {
        self.note_skipped();
        if self.is_ours {
            self.events.skip_frames();
        }
        let Some(entry) = self.events.next_entry()? else { return Ok(None) };
        let anomalies = &mut self.anomalies;
        let place = entry.place();
        let report = |problem| anomalies.push(|| place.position(), problem);
        let item = match entry {
            TraceEntry::Event(event) => decode(event, &mut self.names, &mut self.codes, report),
            TraceEntry::Frame(frame) => stack_frame(&frame, &mut self.names, report),
            TraceEntry::Property(member) => property(member.property(), report),
        };
        match item {
            DecodedItem::Header(header) if header.format != crate::FORMAT => {
                Err(ReadError::Format {
                    file: self.name.clone(),
                    position: place.position(),
                    format: header.format,
                })
            }
            DecodedItem::Header(header) => {
                self.is_ours = true;
                let both = header.mode == RecordingMode::Both;
                self.unpaired =
                    if both { Some(self.unpaired.take().unwrap_or_default()) } else { None };
                Ok(Some(DecodedItem::Header(header)))
            }
            DecodedItem::Record(Record::Pause(pause))
                if is_second_record(self.unpaired.as_mut(), &pause) =>
            {
                self.recorded_twice += 1;
                Ok(Some(DecodedItem::Unusable))
            }
            DecodedItem::Record(mut record) => {
                self.cells.name_in(&mut record);
                Ok(Some(DecodedItem::Record(record)))
            }
            item => Ok(Some(item)),
        }
    }
}

/// Whether the other source's record of this pause was read before. gctrace joins the two while it
/// records, unless one of them comes late.
fn is_second_record(unpaired: Option<&mut UnpairedPauses>, pause: &Pause) -> bool {
    let Some(unpaired) = unpaired else { return false };
    if matches!(pause.source, EventSource::Both { .. }) {
        return false;
    }
    let is_second = unpaired.take_other(pause);
    if !is_second {
        unpaired.add(pause);
    }
    is_second
}

/// The meaning of one event of a trace.
#[derive(Debug)]
pub enum DecodedItem<'a> {
    /// The first line of our traces.
    Header(Box<TraceHeader>),
    /// A gctrace record, or an equivalent event of other tools: thread names, collections under `cat` `gc` or the
    /// PyTorch profiler's name `Python GC`, and the frames of a section `stackFrames`. That section may follow the
    /// pauses that refer to it.
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
    /// An event or metadata that would be one of the above if its values were valid (reported as an anomaly), or a
    /// second record of a pause.
    Unusable,
    /// Any other event, undecoded.
    Other(ChromeEvent<'a>),
    /// In summaries instead of other events: their first and last time.
    Work {
        /// Process id; `None` for events that state none.
        pid: Option<u32>,
        /// First start, in ns on the trace's clock.
        start_ns: u64,
        /// Last end, in ns on the trace's clock.
        end_ns: u64,
    },
}

/// The problem to report: a sentence without subject, as in `"collected" is not a count`.
type Problem = &'static str;

/// Decodes `event`; `report` is called for every value that is left out.
fn decode<'a>(
    event: ChromeEvent<'a>,
    names: &mut FrameNumbers,
    codes: &mut CodeFilter,
    mut report: impl FnMut(Problem),
) -> DecodedItem<'a> {
    let item = match event.phase.raw_text() {
        Some(b"X") if pauses::is_collection(&event) => pauses::pause(&event, names, &mut report)
            .map(|pause| DecodedItem::Record(Record::Pause(pause))),
        Some(b"X") => profiler::slice(&event, codes).map(DecodedItem::Record),
        Some(b"M") => metadata(&event, names, &mut report),
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

/// `report` is called where the value makes no sense.
fn property<'a>(
    property: Result<TraceProperty, Problem>,
    mut report: impl FnMut(Problem),
) -> DecodedItem<'a> {
    match property {
        Ok(property) => DecodedItem::Property(property),
        Err(problem) => {
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

/// The record in the `args` of a gctrace event, without the members in the event's head.
fn args<T: DeserializeOwned>(event: &ChromeEvent<'_>, problem: Problem) -> Result<T, Problem> {
    event.args.parse().or(Err(problem))
}

fn time(ts: JsonValue<'_>) -> Result<u64, Problem> {
    ts.us_as_ns().ok_or("\"ts\" is missing, negative, out of range or not a number of microseconds")
}

fn metadata<'a>(
    event: &ChromeEvent<'a>,
    names: &mut FrameNumbers,
    report: &mut impl FnMut(Problem),
) -> Result<DecodedItem<'a>, DecodeError> {
    let record = match event.name.raw_text().ok_or(DecodeError::Other)? {
        b"gctrace_header" => {
            return Ok(DecodedItem::Header(args(event, "the header is damaged")?));
        }
        b"process_name" => {
            let pid = id(event.pid).ok_or(DecodeError::Other)?;
            return Ok(DecodedItem::ProcessName { pid, name: display_name(event)? });
        }
        b"thread_name" => Record::ThreadName(ThreadName {
            pid: id(event.pid).ok_or(DecodeError::Other)?,
            tid: id(event.tid).ok_or(DecodeError::Other)?,
            name: display_name(event)?,
        }),
        b"gctrace_counters" => Record::Counters(pauses::process_counters(event, report)?),
        b"gctrace_end" => Record::End(end(event, report)?),
        name => {
            let mut args = event.args.deserializer();
            let head = |kind| head(kind, event, names, report);
            let record = Record::by_name(name, &mut args, head).ok_or(DecodeError::Other)?;
            record?
        }
    };
    Ok(DecodedItem::Record(record))
}

/// The members of a kind's line besides `args`.
fn head(
    kind: &Kind,
    event: &ChromeEvent<'_>,
    names: &mut FrameNumbers,
    report: &mut impl FnMut(Problem),
) -> Result<Head, Problem> {
    let has = kind.members;
    let mut head = Head::default();
    if has.pid {
        head.pid = Some(id(event.pid).ok_or(kind.no_pid)?);
    }
    if has.tid {
        head.tid = Some(id(event.tid).ok_or(kind.no_tid)?);
    }
    if has.ts {
        let at_ns = time(event.ts)?;
        head.span_ns = Some((at_ns, at_ns));
    }
    if has.stack && !event.stack.is_missing() {
        head.stack = names.id(event.stack, report);
    }
    Ok(head)
}

fn display_name(event: &ChromeEvent<'_>) -> Result<String, DecodeError> {
    let name = event.args.member("name").text().ok_or(DecodeError::Other)?;
    Ok(name.into_owned())
}

fn end(event: &ChromeEvent<'_>, report: &mut impl FnMut(Problem)) -> Result<TraceEnd, DecodeError> {
    let mut end: TraceEnd = args(event, TraceEnd::KIND.damaged)?;
    match event.ts.us_as_ns() {
        Some(at) => end.ended_ns = at,
        None => report("\"ts\" of the last line is not a time"),
    }
    Ok(end)
}

fn instant<'a>(event: &ChromeEvent<'a>) -> Result<DecodedItem<'a>, DecodeError> {
    let record = match event.name.raw_text().ok_or(DecodeError::Other)? {
        b"gctrace_process_exit" => Record::ProcessExit(ProcessExit {
            pid: id(event.pid).ok_or(ProcessExit::KIND.no_pid)?,
            at_ns: time(event.ts)?,
            ..args(event, ProcessExit::KIND.damaged)?
        }),
        b"gctrace_note" => Record::Note(Note {
            pid: match event.scope.raw_text() {
                Some(b"p") => id(event.pid),
                _ => None,
            },
            at_ns: time(event.ts)?,
            ..args(event, Note::KIND.damaged)?
        }),
        b"[memory]" => Record::DeviceMemory(profiler::memory(event).ok_or(DecodeError::Other)?),
        _ => return Err(DecodeError::Other),
    };
    Ok(DecodedItem::Record(record))
}

/// The first bytes of every trace: its opening and the name of the header's event.
const FIRST_BYTES: &[u8] =
    br#"{"displayTimeUnit":"ns","traceEvents":[{"ph":"M","name":"gctrace_header""#;

/// Whether these bytes start like gctrace's own traces, compressed or not. Reads only the start.
///
/// # Errors
/// [`ReadError::Io`] if the first bytes cannot be read. Damaged compressed data is not a gctrace
/// trace.
pub fn is_gctrace(name: &str, bytes: impl Read + Send + 'static) -> Result<bool, ReadError> {
    let input = TraceInput::new(name, bytes)?;
    let compressed = input.compressed();
    let mut first = Vec::with_capacity(FIRST_BYTES.len());
    match input.take(FIRST_BYTES.len() as u64).read_to_end(&mut first) {
        Ok(_) => Ok(first == FIRST_BYTES),
        Err(_) if compressed => Ok(false),
        Err(source) => {
            Err(ReadError::Io { file: name.to_owned(), byte: first.len() as u64, source })
        }
    }
}
