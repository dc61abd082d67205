//! Events of a trace, one after the other, from a stream of bytes.
//!
//! Owns the buffer and the frame around the events: object form or array form, other sections,
//! cut-off files. Does not know what an event means (`trace.rs`).

mod frames;
mod properties;

pub use frames::StackFrameEntry;
pub use properties::{TraceMember, TraceProperty};

use self::properties::KnownMember;
use gctrace_units::part;

use super::error::{ReadError, TracePlace, TracePosition, describe, excerpt};
use super::input::{FIRST_BYTES, ReadWindow, TraceInput};
use super::scan::{FieldRanges, ScanStop};
use super::value::JsonValue;
use super::{scan, tokens};
use std::ops::Range;

/// Bytes read at once, and the usual size of the buffer.
const BUFFER_BYTES: usize = 256 * 1024;
/// Longest event that is parsed; longer ones are skipped and reported.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// One event. Missing fields are [`JsonValue::is_missing`]; their types are unchecked.
#[derive(Debug, Clone, Copy)]
pub struct ChromeEvent<'a> {
    /// Member `cat`: the category, such as `gc` or `kernel`.
    pub category: JsonValue<'a>,
    /// Member `name`: viewers show it for the event.
    pub name: JsonValue<'a>,
    /// Member `ph`: the phase, such as `X` for a complete event and `M` for metadata.
    pub phase: JsonValue<'a>,
    /// Member `ts`: the time of the event, or its start, in microseconds.
    pub ts: JsonValue<'a>,
    /// Member `dur`: the duration of a complete event, in microseconds.
    pub dur: JsonValue<'a>,
    /// Member `pid`: the process id; the PyTorch profiler writes the device of GPU work here.
    pub pid: JsonValue<'a>,
    /// Member `tid`: the thread id; the PyTorch profiler writes the stream of GPU work here.
    pub tid: JsonValue<'a>,
    /// `id`, of asynchronous and flow events.
    pub id: JsonValue<'a>,
    /// Member `s`: the scope of an instant event (`g`, `p` or `t`).
    pub scope: JsonValue<'a>,
    /// Member `args`: an object with members that depend on the event.
    pub args: JsonValue<'a>,
    /// `sf`, the key of a frame in the section `stackFrames`.
    pub stack: JsonValue<'a>,
    /// Place of the event in the file.
    pub place: TracePlace<'a>,
}

impl ChromeEvent<'_> {
    /// Process id, start and end in ns of an event with a time, whatever it is about.
    #[must_use]
    pub fn work(&self) -> Option<(Option<u32>, u64, u64)> {
        if !matches!(self.phase.raw_text(), Some(b"X" | b"B" | b"E" | b"i")) {
            return None;
        }
        let start_ns = self.ts.us_as_ns()?;
        let end_ns = match self.dur.us_as_ns() {
            Some(length_ns) => gctrace_units::after(start_ns, length_ns),
            None => start_ns,
        };
        let pid = self.pid.unsigned().and_then(|pid| u32::try_from(pid).ok());
        Some((pid, start_ns, end_ns))
    }
}

