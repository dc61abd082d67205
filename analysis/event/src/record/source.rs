//! The source of an event.

use bitcode::{Decode, Encode};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// The source of an event. All timestamps are of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub enum EventSource {
    /// Probes on the functions themselves (eBPF), from outside. Of traces of other tools: whatever
    /// that tool has.
    #[default]
    Probes,
    /// gctrace's library within the process: `gc.callbacks` for collections, CUPTI for calls.
    Injected,
    /// Both. The times of the event are those of the probes.
    Both {
        /// Start as recorded in-process.
        start_ns: u64,
        /// End as recorded in-process; never before `start_ns`.
        end_ns: u64,
    },
}

/// As members of its event; none for probes, which traces from before there was another source have
/// too.
impl Serialize for EventSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        match *self {
            Self::Probes => {}
            Self::Injected => members.serialize_entry("source", "injected")?,
            Self::Both { start_ns, end_ns } => {
                members.serialize_entry("source", "both")?;
                members.serialize_entry("injected_ts", &us(start_ns))?;
                members.serialize_entry("injected_dur", &us(end_ns.saturating_sub(start_ns)))?;
            }
        }
        members.end()
    }
}

/// Nanoseconds as microseconds with exactly three decimals.
fn us(ns: u64) -> Option<Box<RawValue>> {
    RawValue::from_string(format!("{}.{:03}", ns / 1000, ns % 1000)).ok()
}
