//! Metadata of a trace next to its events.
//!
//! Owns which members of the outermost object are returned: small ones that the PyTorch profiler
//! writes, before or after the events. All others are skipped without buffering, whatever their
//! size.

use super::{EventReader, ReaderState, scan};
use crate::read::error::{ReadError, TracePlace};
use crate::read::value::JsonValue;
use std::ops::Range;

/// A member of the outermost object, or of its object `distributedInfo`.
#[derive(Debug, Clone, Copy)]
pub struct TraceMember<'a> {
    /// Which of the known members it is.
    pub key: TraceMemberKey,
    /// Its value; never an object or an array.
    pub value: JsonValue<'a>,
    /// Place of the value in the trace.
    pub place: TracePlace<'a>,
}

/// The members that are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceMemberKey {
    /// Member `baseTimeNanoseconds`.
    BaseTime,
    /// Member `trace_id`.
    TraceId,
    /// Member `host_name`.
    Host,
    /// `rank` of `distributedInfo`.
    Rank,
    /// `world_size` of `distributedInfo`.
    WorldSize,
}

impl TraceMemberKey {
    /// The member of the outermost object with this key, which is in quotes.
    pub(super) fn of_file(key: &[u8]) -> Option<Self> {
        match key {
            br#""baseTimeNanoseconds""# => Some(Self::BaseTime),
            br#""trace_id""# => Some(Self::TraceId),
            br#""host_name""# => Some(Self::Host),
            _ => None,
        }
    }

    fn of_distributed(key: &[u8]) -> Option<Self> {
        match key {
            br#""rank""# => Some(Self::Rank),
            br#""world_size""# => Some(Self::WorldSize),
            _ => None,
        }
    }

    /// The state in which reading continues after it.
    fn around(self) -> ReaderState {
        match self {
            Self::BaseTime | Self::TraceId | Self::Host => ReaderState::Members,
            Self::Rank | Self::WorldSize => ReaderState::Distributed,
        }
    }
}

impl EventReader {
    /// The value of a property, unless it is of no use.
    pub(super) fn property(
        &mut self,
        key: TraceMemberKey,
    ) -> Result<Option<Range<usize>>, ReadError> {
        self.state = key.around();
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
        key: TraceMemberKey,
        value: Range<usize>,
    ) -> TraceMember<'_> {
        let (text, place) = self.window.take(value.end);
        TraceMember { key, value: JsonValue(text.get(value).unwrap_or_default()), place }
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
        let Some(key) = self.key(TraceMemberKey::of_distributed)? else {
            return self.end_early();
        };
        match self.window.peek()? {
            Some(_) => match key {
                Some(key) => self.state = ReaderState::Property(key),
                None => self.pass_over()?,
            },
            None => self.end_early()?,
        }
        Ok(())
    }
}
