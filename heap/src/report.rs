//! Answers about heaps as data, schema `gctrace.heap/1` (docs/report-schema.md).

use super::HeapHeader;
use gctrace_event::KindName;
use serde::Serialize;

/// The answer to one question of `gctrace heap`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeapReport {
    /// Name and version of this schema: always `gctrace.heap/1`.
    pub schema: &'static str,
    /// The heaps that it is about, in the order given.
    pub heaps: Vec<HeapFacts>,
    /// The answer.
    #[serde(flatten)]
    pub answer: HeapAnswer,
}

impl HeapReport {
    /// The value of `schema`.
    pub const SCHEMA: &'static str = "gctrace.heap/1";
}

/// A heap as a whole. All figures are measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeapFacts {
    /// Its file.
    pub file: String,
    /// When and how it was taken.
    pub header: HeapHeader,
    /// Number of objects.
    pub objects: u64,
    /// Objects that the collector tracks.
    pub tracked: u64,
    /// Objects in the permanent generation (`gc.freeze()`).
    pub frozen: u64,
    /// Number of references between them.
    pub references: u64,
    /// Their own memory in bytes, as far as known.
    pub bytes: u64,
    /// Objects of unknown size: sums of bytes are lower bounds.
    pub objects_of_unknown_bytes: u64,
    /// Objects that no root reaches: tracked objects, and objects that only they refer to.
    pub garbage: HeapCount,
    /// Objects that something outside the heap holds; the safe side, if references are missing.
    pub held_outside: u64,
    /// Objects with fewer references than the heap shows. This is impossible: something was misread.
    pub contradictions: u64,
}

/// Objects and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeapCount {
    /// Number of objects.
    pub objects: u64,
    /// Their own memory in bytes, as far as known.
    pub bytes: u64,
}

impl HeapCount {
    pub(super) fn add(&mut self, bytes: Option<u64>) {
        self.objects += 1;
        gctrace_units::add_if_known(&mut self.bytes, bytes);
    }

    pub(super) fn add_all(&mut self, other: Self) {
        self.objects += other.objects;
        gctrace_units::add_to(&mut self.bytes, other.bytes);
    }
}

/// Answers, by question.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HeapAnswer {
    /// `gctrace heap show`.
    Show(ShowAnswer),
    /// `gctrace heap why`.
    Why(WhyAnswer),
    /// `gctrace heap dominators`.
    Dominators(DominatorsAnswer),
    /// `gctrace heap diff`.
    Diff(DiffAnswer),
}

/// The contents of a heap.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShowAnswer {
    /// Objects by type, most bytes first.
    pub types: Vec<TypeRow>,
    /// Objects of further types.
    pub others: HeapCount,
    /// Number of these types.
    pub other_types: u64,
}

/// The objects of one type.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TypeRow {
    /// Qualified name, preceded by its module unless that is `builtins`.
    pub type_name: String,
    /// All of them.
    pub all: HeapCount,
    /// Number in each generation, youngest first; zeros where generations are unknown.
    pub generations: [u64; 3],
    /// Number in the permanent generation.
    pub frozen: u64,
    /// Number that the collector does not track.
    pub untracked: u64,
    /// Objects that no root reaches.
    pub garbage: HeapCount,
}

/// An object.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeapObject {
    /// Address as `hex(id())` returns it.
    pub address: String,
    /// Its type and code.
    #[serde(flatten, serialize_with = "KindName::with_nulls")]
    pub kind: KindName,
    /// Its label: a module's name, the start of a text.
    pub label: Option<String>,
    /// Its own memory in bytes; `null` if unknown.
    pub bytes: Option<u64>,
    /// Number of references that it has to objects of the heap.
    pub refers_to: u64,
    /// Its reference count; `null` if it is immortal or unknown.
    pub references: Option<u32>,
}

/// A chain of references.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeapPath {
    /// The holder of its first object; `null` for a cycle of garbage.
    pub root: Option<String>,
    /// Its objects, each referring to the next; of a cycle the last one refers to the first.
    pub steps: Vec<PathStep>,
    /// Number of objects left out in the middle of a long path.
    pub omitted: u64,
    /// Position in `steps` of the first object after those left out; `null` if none are.
    pub omitted_before: Option<u64>,
}

/// An object of a path.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathStep {
    /// The reference to it as Python writes it; `null` for the first, and if it has no name.
    pub name: Option<String>,
    /// The object.
    pub object: HeapObject,
}

