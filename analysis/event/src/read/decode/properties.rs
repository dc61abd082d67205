//! What the PyTorch profiler's traces say of themselves.
//!
//! Owns the meaning of members of the outermost object. Ours say such things in their first line.

use super::DecodedItem;
use super::Problem;
use super::id;
use crate::read::events::TraceMember;
use crate::read::events::TraceMemberKey;

/// What a trace of another tool says of itself, before or behind its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceProperty {
    /// Its times are nanoseconds after this moment, nanoseconds since 1970 (UTC). The profiler has
    /// counted so since torch 2.4; before, its times were microseconds since 1970 themselves.
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
