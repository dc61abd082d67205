//! A trace file as a sequence of records.
//!
//! Owns what applies to the whole file: the version of the format and the list of anomalies.

use super::decode;
use super::decode::DecodedItem;
use super::decode::FrameNumbers;
use super::error::ReadError;
use super::error::TracePosition;
use super::events::EventReader;
use super::events::TraceEntry;
use super::input::TraceInput;
use std::path::Path;

/// An invalid value in a trace, which was ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// Position of the event, frame or metadata that contains it.
    pub position: TracePosition,
    /// What is wrong, as in `"collected" is not a count`.
    pub problem: &'static str,
}

/// The invalid values of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Anomalies {
    /// Number of anomalies, including those that `first` has no room for.
    pub count: u64,
    /// The first of them, at most [`Anomalies::KEPT`].
    pub first: Vec<Anomaly>,
}

impl Anomalies {
    /// Length of `first`: enough to find the problem.
    pub const KEPT: usize = 8;

    fn push(&mut self, position: TracePosition, problem: &'static str) {
        self.count = self.count.saturating_add(1);
        if self.first.len() < Self::KEPT {
            self.first.push(Anomaly { position, problem });
        }
    }
}

/// How the reading of a trace ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceCompletion {
    /// Events read, those of no interest included.
    pub events: u64,
    /// Where the file ends in the middle of something.
    pub cut: Option<TracePosition>,
    /// Values and events that were ignored.
    pub anomalies: Anomalies,
}

/// Reads a trace: ours, or any in Chrome's trace event format.
pub struct TraceReader {
    name: String,
    events: EventReader,
    anomalies: Anomalies,
    names: FrameNumbers,
    /// There was a header of ours: frames are events, the section only repeats them.
    is_ours: bool,
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
            is_ours: false,
        }
    }

    /// The events below, for position and progress.
    #[must_use]
    pub fn events(&self) -> &EventReader {
        &self.events
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
        }
    }

    fn note_skipped(&mut self) {
        for (position, problem) in self.events.take_skipped() {
            self.anomalies.push(position, problem);
        }
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
        let Some(entry) = self.events.next_entry()? else {
            return Ok(None);
        };
        let anomalies = &mut self.anomalies;
        let (position, item) = match entry {
            TraceEntry::Event(event) => {
                let report = |problem| anomalies.push(event.position, problem);
                let item = decode::decode(event, &mut self.names, report);
                (event.position, item)
            }
            TraceEntry::Frame(frame) => {
                let report = |problem| anomalies.push(frame.position, problem);
                let item = decode::stack_frame(&frame, &mut self.names, report);
                (frame.position, item)
            }
            TraceEntry::Property(property) => {
                let report = |problem| anomalies.push(property.position, problem);
                (property.position, decode::property(&property, report))
            }
        };
        match item {
            DecodedItem::Header(header) if header.format != crate::FORMAT => {
                Err(ReadError::Format {
                    file: self.name.clone(),
                    position,
                    format: header.format,
                })
            }
            DecodedItem::Header(header) => {
                self.is_ours = true;
                Ok(Some(DecodedItem::Header(header)))
            }
            item => Ok(Some(item)),
        }
    }
}
