//! Reading traces: ours, and any file in Chrome's trace event format.
//!
//! Three layers, each usable alone: [`EventReader`] finds events and stack frames in a stream of bytes without
//! knowing what they mean, [`TraceReader`] opens files and turns events into [`crate::Record`]s,
//! and [`Value`] looks into one JSON value. Memory is one buffer, whatever the size of the file.

mod decode;
mod error;
mod events;
mod input;
mod number;
mod ours;
mod scan;
mod trace;
mod value;
mod window;

pub use decode::Item;
pub use decode::TraceProperty;
pub use error::Position;
pub use error::ReadError;
pub use events::Entry;
pub use events::Event;
pub use events::EventReader;
pub use events::Property;
pub use events::PropertyKey;
pub use events::StackFrame;
pub use input::Input;
pub use ours::is_gctrace;
pub use trace::Anomalies;
pub use trace::Anomaly;
pub use trace::Ending;
pub use trace::TraceReader;
pub use value::Members;
pub use value::Value;
