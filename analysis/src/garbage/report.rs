//! What the collector frees, as figures.

use super::shape::{CycleShape, GarbageEdge};
use crate::figure::{Basis, Location, serialized_as_text};
use gctrace_event::KindName;
use serde::Serialize;
use std::cmp::Reverse;
use std::fmt;

serialized_as_text!(MainCycles);

/// The few cycles that most garbage comes from: of training where steps are known, otherwise of the
/// whole recording.
#[derive(Clone, Debug, PartialEq)]
pub struct MainCycles {
    /// Their indexes in `cycles`, cycles with the most objects first.
    pub cycles: Vec<usize>,
    /// Share of the garbage that is in them or held by them, 0 to 1.
    pub ratio: f64,
    /// Their number per training step; `None` if steps are unknown.
    pub per_step: Option<PerStep>,
    /// Their number per second; `None` if unknown.
    pub per_s: Option<f64>,
    /// What the figures per second rest on.
    pub basis: Basis,
    /// The finding in words, with the lines that the cycles are from.
    pub sentence: String,
}

impl fmt::Display for MainCycles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.sentence)
    }
}

impl MainCycles {
    /// From this share on nothing else is worth a collection: the rest is within what finalizers and
    /// rare events leave.
    const ALL: f64 = 0.95;

    /// Whether nothing would be left to collect without them.
    pub fn is_all(&self) -> bool {
        self.ratio >= Self::ALL
    }
}

/// What collections found unreachable (`--garbage`): its kinds of objects, and the cycles that made
/// it garbage. Figures cover the examined collections only, unless they are estimates.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GarbageReport {
    /// Number of collections that freed objects, or an unknown number of them, without collections at interpreter
    /// shutdown.
    pub collections: u64,
    /// Number of collections with examined garbage that was not empty.
    pub examined: u64,
    /// Objects freed by the examined collections as a share of objects freed by all, 0 to 1; `null` if none was
    /// freed, or if the numbers are unknown.
    pub examined_ratio: Option<f64>,
    /// Objects in the examined garbage. May exceed what these collections freed: finalizers run
    /// later.
    pub objects: u64,
    /// Own memory of these objects, in bytes, as far as it is known; `null` if unknown. Memory they refer to is not
    /// included.
    pub bytes: Option<u64>,
    /// Objects in the examined garbage of collections at interpreter shutdown. No other figure includes them:
    /// everything becomes garbage then.
    pub shutdown_objects: u64,
    /// Device memory freed during all pauses, in bytes; `null` if it was not recorded.
    pub device_bytes: Option<u64>,
    /// Time that examining took, in ns; `null` if unknown. No figure about pauses includes it.
    pub cost_ns: Option<u64>,
    /// The kinds with the most objects, descending, at most 64.
    pub kinds: Vec<GarbageKind>,
    /// Objects of all other kinds.
    pub other_objects: u64,
    /// The cycles, most objects first, held ones included, at most 32; `null` if only kinds were recorded (`--garbage
    /// types`).
    pub cycles: Option<Vec<GarbageCycle>>,
    /// Objects in the examined garbage of collections with examined cycles.
    pub cycle_garbage: u64,
    /// The part of these objects in cycles beyond the listed ones, held by such cycles, or in no recorded cycle.
    pub other_cycle_objects: u64,
    /// Training steps that `per_step` is about; `null` if steps are unknown.
    pub steps: Option<u64>,
    /// The cycles that most of the garbage comes from, in a sentence; `null` if no few cycles make
    /// half of it.
    pub verdict: Option<MainCycles>,
}

/// Garbage of one kind: objects of one type and, if they belong to code, of the same code.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GarbageKind {
    /// Their type and code.
    #[serde(flatten, serialize_with = "KindName::with_nulls")]
    pub name: KindName,
    /// Where objects of a type without code were born; `null` if the allocation of none of them was
    /// sampled (`--alloc`, in-process).
    pub births: Option<BirthLines>,
    /// Number of objects in the examined garbage.
    pub objects: u64,
    /// Their own memory, in bytes; `null` if unknown.
    pub bytes: Option<u64>,
    /// Share of the objects in the examined garbage, 0 to 1.
    pub ratio: f64,
    /// Number in the garbage of all collections; `null` if it cannot be estimated.
    pub estimate: Option<GarbageEstimate>,
    /// Number per training step; `null` if steps are unknown.
    pub per_step: Option<PerStep>,
}