/// Why objects are alive.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhyAnswer {
    /// The type or address that was asked about.
    pub target: String,
    /// The objects found.
    pub found: HeapCount,
    /// The objects by holder, most objects first.
    pub groups: Vec<WhyGroup>,
    /// Objects in further groups.
    pub others: HeapCount,
    /// Number of these groups.
    pub other_groups: u64,
}

/// Objects that are held in the same way: by paths that differ only in positions within
/// containers, and in the length of chains.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhyGroup {
    /// How sure it is that they are held.
    pub held: Held,
    /// The objects.
    pub count: HeapCount,
    /// Where the example is, as Python would write it: `train.py:12 collect.__defaults__[0]`;
    /// `null` for garbage.
    pub place: Option<String>,
    /// The shortest path to one of them; for garbage a shortest cycle through it, without steps if
    /// it is in none.
    pub example: HeapPath,
}

/// Kind of an object's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// By a root that has a name.
    Root,
    /// By something outside the heap: a reference that is not an object's, or could not be read.
    Outside,
    /// By nothing: it is garbage.
    Nothing,
}

/// The objects that retain most.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DominatorsAnswer {
    /// Bytes of all objects that are alive, as far as known.
    pub alive_bytes: u64,
    /// Smallest share of `alive_bytes` that makes an object a suspect.
    pub suspect_share: f64,
    /// Objects that retain at least that share, each where its memory comes together: no smaller object holds it.
    /// Largest first.
    pub suspects: Vec<Suspect>,
    /// Objects that depend on no other object alone; most retained bytes first.
    pub largest: Vec<RetainedRow>,
}

/// A leak suspect.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Suspect {
    /// Its holder, as far as the path shows.
    pub holder: SuspectHolder,
    /// Number of objects: several if something outside the heap holds each of them, otherwise one.
    pub alike: u64,
    /// The object, or one of several alike, and the memory that they retain together.
    #[serde(flatten)]
    pub row: RetainedRow,
    /// Retained objects by type, most bytes first; at most three types.
    pub mostly: Vec<RetainedType>,
}

/// Retained objects of one type.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RetainedType {
    /// The type.
    pub type_name: String,
    /// Its objects.
    pub count: HeapCount,
}

/// A usual place of leaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SuspectHolder {
    /// A default argument of a function; it lives as long as the function.
    DefaultArgument,
    /// The cache of `functools.lru_cache` or `functools.cache`.
    LruCache,
    /// Hooks or callbacks that were registered and not removed.
    Hooks,
    /// A handler of a logger.
    Handler,
    /// The loggers of the module logging, by name.
    Loggers,
    /// What `weakref.finalize` calls and passes.
    Finalizer,
    /// What an event loop is to run.
    EventLoop,
    /// The values of a `weakref.WeakKeyDictionary`.
    WeakKeys,
    /// A traceback; it holds its frames and their variables.
    Traceback,
    /// A variable that a function closes over.
    Closure,
    /// An attribute of a class.
    ClassAttribute,
    /// A variable of a module.
    ModuleAttribute,
    /// A variable of a function that runs.
    Frame,
    /// Something outside the heap holds each of them.
    Outside,
    /// Something else.
    Other,
}

/// An object and its retained objects.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RetainedRow {
    /// Where it is, as Python would write it: `train.py:12 collect.__defaults__[0]`.
    pub place: String,
    /// The object.
    pub object: HeapObject,
    /// Objects and bytes that would be freed with it, itself included.
    pub retained: HeapCount,
}

/// Changes between heaps.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffAnswer {
    /// Objects of the last heap that are not in the first and, of three, are in the second.
    pub born: HeapCount,
    /// Objects of the first heap that are not in the last.
    pub gone: HeapCount,
    /// Objects of the last heap taken for new because of their age, although an older object had their address, type
    /// and label (docs/report-schema.md).
    pub reused_addresses: u64,
    /// By type, most `born` bytes first, then most objects.
    pub types: Vec<DiffRow>,
    /// By owner: the nearest object of the first heap that dominates them.
    pub owners: Vec<OwnerRow>,
}

/// Change of one type.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffRow {
    /// The type.
    pub type_name: String,
    /// Objects in each heap.
    pub heaps: Vec<HeapCount>,
    /// As `born` of the comparison.
    pub born: HeapCount,
    /// As `gone` of the comparison.
    pub gone: HeapCount,
}

/// New objects below one older object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OwnerRow {
    /// Where the owner is, as Python would write it.
    pub place: String,
    /// The owner; `null` if no single older object dominates them.
    pub owner: Option<HeapObject>,
    /// The new objects.
    pub born: HeapCount,
    /// Their most frequent type, of functions and code with their line.
    pub mostly: String,
}
