//! Reading traces: ours, and any file in Chrome's trace event format.
//!
//! Three layers, each usable alone: [`EventReader`] finds events and stack frames in a stream of bytes without knowing
//! their meaning, [`TraceReader`] opens files and turns events into [`crate::Record`]s, and [`JsonValue`] looks into
//! one JSON value. Memory is one buffer, whatever the size of the file.

mod error;
mod events;
mod input;
mod number;
mod scan;
mod tokens;
mod trace;
mod value;

pub use error::{ReadError, TracePlace, TracePosition};
pub use events::{
    ChromeEvent, EventReader, StackFrameEntry, TraceEntry, TraceMember, TraceProperty,
};
pub use input::TraceInput;
pub(crate) use trace::pauses::MAX_COUNT;
pub use trace::{Anomalies, Anomaly, DecodedItem, TraceCompletion, TraceReader, is_gctrace};
pub use value::{JsonValue, ObjectMembers};
