//! State of a CPython program at one moment: its threads with their Python stacks, its collector and its memory. Schema
//! `gctrace.dump/1` (docs/dump.schema.json).

use gctrace_event::{CollectorKind, OffCpuReason};
use serde::Serialize;

/// One process at one moment. All figures are measured, as of the stop.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramState {
    /// Name and version of this schema: always `gctrace.dump/1`.
    pub schema: &'static str,
    /// Process id.
    pub pid: u32,
    /// The command with its arguments.
    pub command: Vec<String>,
    /// Version of CPython.
    pub version: String,
    /// `generational`, `incremental` or `free-threaded`.
    #[serde(serialize_with = "as_word")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub collector: CollectorKind,
    /// When, in seconds since 1970.
    pub taken_s: u64,
    /// For how long all threads were stopped, in ns.
    pub stopped_ns: u64,
    /// Its memory.
    pub memory: ProgramMemory,
    /// Figures of pymalloc, CPython's allocator of small objects, for all interpreters together; `null`: unknown, for
    /// the reason in `without_pymalloc`.
    pub pymalloc: Option<PymallocState>,
    /// Why `pymalloc` is unknown.
    pub without_pymalloc: Option<String>,
    /// Its interpreters, the main one first.
    pub interpreters: Vec<InterpreterState>,
    /// Its threads: threads with Python frames first, starting with the main one.
    pub threads: Vec<ThreadState>,
    /// Limits of these figures.
    pub notes: Vec<String>,
}

impl ProgramState {
    /// The value of `schema`.
    pub const SCHEMA: &'static str = "gctrace.dump/1";
}

/// Memory of a process in bytes (proc_pid_status(5)); `null`: the kernel does not state it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramMemory {
    /// Resident.
    pub resident_bytes: Option<u64>,
    /// The part of it that the process allocated itself: neither files nor shared memory.
    pub anonymous_bytes: Option<u64>,
    /// The most that was resident.
    pub peak_bytes: Option<u64>,
    /// Swapped out.
    pub swapped_bytes: Option<u64>,
}

/// Figures of pymalloc: blocks of up to 512 bytes. Counted after the stop, while the program runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PymallocState {
    /// Number of allocators: one, plus one for each interpreter with its own (3.12 and later). All figures are sums
    /// over them.
    pub allocators: u64,
    /// Arenas.
    pub arenas: u64,
    /// Their size in bytes together, resident or not.
    pub arena_bytes: u64,
    /// Blocks in use (`sys._getallocatedblocks()`); `null`: they are too many to be counted.
    pub used_blocks: Option<u64>,
    /// Bytes of these blocks, as `sys._debugmallocstats()` prints them; `null` as `used_blocks`.
    pub used_bytes: Option<u64>,
    /// Sizes of the existing blocks, ascending; empty if the blocks are too many to be counted.
    pub sizes: Vec<BlockSizes>,
}

/// Blocks of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlockSizes {
    /// The size in bytes: a multiple of 16.
    pub block_bytes: u64,
    /// Pools of such blocks, with one in use at least.
    pub pools: u64,
    /// Blocks in use.
    pub used_blocks: u64,
    /// Others in these pools.
    pub free_blocks: u64,
}

/// The collector of one interpreter. `null` where this version has no such figure, or it could not be read.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterpreterState {
    /// Id; 0 is the main interpreter.
    pub id: i64,
    /// Whether automatic collection is on.
    pub is_enabled: Option<bool>,
    /// Whether a collection is running.
    pub is_collecting: Option<bool>,
    /// `gc.get_threshold()`.
    pub thresholds: Vec<i32>,
    /// `gc.get_count()`.
    pub counts: Vec<i32>,
    /// `gc.get_stats()`, by generation.
    pub generations: Vec<GenerationState>,
    /// Objects that the last full collection left.
    pub oldest_objects: Option<u64>,
    /// All tracked objects (3.14 and later).
    pub heap_objects: Option<u64>,
    /// Objects in the permanent generation (`gc.freeze()`; 3.12 and later freeze some when they start).
    pub frozen_objects: Option<u64>,
    /// There are more: counting ended.
    pub is_more_frozen: bool,
}

/// Collections of one generation since the interpreter started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GenerationState {
    /// Collections.
    pub collections: u64,
    /// Objects freed.
    pub collected: u64,
    /// Objects that could not be freed.
    pub uncollectable: u64,
}

/// One thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadState {
    /// Its id in the kernel; `null`: unknown, because it did not stop.
    pub tid: Option<u32>,
    /// The kernel's name of it.
    pub name: Option<String>,
    /// Reason for its wait just before the stop; `null`: it was running, or the reason is unknown.
    #[serde(serialize_with = "as_text")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub waits_for: Option<OffCpuReason>,
    /// Whether it was running, or could have; `null`: unknown.
    pub is_running: Option<bool>,
    /// The interpreter that it executes code for; `null`: none.
    pub interpreter: Option<i64>,
    /// Whether it has the lock of the interpreter, or had it last; `null`: unknown, or there is none.
    pub has_gil: Option<bool>,
    /// Its Python stack, innermost first.
    pub frames: Vec<StackFrame>,
    /// Frames further out were left out.
    pub is_cut: bool,
}

/// One frame of a Python stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StackFrame {
    /// Qualified name of the function (before 3.11: its name); `null`: its code could not be read.
    pub function: Option<String>,
    /// File.
    pub file: Option<String>,
    /// Line that it executes.
    pub line: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn as_text<S: serde::Serializer>(
    reason: &Option<OffCpuReason>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match reason {
        Some(reason) => serializer.collect_str(reason),
        None => serializer.serialize_none(),
    }
}

fn as_word<S: serde::Serializer>(kind: &CollectorKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.as_ref())
}
