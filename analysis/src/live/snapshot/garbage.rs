//! Figures of what the collector frees, and of how the heap grows.

use crate::report::{BirthLines, CycleShape};
use gctrace_event::KindName;
use serde::Serialize;
use std::collections::BTreeMap;

/// Garbage of one process (`--garbage`), since the start of its recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GarbageFigures {
    /// Objects in the examined garbage by type: the 20 types seen first, and `other` for all others. No count
    /// decreases.
    pub objects: BTreeMap<String, u64>,
    /// Objects that examined collections freed.
    pub examined_collected: u64,
    /// Objects that all collections freed.
    pub collected: u64,
}

impl GarbageFigures {
    /// Key in `objects` of all types beyond the first.
    pub const OTHER: &'static str = "other";
}

/// The garbage of the selected process in detail.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SelectedGarbage {
    /// The kinds with the most objects, descending, at most ten.
    pub kinds: Vec<KindFigures>,
    /// Objects in the examined garbage.
    pub objects: u64,
    /// Cycles with the most objects, descending, at most five; absent if cycles were not examined
    /// (`--garbage cycles`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<Vec<CycleFigures>>,
}

/// Objects of one kind in the examined garbage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KindFigures {
    /// Their kind; its texts have at most 256 bytes.
    pub kind: KindName,
    /// Their number.
    pub objects: u64,
    /// Their number per second in the garbage of all collections, inferred unless all were examined;
    /// absent if it cannot be estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// Where objects of a type without code were born; absent if no allocation of them was sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub births: Option<BirthLines>,
}

/// Cycles of one signature in the examined garbage.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CycleFigures {
    /// The objects of the shortest cycle, and the name of the reference of each to the next, as
    /// Python writes it; empty if unknown. The last refers to the first.
    pub edges: Vec<(KindName, String)>,
    /// Kind of the cycle.
    pub shape: CycleShape,
    /// Number of such cycles.
    pub count: u64,
    /// Objects in them or held by them.
    pub objects: u64,
    /// Their number per second in the garbage of all collections, as in `kinds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
}

/// How fast a process grows, inferred: see `processes[].trend` in the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrendFigures {
    /// Objects that full collections leave, per hour, by the Theil-Sen slope; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects_per_hour: Option<f64>,
    /// Whether that is more than chance.
    pub objects_rise: bool,
    /// Bytes of resident memory per hour; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes_per_hour: Option<f64>,
    /// Whether that is more than chance.
    pub resident_rises: bool,
    /// Bytes of device memory that PyTorch has allocated, per hour; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_bytes_per_hour: Option<f64>,
    /// Whether that is more than chance.
    pub device_rises: bool,
    /// Whether resident memory rises and the objects do not: it is native code's, the allocator's or a
    /// device's, or in few large objects. Absent if unknown, and unless resident memory rises.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside_python: Option<bool>,
    /// Whether the rise may still be set-up: it has lasted for less than ten minutes.
    pub may_be_set_up: bool,
    /// Memory that the process may use, in bytes; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Time from the last sample until resident memory reaches that limit, in ns,
    /// predicted; absent unless it rises.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reaches_limit_in_ns: Option<u64>,
}

impl TrendFigures {
    /// Whether something rises, for so long that it is no set-up.
    pub fn keeps_growing(&self) -> bool {
        let rises = self.objects_rise || self.resident_rises || self.device_rises;
        rises && !self.may_be_set_up
    }
}

/// Objects still freed after the heap was frozen (`gc.freeze()`), inferred from full collections that go through much
/// less than before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FreezeFigures {
    /// Objects that were frozen.
    pub frozen_objects: u64,
    /// Objects that automatic collections freed since.
    pub freed_since: u64,
}
