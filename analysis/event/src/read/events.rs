//! Events of a trace, one after the other, from a stream of bytes.
//!
//! Owns the buffer and the frame around the events: object form or array form, other sections,
//! cut-off files. Does not know what an event means (`decode.rs`).

use super::error::Position;
use super::error::ReadError;
use super::error::excerpt;
use super::input::Input;
use super::scan;
use super::scan::Fields;
use super::scan::Stop;
use super::value::Value;
use std::io;
use std::io::Read;

/// Bytes read at once, and the usual size of the buffer.
const BUFFER_BYTES: usize = 256 * 1024;
/// Longest event that is looked into; longer ones are skipped and reported.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// One event. Fields that it lacks are [`Value::is_missing`]; their types are whatever the file
/// says.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// `cat`.
    pub category: Value<'a>,
    /// `name`.
    pub name: Value<'a>,
    /// `ph`.
    pub phase: Value<'a>,
    /// `ts`, microseconds.
    pub ts: Value<'a>,
    /// `dur`, microseconds.
    pub dur: Value<'a>,
    /// `pid`.
    pub pid: Value<'a>,
    /// `tid`.
    pub tid: Value<'a>,
    /// `id`, of asynchronous and flow events.
    pub id: Value<'a>,
    /// `s`, of instant events.
    pub scope: Value<'a>,
    /// `args`.
    pub args: Value<'a>,
    /// Where the event begins.
    pub position: Position,
}

/// Where in the file the reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first byte.
    Start,
    /// Among the members of the outermost object.
    Members,
    /// In the array of events.
    Events,
    /// Behind everything.
    Done,
}

/// Reads events in the order of the file. Memory is one buffer of 256 KiB, or twice the longest
/// event up to 16 MiB.
pub struct EventReader {
    input: Input,
    buffer: Vec<u8>,
    /// The part of `buffer` not yet used.
    window: std::ops::Range<usize>,
    /// Bytes of the text before `buffer`.
    base: u64,
    /// Index in `buffer` up to which line ends are counted, and how many there are up to there.
    counted: usize,
    lines: u64,
    state: State,
    array_form: bool,
    ended: bool,
    /// An error met after bytes that are to be used first.
    failure: Option<io::Error>,
    cut: Option<Position>,
    events: u64,
    saw_events: bool,
    skipped: Vec<(Position, &'static str)>,
}

impl EventReader {
    /// Reads `input` from its beginning.
    #[must_use]
    pub fn new(input: Input) -> Self {
        Self::with_buffer(input, BUFFER_BYTES)
    }

    /// As [`EventReader::new`] with another buffer to begin with; for tests of its growth.
    #[must_use]
    pub fn with_buffer(input: Input, bytes: usize) -> Self {
        Self {
            input,
            buffer: vec![0; bytes.max(16)],
            window: 0..0,
            base: 0,
            counted: 0,
            lines: 0,
            state: State::Start,
            array_form: false,
            ended: false,
            failure: None,
            cut: None,
            events: 0,
            saw_events: false,
            skipped: Vec::new(),
        }
    }

    /// The input, for its name and progress.
    #[must_use]
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// Where the file ends in the middle, once it was read to its end.
    #[must_use]
    pub fn cut(&self) -> Option<Position> {
        self.cut
    }

    /// Events read so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// What was passed over since the last call, and where; the first few.
    pub(crate) fn take_skipped(&mut self) -> Vec<(Position, &'static str)> {
        std::mem::take(&mut self.skipped)
    }

    /// The next event, or `None` at the end. Text that ends too early ends the events and is told
    /// by [`EventReader::cut`].
    ///
    /// # Errors
    /// Every [`ReadError`] but those of opening. None after the first.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, ReadError> {
        loop {
            match self.state {
                State::Start => self.begin()?,
                State::Members => self.member()?,
                State::Events => {
                    if let Some(fields) = self.event()? {
                        return Ok(Some(self.take(&fields)));
                    }
                }
                State::Done => return Ok(None),
            }
        }
    }

