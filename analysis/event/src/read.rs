//! Reading traces: ours, and any file in Chrome's trace event format.
//!
//! Three layers, each usable alone: [`EventReader`] finds events and stack frames in a stream of
//! bytes without knowing what they mean, [`TraceReader`] opens files and turns events into
//! [`crate::Record`]s, and [`JsonValue`] looks into one JSON value. Memory is one buffer, whatever
//! the size of the file.

mod error;
mod events;
mod input;
mod number;
mod ours;
mod scan;
mod tokens;
mod trace;
mod value;

pub use error::ReadError;
pub use error::TracePlace;
pub use error::TracePosition;
pub use events::ChromeEvent;
pub use events::EventReader;
pub use events::StackFrameEntry;
pub use events::TraceEntry;
pub use events::TraceMember;
pub use events::TraceMemberKey;
pub use input::TraceInput;
pub(crate) use number::LONGEST_NS;
pub use ours::is_gctrace;
pub use trace::Anomalies;
pub use trace::Anomaly;
pub use trace::DecodedItem;
pub use trace::TraceCompletion;
pub use trace::TraceProperty;
pub use trace::TraceReader;
pub(crate) use trace::pauses::MAX_COUNT;
pub use value::JsonValue;
pub use value::ObjectMembers;