/// One element of a trace, borrowed from the reader's buffer until the next one is read.
#[derive(Debug, Clone, Copy)]
pub enum TraceEntry<'a> {
    /// An event of `traceEvents`.
    Event(ChromeEvent<'a>),
    /// A frame of the section `stackFrames`, before or after the events.
    Frame(StackFrameEntry<'a>),
    /// Metadata of the trace, before or after the events.
    Property(TraceMember<'a>),
}

impl<'a> TraceEntry<'a> {
    /// Where it is in the file.
    #[must_use]
    pub fn place(&self) -> TracePlace<'a> {
        match self {
            Self::Event(event) => event.place,
            Self::Frame(frame) => frame.place,
            Self::Property(member) => member.place,
        }
    }
}

/// Where in the file the reader is.
#[derive(Debug, Clone, Copy)]
enum ReaderState {
    /// Before the first byte.
    Start,
    /// Among the members of the outermost object.
    Members,
    /// In the array of events.
    Events,
    /// In the object of stack frames.
    Frames,
    /// In the object `distributedInfo`.
    Distributed,
    /// Before the value of a property.
    Property(&'static KnownMember),
    /// After the closing brace.
    Done,
}

/// A member of the outermost object, by its key.
enum TraceSection {
    Events,
    Frames,
    Distributed,
    Property(&'static KnownMember),
    /// The section of a speedscope file.
    Profiles,
    Other,
}

impl TraceSection {
    /// The section of the member with this quoted key.
    fn of(key: &[u8]) -> Self {
        match key {
            br#""traceEvents""# => Self::Events,
            br#""stackFrames""# => Self::Frames,
            br#""distributedInfo""# => Self::Distributed,
            br#""profiles""# => Self::Profiles,
            _ => KnownMember::find(key, false).map_or(Self::Other, Self::Property),
        }
    }
}

/// Reads events in the order of the file. Memory is one buffer of 256 KiB, or twice the longest
/// event up to 16 MiB.
pub struct EventReader {
    window: ReadWindow,
    state: ReaderState,
    array_form: bool,
    saw_events: bool,
    /// It has profiles, as files of speedscope do.
    is_speedscope: bool,
    wants_frames: bool,
    cut: Option<TracePosition>,
    skipped: SkippedValues,
}

/// Values that were passed over.
#[derive(Debug, Default)]
pub(crate) struct SkippedValues {
    /// The first few, with their positions.
    pub(crate) first: Vec<(TracePosition, &'static str)>,
    /// Number of all.
    pub(crate) count: u64,
}

impl EventReader {
    /// A reader that starts at the beginning of `input`, with a buffer of 256 KiB.
    #[must_use]
    pub fn new(input: TraceInput) -> Self {
        Self::with_buffer(input, BUFFER_BYTES)
    }

    /// Like [`EventReader::new`] with a buffer of another initial size, for tests of its growth.
    #[must_use]
    pub fn with_buffer(input: TraceInput, bytes: usize) -> Self {
        Self {
            window: ReadWindow::new(input, bytes),
            state: ReaderState::Start,
            array_form: false,
            saw_events: false,
            is_speedscope: false,
            wants_frames: true,
            cut: None,
            skipped: SkippedValues::default(),
        }
    }

    /// The input, for its name and progress.
    #[must_use]
    pub fn input(&self) -> &TraceInput {
        self.window.input()
    }

    /// Where the file ends in the middle, once it was read to its end.
    #[must_use]
    pub fn cut(&self) -> Option<TracePosition> {
        self.cut
    }

    /// Number of events read so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.window.events()
    }

    /// The values skipped since the last call.
    pub(crate) fn take_skipped(&mut self) -> SkippedValues {
        std::mem::take(&mut self.skipped)
    }

    /// From here on passes over the section `stackFrames`: the frames are known from events.
    pub fn skip_frames(&mut self) {
        self.wants_frames = false;
    }

    /// The next event or stack frame, or `None` at the end. Text that ends too early ends the
    /// events and is reported by [`EventReader::cut`].
    ///
    /// # Errors
    /// Every [`ReadError`] except errors of opening. None after the first.
    pub fn next_entry(&mut self) -> Result<Option<TraceEntry<'_>>, ReadError> {
        loop {
            match self.state {
                ReaderState::Start => self.begin()?,
                ReaderState::Members => self.member()?,
                ReaderState::Events => {
                    let mut fields = FieldRanges::default();
                    if self.event(&mut fields)? {
                        return Ok(Some(TraceEntry::Event(self.take(&fields))));
                    }
                }
                ReaderState::Frames => {
                    if let Some(member) = self.frame()? {
                        return Ok(Some(TraceEntry::Frame(self.take_frame(member))));
                    }
                }
                ReaderState::Distributed => self.distributed()?,
                ReaderState::Property(known) => {
                    if let Some(value) = self.property(known)? {
                        return Ok(Some(TraceEntry::Property(self.take_property(known, value))));
                    }
                }
                ReaderState::Done => return Ok(None),
            }
        }
    }

    fn take(&mut self, fields: &FieldRanges) -> ChromeEvent<'_> {
        let (text, place) = self.window.take_event(fields.end);
        let value = |range: &Range<usize>| JsonValue(part(text, range.clone()));
        ChromeEvent {
            category: value(&fields.category),
            name: value(&fields.name),
            phase: value(&fields.phase),
            ts: value(&fields.ts),
            dur: value(&fields.dur),
            pid: value(&fields.pid),
            tid: value(&fields.tid),
            id: value(&fields.id),
            scope: value(&fields.scope),
            args: value(&fields.args),
            stack: value(&fields.stack),
            place,
        }
    }

    /// Reads the first bytes: a known form, or no trace at all.
    fn begin(&mut self) -> Result<(), ReadError> {
        /// Byte order mark: some tools on Windows put it before UTF-8.
        const BOM: &[u8] = b"\xef\xbb\xbf";
        self.window.fill()?;
        if self.window.rest().starts_with(BOM) {
            self.window.advance(BOM.len());
        }
        let begins = self.window.rest();
        // No text has these control characters.
        let is_binary = begins.iter().take(FIRST_BYTES).any(|byte| *byte < b'\t');
        if is_binary || begins.starts_with(b"{)") {
            let found = format!("it starts with {}", describe(self.window.rest()));
            return Err(self.not_a_trace(found));
        }
        match self.window.peek()? {
            Some(b'{') => self.state = ReaderState::Members,
            Some(b'[') => {
                self.array_form = true;
                self.saw_events = true;
                self.state = ReaderState::Events;
            }
            Some(_) => {
                let found = format!("it starts with {}", describe(self.window.rest()));
                return Err(self.not_a_trace(found));
            }
            None if self.window.input().compressed() => {
                let found = "compressed data without text";
                return Err(self.not_a_trace(found.to_owned()));
            }
            None if self.window.is_empty_file() => {
                return Err(ReadError::Empty { file: self.name() });
            }
            None => return Err(self.not_a_trace("it contains only whitespace".to_owned())),
        }
        self.window.advance(1);
        Ok(())
    }

    /// One member of the outermost object: the events, or something to pass over.
    fn member(&mut self) -> Result<(), ReadError> {
        match self.window.peek()? {
            Some(b',') => {
                self.window.advance(1);
                return Ok(());
            }
            Some(b'}') if self.saw_events => {
                self.window.advance(1);
                return self.behind();
            }
            Some(b'}') => return Err(self.without_events()),
            Some(b'"') => {}
            Some(_) => return Err(self.syntax(0, "a key in quotes")),
            None => return self.end_early(),
        }
        let Some(section) = self.key(TraceSection::of)? else { return self.end_early() };
        self.is_speedscope |= matches!(section, TraceSection::Profiles);
        let next = self.window.peek()?;
        match (next, section) {
            (None, _) => return self.end_early(),
            (Some(b'['), TraceSection::Events) => {
                self.window.advance(1);
                self.saw_events = true;
                self.state = ReaderState::Events;
            }
            (Some(_), TraceSection::Events) => {
                return Err(self.not_a_trace("\"traceEvents\" is not an array".to_owned()));
            }
            (Some(b'{'), TraceSection::Frames) if self.wants_frames => {
                self.window.advance(1);
                self.state = ReaderState::Frames;
            }
            (Some(b'{'), TraceSection::Distributed) => {
                self.window.advance(1);
                self.state = ReaderState::Distributed;
            }
            (Some(_), TraceSection::Property(known)) => self.state = ReaderState::Property(known),
            (Some(_), _) => self.pass_over()?,
        }
        Ok(())
    }

    /// Consumes the key at the current byte and the colon after it, and returns the result of `which` for the quoted
    /// key. `None`: the text ended.
    fn key<T>(&mut self, which: impl Fn(&[u8]) -> T) -> Result<Option<T>, ReadError> {
        let Some(end) = self.scanned(scan::string)? else { return Ok(None) };
        let key = which(part(self.window.rest(), ..end));
        self.window.advance(end);
        match self.window.peek()? {
            Some(b':') => {
                self.window.advance(1);
                Ok(Some(key))
            }
            Some(_) => Err(self.syntax(0, "':'")),
            None => Ok(None),
        }
    }

    /// Finds the next event of the array. `false`: there is something else.
    fn event(&mut self, fields: &mut FieldRanges) -> Result<bool, ReadError> {
        match self.window.peek()? {
            // Writers end with one, after a comma. There may be any number of them.
            Some(b'{') if self.window.rest().starts_with(b"{}") => {
                let _nothing = self.window.take_event(2);
                return Ok(false);
            }
            Some(b'{') => {}
            Some(b',') => {
                self.window.advance(1);
                return Ok(false);
            }
            Some(b']') => {
                self.window.advance(1);
                if self.array_form {
                    self.behind()?
                } else {
                    self.state = ReaderState::Members
                }
                return Ok(false);
            }
            Some(_) => {
                self.skip_noting("an element that is not an event")?;
                return Ok(false);
            }
            None => {
                self.end_early()?;
                return Ok(false);
            }
        }
        match self.scanned(|text, at| event_fields(text, at, fields))? {
            Some(()) => return Ok(true),
            None if self.window.ended() => self.end_early()?,
            None => self.skip_noting("an event over 16 MiB")?,
        }
        Ok(false)
    }

    /// Runs a scanner at the current byte, with more input as long as it needs it. `None`: the text ended, or the value
    /// is too long.
    fn scanned<T>(
        &mut self,
        mut scanner: impl FnMut(&[u8], usize) -> Result<T, ScanStop>,
    ) -> Result<Option<T>, ReadError> {
        loop {
            match scanner(self.window.rest(), 0) {
                Ok(result) => return Ok(Some(result)),
                Err(ScanStop::Bad(at, _)) if self.window.only_zeros_from(at)? => {
                    self.window.advance(usize::MAX);
                    return Ok(None);
                }
                Err(ScanStop::Bad(at, expected)) => return Err(self.syntax(at, expected)),
                Err(ScanStop::More) => {
                    if self.window.rest().len() >= MAX_EVENT_BYTES || !self.window.fill()? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn skip_noting(&mut self, what: &'static str) -> Result<(), ReadError> {
        /// Enough to show the problem; more only costs memory.
        const KEPT: usize = 16;
        self.skipped.count += 1;
        if self.skipped.first.len() < KEPT {
            self.skipped.first.push((self.window.current_position(), what));
        }
        self.pass_over()
    }

    fn pass_over(&mut self) -> Result<(), ReadError> {
        if self.window.pass_over()? { Ok(()) } else { self.end_early() }
    }

    /// The text ended where it must not.
    fn end_early(&mut self) -> Result<(), ReadError> {
        self.state = ReaderState::Done;
        if !self.saw_events {
            return Err(self.without_events());
        }
        // The array form may lack its closing bracket; that is how tools append to it.
        if !(self.array_form && self.window.rest().is_empty()) {
            self.cut = Some(self.window.position(0));
        }
        Ok(())
    }

    /// Behind the last bracket nothing more is expected, and nothing more is read.
    fn behind(&mut self) -> Result<(), ReadError> {
        self.state = ReaderState::Done;
        let position = match self.window.peek() {
            Ok(None) => return Ok(()),
            Ok(Some(_)) => self.window.position(0),
            Err(ReadError::Syntax { position, .. }) => position,
            Err(error) => return Err(error),
        };
        self.skipped.first.push((position, "text after the end of the trace"));
        self.skipped.count += 1;
        Ok(())
    }

    fn name(&self) -> String {
        self.window.input().name().to_owned()
    }

    fn not_a_trace(&mut self, found: String) -> ReadError {
        self.state = ReaderState::Done;
        ReadError::NotATrace { file: self.name(), position: self.window.position(0), found }
    }

    fn without_events(&mut self) -> ReadError {
        self.not_a_trace(match self.is_speedscope {
            true => "a profile of speedscope; it opens at www.speedscope.app".to_owned(),
            false => "a JSON object without \"traceEvents\"".to_owned(),
        })
    }

    fn syntax(&mut self, at: usize, expected: &'static str) -> ReadError {
        self.state = ReaderState::Done;
        ReadError::Syntax {
            file: self.name(),
            position: self.window.position(at),
            expected,
            found: excerpt(part(self.window.rest(), at..)),
            events: self.window.events(),
        }
    }
}

/// Sets the fields of the event with its opening brace at `text[at]`: 64 bytes at a time, or one by one where too few
/// are left.
fn event_fields(text: &[u8], at: usize, fields: &mut FieldRanges) -> Result<(), ScanStop> {
    match tokens::event(text, at, fields) {
        Some(()) => Ok(()),
        None => scan::event(text, at, fields),
    }
}