impl GarbageKind {
    /// Whether they are instances of a class that says something of the program.
    pub(crate) fn is_class(&self) -> bool {
        /// Modules with classes that say nothing.
        const GENERAL: [&str; 4] = ["weakref", "types", "collections", "functools"];
        let module = self.name.type_name.rsplit_once('.').map(|(module, _)| module);
        matches!(module, Some(module) if !GENERAL.contains(&module))
    }
}

/// The lines that allocated objects of a type, by a sample of all allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BirthLines {
    /// Number of objects in the examined garbage with a sampled allocation. A sample also counts the objects that it
    /// stands for: samples are dropped if there are too many.
    pub samples: u64,
    /// The lines with the most samples, descending, at most 8.
    pub lines: Vec<BirthLine>,
}

/// A line that allocated objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BirthLine {
    /// The innermost Python line at the time of the allocation; for an instance, the line that calls its class.
    pub location: Location,
    /// Samples born there.
    pub samples: u64,
}

impl BirthLines {
    /// Collects these lines, possibly repeated; `None` without any.
    pub(crate) fn of(lines: impl IntoIterator<Item = BirthLine>) -> Option<Self> {
        /// Lines kept.
        const MOST: usize = 8;
        let mut births = Self::default();
        for line in lines {
            births.samples = births.samples.saturating_add(line.samples);
            let mut known = births.lines.iter_mut();
            match known.find(|known| known.location == line.location) {
                Some(known) => known.samples = known.samples.saturating_add(line.samples),
                None => births.lines.push(line),
            }
        }
        births.lines.sort_by_key(|line| Reverse(line.samples));
        births.lines.truncate(MOST);
        if births.samples > 0 { Some(births) } else { None }
    }

    /// These and others of the same type.
    pub(crate) fn and(self, other: Self) -> Self {
        let samples = self.samples.saturating_add(other.samples);
        let lines = self.lines.into_iter().chain(other.lines);
        Self { samples, ..Self::of(lines).unwrap_or_default() }
    }
}

/// A number of objects or cycles of all collections.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GarbageEstimate {
    /// Measured if all collections were examined; otherwise inferred, on the assumption that the
    /// others of the same generation freed the same mixture.
    pub basis: Basis,
    /// The number.
    pub count: u64,
    /// The number per second of observed time; `null` if nothing was observed.
    pub per_s: Option<f64>,
}

/// Objects or cycles freed per training step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PerStep {
    /// Measured if all collections in training were examined; otherwise inferred, as `estimate`.
    pub basis: Basis,
    /// Mean number per step, over the steps between the first and the last examined collection in
    /// training.
    pub mean: f64,
    /// Whether it is the same in every step, as far as collections show: in each quarter of these steps the mean is
    /// within 10 % of the overall mean.
    pub constant: bool,
}

/// Cycles of one signature: the shortest cycle of strongly connected components of the garbage.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GarbageCycle {
    /// The objects of the cycle, each with its reference to the next; the last refers to the first.
    pub edges: Vec<GarbageEdge>,
    /// Kind of the cycle; the remedy follows from it.
    pub shape: CycleShape,
    /// The line of the program that the cycle names: the line of its first function, class, frame or traceback
    /// outside the standard library and installed packages, if there is one, otherwise of the first; `null` if it has
    /// none.
    pub location: Option<Location>,
    /// Number of components in the examined garbage.
    pub count: u64,
    /// Objects in these components.
    pub objects: u64,
    /// Objects that are garbage only because these components refer to them.
    pub held_objects: u64,
    /// Own memory of both, in bytes; `null` if unknown.
    pub bytes: Option<u64>,
    /// Share of both in the examined garbage, 0 to 1.
    pub ratio: f64,
    /// Number of components in the garbage of all collections; `null` if it cannot be estimated.
    pub estimate: Option<GarbageEstimate>,
    /// Number of components per training step; `null` if steps are unknown.
    pub per_step: Option<PerStep>,
}
