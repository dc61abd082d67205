//! The garbage of a collection, by kind of object and by cycle.

use super::FrameId;
use super::kind::{Phase, declare};
use bitcode::{Decode, Encode};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};

/// Identifies an [`ObjectKind`] within its process; counted from 1. A kind that is sent again under
/// the same number is the same kind.
pub type KindId = u32;

/// Identifies a [`CycleSignature`] within its process; counted from 1.
pub type CycleId = u32;

/// The common properties of objects; in a [`BirthCount`] their code is the line of the allocation. Written before the
/// first record that refers to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode)]
pub struct ObjectKind {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// Number of the kind, from 1 in each process.
    pub id: KindId,
    /// Their type and code.
    #[serde(flatten)]
    pub name: KindName,
}

/// The type of objects and, for those that belong to code, the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KindName {
    /// Qualified name of the type, preceded by its module unless that is `builtins`: `cell`,
    /// `torch.Tensor`, `__main__.Trainer`. `[type not readable]` if it could not be read; empty if the
    /// kind is unknown.
    pub type_name: String,
    /// The qualified name (before CPython 3.11 the name) of functions, frames, generators, coroutines, tracebacks, code
    /// objects and classes, of cells with one of them, and of bound methods; `null` or missing if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// `co_filename` of that code; `null` or missing if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its first line; for frames, generators, coroutines and tracebacks the line being executed; `null` or missing if
    /// there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

declare! { ObjectKind: Phase::Meta, "gctrace_object_kind", "a kind of object", pid: pid, by: "--garbage" }

impl KindName {
    /// `type_name` of a type with an unreadable name.
    pub const UNREADABLE: &'static str = "[type not readable]";

    /// Serializes it with `null` for each missing member.
    ///
    /// # Errors
    /// Of the serializer.
    pub fn with_nulls<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("type_name", &self.type_name)?;
        map.serialize_entry("function", &self.function)?;
        map.serialize_entry("file", &self.file)?;
        map.serialize_entry("line", &self.line)?;
        map.end()
    }
}

/// Objects of one kind in the garbage of one collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct KindCount {
    /// Their kind.
    pub kind: KindId,
    /// Number of objects.
    pub objects: u64,
    /// Their own memory in bytes: `tp_basicsize`, items, and tables of lists and dicts where the layout is known; not
    /// the objects that they refer to. `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Objects with a sampled allocation in the garbage of one collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct BirthCount {
    /// Their type, with the function, file and line that allocated them.
    pub kind: KindId,
    /// Number of sampled objects, including the dropped samples that they stand for: samples are dropped if there are
    /// too many.
    pub samples: u64,
}

/// The objects that one collection found unreachable, each once. Every such record covers all garbage of its
/// collection; the budget decides which collections have one. A collection that freed objects and has no such record
/// was not examined. It belongs to the pause of its thread that contains `at_ns`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct Garbage {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// Kernel id of the collecting thread.
    #[serde(skip)]
    pub tid: u32,
    /// When the list of unreachable objects was read, in ns of CLOCK_MONOTONIC: within the pause.
    #[serde(skip)]
    pub at_ns: u64,
    /// Interpreter id (0 is the main interpreter); `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<i64>,
    /// Length of the list. Finalizers run later: objects that they free or resurrect are in it, but not in
    /// [`Pause::collected`](super::Pause::collected).
    pub objects: u64,
    /// The list by kind, most objects first. Its objects are fewer than `objects` if there were more
    /// kinds than a record has room for.
    pub kinds: Vec<KindCount>,
    /// The cycles among them (`--garbage cycles`), most objects first; `None` where they were not
    /// examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<Vec<CycleCount>>,
    /// The birth lines of instances with a sampled allocation (`--alloc`, in-process), most samples first. The
    /// instances are among `kinds`, there without a line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub births: Vec<BirthCount>,
    /// Time that examining it took, in ns, a part of the pause; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<u64>,
}

declare! {
    Garbage: Phase::Meta, "gctrace_garbage", "garbage",
    pid: pid, tid: tid, at: at_ns, by: "--garbage"
}

/// Live objects, by the line that allocated them: an estimate from a sample of all allocations of objects since the
/// injected library began to sample (`--alloc`), whatever their type, but not of types with free lists (list, dict,
/// tuple, float). Written after collections, ever more rarely.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct AliveLines {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// When it was looked at, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub at_ns: u64,
    /// Frame that is the line, objects, and their blocks in bytes; at most 128 lines, most objects first.
    pub lines: Vec<(FrameId, u64, u64)>,
}

declare! {
    AliveLines: Phase::Meta, "gctrace_alive", "what is alive",
    pid: pid, at: at_ns, by: "--alloc";
    fn stacks(&self) -> Vec<FrameId> {
        self.lines.iter().map(|(frame, ..)| *frame).collect()
    }
}

/// Cycles of one signature in the garbage of one collection: strongly connected components of its
/// graph of references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct CycleCount {
    /// The signature.
    pub cycle: CycleId,
    /// Number of components that have it.
    pub count: u64,
    /// Objects in these components.
    pub objects: u64,
    /// Objects that are garbage only because these components refer to them, directly or not; objects held by several
    /// components belong to the first that reaches them.
    pub held_objects: u64,
    /// Own memory of `objects` and `held_objects` in bytes; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// The shortest cycle of a component: its objects and the references between them. Starts at the
/// smallest label, so that equal cycles are equal. Written before the first record that refers to
/// it. Dicts of instances are left out; a cycle that repeats a part is only that part, and one longer
/// than 32 objects is cut, without the name of its last reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode)]
pub struct CycleSignature {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// Number of the signature.
    pub id: CycleId,
    /// The shortest cycle of a strongly connected component of the garbage, from its smallest label on: each object and
    /// its reference to the next. The last object refers to the first. An instance stands for its dict, too. A cycle
    /// that repeats a part is written as that part. A cycle of more than 32 objects is cut, and its last reference has
    /// no name.
    pub edges: Vec<CycleEdge>,
}

declare! { CycleSignature: Phase::Meta, "gctrace_cycle", "a cycle", pid: pid, by: "--garbage cycles" }

/// One object of a cycle and its reference to the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode)]
pub struct CycleEdge {
    /// Kind of the object.
    pub kind: KindId,
    /// The reference as Python writes it: `.hooks`, `['key']`, `[]` for any item of a list or tuple,
    /// `.__closure__`, `.__self__`. `None` if it has no name that could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