    fn take(&mut self, fields: &Fields) -> Event<'_> {
        let begin = self.window.start;
        self.count_lines(begin);
        let position = self.position(begin);
        self.window.start += fields.end;
        self.events += 1;
        let text = self.buffer.get(begin..).unwrap_or_default();
        let value =
            |range: &std::ops::Range<usize>| Value(text.get(range.clone()).unwrap_or_default());
        Event {
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
            position,
        }
    }

    /// The first bytes: which form, or no trace at all.
    fn begin(&mut self) -> Result<(), ReadError> {
        /// Byte order mark, which some tools on Windows put before UTF-8.
        const BOM: &[u8] = b"\xef\xbb\xbf";
        self.fill()?;
        if self.rest().starts_with(BOM) {
            self.window.start += BOM.len();
        }
        match self.peek()? {
            Some(b'{') => self.state = State::Members,
            Some(b'[') => {
                self.array_form = true;
                self.saw_events = true;
                self.state = State::Events;
            }
            Some(_) => {
                let found = format!("it begins with {}", describe(self.rest()));
                return Err(self.not_a_trace(found));
            }
            None if self.input.compressed() => {
                let found = "compressed data that holds no text, or ends before it";
                return Err(self.not_a_trace(found.to_owned()));
            }
            None if self.base == 0 && self.window.end == 0 => {
                return Err(ReadError::Empty { file: self.name() });
            }
            None => return Err(self.not_a_trace("it holds nothing but blanks".to_owned())),
        }
        self.window.start += 1;
        Ok(())
    }

    /// One member of the outermost object: the events, or something to pass over.
    fn member(&mut self) -> Result<(), ReadError> {
        match self.peek()? {
            Some(b',') => {
                self.window.start += 1;
                return Ok(());
            }
            Some(b'}') if self.saw_events => {
                self.window.start += 1;
                return self.behind();
            }
            Some(b'}') => return Err(self.without_events()),
            Some(b'"') => {}
            Some(_) => return Err(self.syntax(0, "a key in quotes")),
            None => return self.end_early(),
        }
        let Some(end) = self.scanned(scan::string)? else {
            return self.end_early();
        };
        let is_events = self.rest().get(..end) == Some(br#""traceEvents""#);
        self.window.start += end;
        match self.peek()? {
            Some(b':') => self.window.start += 1,
            Some(_) => return Err(self.syntax(0, "':'")),
            None => return self.end_early(),
        }
        match self.peek()? {
            Some(b'[') if is_events => {
                self.window.start += 1;
                self.saw_events = true;
                self.state = State::Events;
                Ok(())
            }
            Some(_) if is_events => {
                Err(self.not_a_trace("\"traceEvents\" is not an array".to_owned()))
            }
            Some(_) => self.pass_over(),
            None => self.end_early(),
        }
    }

    /// The next event of the array, if it is one.
    fn event(&mut self) -> Result<Option<Fields>, ReadError> {
        match self.peek()? {
            Some(b'{') => {}
            Some(b',') => {
                self.window.start += 1;
                return Ok(None);
            }
            Some(b']') => {
                self.window.start += 1;
                match self.array_form {
                    true => self.behind()?,
                    false => self.state = State::Members,
                }
                return Ok(None);
            }
            Some(_) => {
                self.skip_noting("an element that is not an event")?;
                return Ok(None);
            }
            None => {
                self.end_early()?;
                return Ok(None);
            }
        }
        match self.scanned(scan::event)? {
            Some(fields) => Ok(Some(fields)),
            None if self.ended => self.end_early().map(|()| None),
            None => {
                self.skip_noting("an event over 16 MiB")?;
                Ok(None)
            }
        }
    }

    /// Applies a scanner at the current byte, with more input as long as it asks for it. `None`:
    /// the text ended, or what it scans is too long.
    fn scanned<T>(
        &mut self,
        scanner: impl Fn(&[u8], usize) -> Result<T, Stop>,
    ) -> Result<Option<T>, ReadError> {
        loop {
            match scanner(self.rest(), 0) {
                Ok(result) => return Ok(Some(result)),
                Err(Stop::Bad(at, _)) if self.only_zeros_from(at)? => {
                    self.window.start = self.window.end;
                    return Ok(None);
                }
                Err(Stop::Bad(at, expected)) => return Err(self.syntax(at, expected)),
                Err(Stop::More) => {
                    if self.rest().len() >= MAX_EVENT_BYTES || !self.fill()? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Whether only zero bytes follow: a file system that crashed leaves a file so, and it is cut
    /// off there rather than wrong. Reads to the end only if the rest of the buffer is zeros.
    fn only_zeros_from(&mut self, at: usize) -> Result<bool, ReadError> {
        if self.rest().get(at) != Some(&0) {
            return Ok(false);
        }
        let zeros =
            |text: Option<&[u8]>| text.is_some_and(|text| text.iter().all(|byte| *byte == 0));
        if !zeros(self.rest().get(at..)) {
            return Ok(false);
        }
        loop {
            self.window.end = self.window.start + at;
            if !self.fill()? {
                return Ok(true);
            }
            if !zeros(self.rest().get(at..)) {
                return Ok(false);
            }
        }
    }

    fn skip_noting(&mut self, what: &'static str) -> Result<(), ReadError> {
        /// Enough to tell what is wrong; the rest only costs memory.
        const KEPT: usize = 16;
        if self.skipped.len() < KEPT {
            self.skipped.push((self.position(self.window.start), what));
        }
        self.pass_over()
    }

    /// Passes over one value without keeping it, so that it may have any size.
    fn pass_over(&mut self) -> Result<(), ReadError> {
        let mut skip = Skip::default();
        loop {
            match skip.feed(self.rest()) {
                Some(used) => {
                    self.window.start += used;
                    return Ok(());
                }
                None => {
                    self.window.start = self.window.end;
                    if !self.fill()? {
                        return self.end_early();
                    }
                }
            }
        }
    }

    /// The text ended where it must not.
    fn end_early(&mut self) -> Result<(), ReadError> {
        self.state = State::Done;
        if !self.saw_events {
            return Err(self.without_events());
        }
        // The array form may lack its closing bracket; that is how tools append to it.
        if !(self.array_form && self.rest().is_empty()) {
            self.cut = Some(self.position(self.window.start));
        }
        Ok(())
    }

    /// Behind the last bracket nothing more is expected, and nothing more is read.
    fn behind(&mut self) -> Result<(), ReadError> {
        self.state = State::Done;
        if self.peek()?.is_some() && self.rest().iter().any(|byte| *byte != 0) {
            let at = self.position(self.window.start);
            self.skipped.push((at, "text behind the end of the trace"));
        }
        Ok(())
    }

    /// The next byte that is not white space, or `None` at the end of the text.
    fn peek(&mut self) -> Result<Option<u8>, ReadError> {
        loop {
            self.window.start += scan::space(self.rest(), 0);
            match self.rest().first().copied() {
                Some(0) if self.only_zeros_from(0)? => return Ok(None),
                Some(byte) => return Ok(Some(byte)),
                None if !self.fill()? => return Ok(None),
                None => {}
            }
        }
    }

    fn rest(&self) -> &[u8] {
        self.buffer.get(self.window.clone()).unwrap_or_default()
    }

    /// Reads until the buffer is full, which grows if nothing in it is used yet. `false`: the
    /// text has ended.
    fn fill(&mut self) -> Result<bool, ReadError> {
        if let Some(error) = self.failure.take() {
            return self.failed(error);
        }
        if self.ended {
            return Ok(false);
        }
        self.make_room();
        let before = self.window.end;
        while let Some(room) = self
            .buffer
            .get_mut(self.window.end..)
            .filter(|room| !room.is_empty())
        {
            match self.input.read(room) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(count) => self.window.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.window.end == before => return self.failed(error),
                Err(error) => {
                    self.failure = Some(error);
                    break;
                }
            }
        }
        Ok(self.window.end > before)
    }

    fn make_room(&mut self) {
        self.count_lines(self.window.start);
        self.counted = 0;
        self.base += self.window.start as u64;
        self.buffer.copy_within(self.window.clone(), 0);
        self.window = 0..self.window.len();
        if self.window.end > self.buffer.len() / 2 {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
    }

    /// A compressed file that ends in the middle is cut off; everything else is an error.
    fn failed(&mut self, source: io::Error) -> Result<bool, ReadError> {
        self.ended = true;
        let file = self.name();
        let byte = self.input.consumed();
        if !self.input.compressed() {
            return Err(ReadError::Io { file, byte, source });
        }
        match source.kind() {
            io::ErrorKind::UnexpectedEof => Ok(false),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                Err(ReadError::Gzip { file, byte, source })
            }
            _ => Err(ReadError::Io { file, byte, source }),
        }
    }

    fn count_lines(&mut self, to: usize) {
        self.lines += self.line_ends(self.counted..to);
        self.counted = to;
    }

    fn line_ends(&self, range: std::ops::Range<usize>) -> u64 {
        let text = self.buffer.get(range).unwrap_or_default();
        memchr::memchr_iter(b'\n', text).count() as u64
    }

    /// The place of an index at or behind what is counted.
    fn position(&self, index: usize) -> Position {
        Position {
            byte: self.base + index as u64,
            line: self.lines + self.line_ends(self.counted..index) + 1,
        }
    }

    fn name(&self) -> String {
        self.input.name().to_owned()
    }

    fn not_a_trace(&mut self, found: String) -> ReadError {
        self.state = State::Done;
        ReadError::NotATrace {
            file: self.name(),
            position: self.position(self.window.start),
            found,
        }
    }

    fn without_events(&mut self) -> ReadError {
        self.not_a_trace("a JSON object without \"traceEvents\"".to_owned())
    }

    fn syntax(&mut self, at: usize, expected: &'static str) -> ReadError {
        self.state = State::Done;
        let index = self.window.start + at;
        ReadError::Syntax {
            file: self.name(),
            position: self.position(index),
            expected,
            found: excerpt(self.rest().get(at..).unwrap_or_default()),
            events: self.events,
            unpack: if self.input.compressed() {
                "zcat"
            } else {
                "cat"
            },
        }
    }
}

/// What the first bytes of a file tell about it.
fn describe(bytes: &[u8]) -> String {
    let known: [(&[u8], &str); 5] = [
        (b"PK\x03\x04", "a zip archive; unpack it first"),
        (b"\x28\xb5\x2f\xfd", "zstd data; unpack it first: zstd -d"),
        (b"\xfd7zXZ", "xz data; unpack it first: xz -d"),
        (b"BZh", "bzip2 data; unpack it first: bzip2 -d"),
        (b"\x7fELF", "an executable"),
    ];
    match known.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        Some((_, what)) => (*what).to_owned(),
        None => excerpt(bytes),
    }
}

/// Finds the end of a value piece by piece, by counting brackets outside strings.
#[derive(Debug, Default)]
struct Skip {
    depth: u64,
    in_string: bool,
    escaped: bool,
    begun: bool,
}

impl Skip {
    /// Bytes of `piece` that belong to the value, or `None` if it goes on behind the piece.
    fn feed(&mut self, piece: &[u8]) -> Option<usize> {
        piece
            .iter()
            .enumerate()
            .find_map(|(index, byte)| self.step(index, *byte))
    }

    fn step(&mut self, index: usize, byte: u8) -> Option<usize> {
        let first = !std::mem::replace(&mut self.begun, true);
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return (!self.in_string && self.depth == 0).then_some(index + 1);
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' if self.depth > 0 => {
                self.depth -= 1;
                return (self.depth == 0).then_some(index + 1);
            }
            b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' if self.depth == 0 && !first => {
                return Some(index);
            }
            _ => {}
        }
        None
    }
}
