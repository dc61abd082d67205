//! Metadata of the PyTorch profiler's traces.
//!
//! Owns the meaning of members of the outermost object. gctrace's traces have such metadata in
//! their first line.

use super::DecodedItem;
use super::Problem;
use super::id;
use crate::read::events::TraceMember;
use crate::read::events::TraceMemberKey;

/// Metadata of another tool's trace, before or after its events.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Decodes `property`; `report` is called where its value makes no sense.
pub(crate) fn property<'a>(
    property: &TraceMember<'a>,
    mut report: impl FnMut(Problem),
) -> DecodedItem<'a> {
    let value = property.value;
    let text = || value.text().map(|text| text.into_owned());
    let (decoded, problem) = match property.key {
        TraceMemberKey::BaseTime => (
            value.unsigned().map(TraceProperty::BaseTime),
            "\"baseTimeNanoseconds\" is not a time",
        ),
        TraceMemberKey::TraceId => (
            text().map(TraceProperty::TraceId),
            "\"trace_id\" is not text",
        ),
        TraceMemberKey::Host => (text().map(TraceProperty::Host), "\"host_name\" is not text"),
        TraceMemberKey::Rank => (
            id(value).map(TraceProperty::Rank),
            "\"rank\" of \"distributedInfo\" is not a rank",
        ),
        TraceMemberKey::WorldSize => (
            id(value).map(TraceProperty::WorldSize),
            "\"world_size\" of \"distributedInfo\" is not a count",
        ),
    };
    match decoded {
        Some(decoded) => DecodedItem::Property(decoded),
        None => {
            report(problem);
            DecodedItem::Unusable
        }
    }
}
