//! Metadata of a trace next to its events.
//!
//! Chooses the members of the outermost object to return: small ones of the PyTorch profiler, before or after the
//! events. All others are skipped without buffering, whatever their size.

use super::{EventReader, ReaderState, scan};
use crate::read::error::{ReadError, TracePlace};
use crate::read::value::JsonValue;
use std::ops::Range;

/// Metadata of another tool's trace, before or after its events.
#[derive(Debug, Clone, PartialEq, Eq, bitcode::Encode, bitcode::Decode)]
pub enum TraceProperty {
    /// Its timestamps count from this Unix time in ns. The profiler has done so since PyTorch 2.4;
    /// before, its timestamps were themselves Unix time in µs.
    BaseTime(u64),
    /// Name of this one trace.
    TraceId(String),
    /// Name of the host.
    Host(String),
    /// Rank of the process in its job.
    Rank(u32),
    /// Ranks of the job.
    WorldSize(u32),
}

/// How a member becomes a property.
#[derive(Debug)]
pub(super) struct KnownMember {
    /// In its quotes.
    key: &'static [u8],
    /// In the object `distributedInfo`, otherwise in the outermost object.
    distributed: bool,
    decode: fn(JsonValue<'_>) -> Option<TraceProperty>,
    /// The problem to report if its value makes no sense.
    problem: &'static str,
}

static MEMBERS: [KnownMember; 5] = [
    KnownMember {
        key: br#""baseTimeNanoseconds""#,
        distributed: false,
        decode: |value| value.unsigned().map(TraceProperty::BaseTime),
        problem: "\"baseTimeNanoseconds\" is not a time",
    },
    KnownMember {
        key: br#""trace_id""#,
        distributed: false,
        decode: |value| value.text().map(|text| TraceProperty::TraceId(text.into_owned())),
        problem: "\"trace_id\" is not text",
    },
    KnownMember {
        key: br#""host_name""#,
        distributed: false,
        decode: |value| value.text().map(|text| TraceProperty::Host(text.into_owned())),
        problem: "\"host_name\" is not text",
    },
    KnownMember {
        key: br#""rank""#,
        distributed: true,
        decode: |value| small(value).map(TraceProperty::Rank),
        problem: "\"rank\" of \"distributedInfo\" is not a rank",
    },
    KnownMember {
        key: br#""world_size""#,
        distributed: true,
        decode: |value| small(value).map(TraceProperty::WorldSize),
        problem: "\"world_size\" of \"distributedInfo\" is not a count",
    },
];

fn small(value: JsonValue<'_>) -> Option<u32> {
    u32::try_from(value.unsigned()?).ok()
}

impl KnownMember {
    /// The member with this quoted key.
    pub(super) fn find(key: &[u8], distributed: bool) -> Option<&'static Self> {
        MEMBERS.iter().find(|member| member.key == key && member.distributed == distributed)
    }
}

/// A member of the outermost object, or of its object `distributedInfo`.
#[derive(Debug, Clone, Copy)]
pub struct TraceMember<'a> {
    known: &'static KnownMember,
    /// Never an object or an array.
    value: JsonValue<'a>,
    /// Place of the value in the trace.
    pub place: TracePlace<'a>,
}

impl TraceMember<'_> {
    /// The property.
    ///
    /// # Errors
    /// The value makes no sense: a sentence without subject.
    pub fn property(&self) -> Result<TraceProperty, &'static str> {
        (self.known.decode)(self.value).ok_or(self.known.problem)
    }
}

impl EventReader {
    /// The value of a member, unless it is of no use.
    pub(super) fn property(
        &mut self,
        known: &KnownMember,
    ) -> Result<Option<Range<usize>>, ReadError> {
        self.state =
            if known.distributed { ReaderState::Distributed } else { ReaderState::Members };
        match self.window.peek()? {
            Some(b'{' | b'[') => return self.pass_over().map(|()| None),
            Some(_) => {}
            None => return self.end_early().map(|()| None),
        }
        match self.scanned(scan::value)? {
            Some(end) => Ok(Some(0..end)),
            None if self.window.ended() => self.end_early().map(|()| None),
            None => self.pass_over().map(|()| None),
        }
    }

    pub(super) fn take_property(
        &mut self,
        known: &'static KnownMember,
        value: Range<usize>,
    ) -> TraceMember<'_> {
        let (text, place) = self.window.take(value.end);
        TraceMember { known, value: JsonValue(gctrace_units::part(text, value)), place }
    }

    /// The next member of the object `distributedInfo`, if there is one.
    pub(super) fn distributed(&mut self) -> Result<(), ReadError> {
        match self.window.peek()? {
            Some(b'"') => {}
            Some(b',') => {
                self.window.advance(1);
                return Ok(());
            }
            Some(b'}') => {
                self.window.advance(1);
                self.state = ReaderState::Members;
                return Ok(());
            }
            Some(_) => return Err(self.syntax(0, "a key in quotes")),
            None => return self.end_early(),
        }
        let Some(key) = self.key(|key| KnownMember::find(key, true))? else {
            return self.end_early();
        };
        match self.window.peek()? {
            Some(_) => match key {
                Some(known) => self.state = ReaderState::Property(known),
                None => self.pass_over()?,
            },
            None => self.end_early()?,
        }
        Ok(())
    }
}
