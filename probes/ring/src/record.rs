//! The records: at most seven words each.
//!
//! Timestamps are nanoseconds of CLOCK_MONOTONIC, threads are kernel ids as seen by the process. A
//! text is sent once, in pieces, and referenced by a number from then on.

mod cache;
mod clock;
mod gpu;
mod layers;
mod text;
mod wire;

pub use cache::{RingCacheMemory, RingEmptyCache, RingPauseMemory};
pub use gpu::{ApiLayer, CuptiState, GpuRecord, RingCall, RingGpuOp, RingSync};
pub use layers::{HeldBytes, RingDeviceMemory, RingLayer, RingLayerFlow, RingLayers};
pub use text::{NO_TEXT, OUTER_FRAMES, TEXT_BYTES, TextPiece, pieces};

pub(crate) use clock::moved;

use crate::LostKind;
use std::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// Number of a text of this ring, see [`TextPiece`].
pub type TextId = u32;

/// Words that are not a valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedRecord {
    /// Its first byte, the kind of record.
    pub kind: u8,
}

impl fmt::Display for MalformedRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a record of kind {} that is invalid", self.kind)
    }
}

impl std::error::Error for MalformedRecord {}

/// An interval; `end_ns` precedes `start_ns` in a damaged ring only.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct TimeInterval {
    /// Start of the interval, in ns of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// End of the interval, in ns of CLOCK_MONOTONIC.
    pub end_ns: u64,
}

/// State of a hook in the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes, KnownLayout, TryFromBytes)]
#[repr(u8)]
pub enum HookState {
    /// Collections are recorded from now on; `count` ran in this interpreter before
    /// ([`HookState::UNCOUNTED`]). Of a forked child 0: it inherited the hook.
    Installed = 1,
    /// The program had removed our entry from `gc.callbacks`; it was added again. In between,
    /// `count` collections were missed, by the collector's own statistics.
    Restored = 2,
    /// It was removed again, and is not added any more.
    GivenUp = 3,
    /// The interpreter cannot be hooked; `detail` has the reason.
    Failed = 4,
    /// Allocations are counted from now on.
    CountingAllocations = 5,
    /// Allocations are not counted; `detail` has the reason.
    NotCountingAllocations = 6,
    /// The collector's own statistics contain `count` collections for which our entry was not
    /// called, although it was in place: another collector's (Nuitka's), or the program removed it,
    /// kept it and restored it.
    Bypassed = 7,
    /// Calls of the function that the user named are not recorded; `detail` has the reason.
    NotWatchingFunction = 8,
    /// The garbage of collections is not examined; `detail` has the reason.
    NotExaminingGarbage = 9,
    /// The interpreter ends. Its last collections call no callbacks.
    Ending = 10,
    /// It has ended, with `count` such collections since [`HookState::Ending`] or, in 3.8, those at
    /// the ends of all interpreters. Missing if they cannot be counted.
    Ended = 11,
    /// Memory by layer is not measured, or no longer; `detail` has the reason.
    NotMeasuringLayers = 12,
    /// There is no history of device memory; `detail` has the reason.
    NoMemoryHistory = 13,
    /// From [`HookState::Ending`] to [`HookState::Ended`] its thread took `count` ns of CPU time: for its last
    /// collections, and for what else is freed.
    EndTook = 14,
}

impl HookState {
    /// `count` of [`HookState::Installed`] if the collector's statistics do not count all collections
    /// (3.14.0 - 3.14.4) or are unavailable.
    pub const UNCOUNTED: u64 = u64::MAX;
}

/// What marks a training step.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Immutable, IntoBytes, KnownLayout, TryFromBytes,
)]
#[repr(u8)]
pub enum StepMarker {
    /// A call of the function that the user named; `name` is the function's qualified name.
    Function = 1,
    /// The end of a step of a torch optimizer; `name` is its class.
    Optimizer = 2,
    /// The start of a backward pass; without a name.
    Backward = 3,
    /// A torch `DataLoader` is asked for a batch; `name` is the class of its iterator.
    DataLoader = 4,
}

/// Why a collection ran, as far as the library sees.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Immutable, IntoBytes, KnownLayout, TryFromBytes,
)]
#[repr(u8)]
pub enum RingReason {
    /// Calls of `gc.collect()` are not seen.
    #[default]
    Unknown = 0,
    /// Its thread was not in `gc.collect()`.
    Automatic = 1,
    /// Its thread was in `gc.collect()`.
    Explicit = 2,
    /// The interpreter was shutting down: the functions registered with `atexit` had run.
    Exit = 3,
}

/// A collection that ended, as CPython reports it to callbacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingPause {
    /// From the first call of our callback to the second.
    pub interval: TimeInterval,
    /// Kernel id of the collecting thread, as the process sees it.
    pub tid: u32,
    /// Generation, as passed to the callback.
    pub generation: u8,
    /// Id of the interpreter, as CPython numbers a process's interpreters.
    pub interpreter: i64,
    /// Number of unreachable objects that it freed.
    pub collected: u32,
    /// Number of unreachable objects that could not be freed.
    pub uncollectable: u32,
    /// Number of the innermost Python frame; 0: none.
    pub frame: u32,
    /// Why it ran.
    pub reason: RingReason,
    /// Objects that it left in the oldest generation, if it was full; 0: unknown.
    pub oldest_objects: u32,
    /// See [`RingPause::freed_bytes`].
    pub freed_kib: u32,
    /// See [`RingPause::cpu_ns`].
    pub cpu_share: u32,
}

/// [`RingPause::cpu_share`] is one more than the number of these parts of the interval.
const CPU_SHARES: u128 = u32::MAX as u128 - 1;

impl RingPause {
    /// `freed_kib` for a number of bytes.
    #[must_use]
    pub fn kib(bytes: Option<u64>) -> u32 {
        bytes.map_or(0, |bytes| u32::try_from(bytes / 1024).unwrap_or(u32::MAX).saturating_add(1))
    }

    /// Memory that the process used less when it ended than when it began, in bytes; `None` if it was not
    /// measured.
    #[must_use]
    pub fn freed_bytes(&self) -> Option<u64> {
        Some(u64::from(self.freed_kib.checked_sub(1)?) * 1024)
    }

    /// `cpu_share` for a CPU time within an interval.
    #[must_use]
    pub fn share(interval: TimeInterval, cpu_ns: Option<u64>) -> u32 {
        let wall_ns = u128::from(interval.end_ns.saturating_sub(interval.start_ns));
        let Some(cpu_ns) = cpu_ns else {
            return 0;
        };
        let cpu_ns = u128::from(cpu_ns).min(wall_ns);
        let parts = (cpu_ns * CPU_SHARES + wall_ns / 2).checked_div(wall_ns);
        parts.and_then(|parts| u32::try_from(parts + 1).ok()).unwrap_or(0)
    }

    /// CPU time of the collecting thread within the interval, in ns; of long ones to 1/4,294,967,294,
    /// as a slot has room for a share only. `None` if it was not measured.
    #[must_use]
    pub fn cpu_ns(&self) -> Option<u64> {
        let parts = u128::from(self.cpu_share.checked_sub(1)?);
        let wall_ns = u128::from(self.interval.end_ns.saturating_sub(self.interval.start_ns));
        u64::try_from((parts * wall_ns + CPU_SHARES / 2) / CPU_SHARES).ok()
    }
}

/// Calls of one function by one collection: those at its start and within it precede its
/// [`RingPause`], those after its end follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingCalled {
    /// A function in `gc.callbacks`; else `__del__`, a callback of a weak reference, or a generator that is
    /// closed.
    pub is_callback: bool,
    /// Kernel id of the collecting thread, as the process sees it.
    pub tid: u32,
    /// Number of calls.
    pub calls: u32,
    /// Number of a frame with the function and its first line; 0: it is unknown, or there are several.
    pub frame: u32,
    /// Start of the first call.
    pub at_ns: u64,
    /// Time of all calls, in ns.
    pub time_ns: u64,
}

/// What a collection found unreachable. As many [`RingRecord::GarbageKinds`] of the same thread as
/// `kinds` needs follow, and then `cycles` [`RingRecord::GarbageCycles`], with other threads' records
/// in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingGarbage {
    /// When the list of unreachable objects was read.
    pub at_ns: u64,
    /// Kernel id of the collecting thread, as the process sees it.
    pub tid: u32,
    /// Id of the interpreter.
    pub interpreter: i64,
    /// Length of the list.
    pub objects: u64,
    /// Time that examining it took, in ns.
    pub cost_ns: u64,
    /// Number of kinds that follow.
    pub kinds: u32,
    /// Number of cycles that follow; [`RingGarbage::NOT_EXAMINED`].
    pub cycles: u32,
}

impl RingGarbage {
    /// `cycles` where they were not examined.
    pub const NOT_EXAMINED: u32 = u32::MAX;
}

/// Cycles of one signature in the garbage of one collection, as strongly connected components.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCycleCount {
    /// Thread id.
    pub tid: u32,
    /// Number of the signature.
    pub cycle: u32,
    /// Number of components.
    pub count: u32,
    /// Objects in them.
    pub objects: u64,
    /// Objects that only they refer to.
    pub held_objects: u64,
    /// Own memory of all these in bytes; [`RingKindCount::UNKNOWN`].
    pub bytes: u64,
}

/// What is alive of the objects that were allocated at a line, estimated from a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingAliveLine {
    /// When it was looked at; all lines of one look have the same.
    pub at_ns: u64,
    /// Lines of this look that are to come.
    pub left: u16,
    /// Number of the frame that is the line; 0: there was no room for it.
    pub frame: u32,
    /// Number of objects.
    pub objects: u64,
    /// Their blocks, in bytes.
    pub bytes: u64,
}

/// Objects of one kind in the garbage of one collection.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct RingKindCount {
    /// Number of objects.
    pub objects: u64,
    /// Their own memory in bytes; [`RingKindCount::UNKNOWN`].
    pub bytes: u64,
    /// Number of the [`RingRecord::ObjectKind`]; 0: this place is empty.
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
}

impl RingKindCount {
    /// `bytes` of a kind whose size is unknown.
    pub const UNKNOWN: u64 = u64::MAX;
}

/// Number of kinds per record.
pub const KINDS_AT_ONCE: usize = 2;

/// Every record that the injected library emits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingRecord {
    /// Part of a text.
    Text(TextPiece),
    /// A Python frame, as a node of the tree of all stacks: sent once, after its caller.
    Frame {
        /// Its number, from 1.
        id: u32,
        /// Number of the calling frame; 0: none is recorded.
        parent: u32,
        /// Name of the function, qualified if the interpreter has that.
        function: TextId,
        /// `co_filename`.
        file: TextId,
        /// Current line; 0: unknown.
        line: u32,
    },
    /// An interpreter was found in the process.
    Interpreter {
        /// Time of detection.
        at_ns: u64,
        /// Result of `Py_GetVersion`.
        version: TextId,
        /// The file that contains it.
        file: TextId,
        /// Whether it is a free-threaded build.
        free_threaded: bool,
    },
    /// Settings of the collector: initial or changed.
    Settings {
        /// Time at which they were read.
        at_ns: u64,
        /// Interpreter id.
        interpreter: i64,
        /// `gc.get_threshold()`.
        thresholds: [i32; 3],
        /// `gc.isenabled()`.
        enabled: bool,
        /// Number of the frame that set them; 0: unknown.
        frame: u32,
    },
    /// A collection starts.
    PauseStart {
        /// Time at which `gc.callbacks` was called.
        at_ns: u64,
        /// Thread id.
        tid: u32,
        /// Generation, as passed to the callback.
        generation: u8,
        /// Interpreter id.
        interpreter: i64,
    },
    /// A collection ended.
    Pause(RingPause),
    /// Calls of the program's code by a collection.
    Called(RingCalled),
    /// A layer of a model.
    Layer(RingLayer),
    /// The rest of it.
    LayerFlow(RingLayerFlow),
    /// Memory of a GPU in a measured step.
    LayersDevice(RingDeviceMemory),
    /// A measured step.
    Layers(RingLayers),
    /// `torch.cuda.empty_cache()`.
    EmptyCache(RingEmptyCache),
    /// Device memory of PyTorch's allocator, after such a call or a full collection.
    CacheMemory(RingCacheMemory),
    /// Device memory that a full collection freed.
    PauseMemory(RingPauseMemory),
    /// A kind of object that garbage consists of: sent once, before records that refer to it.
    ObjectKind {
        /// Its number, from 1.
        id: u32,
        /// Qualified name of the type with its module, unless that is `builtins`.
        type_name: TextId,
        /// Name of the code that its objects belong to; [`NO_TEXT`]: they belong to none.
        function: TextId,
        /// `co_filename` of that code.
        file: TextId,
        /// Line in it; 0: unknown.
        line: u32,
    },
    /// The garbage of a collection.
    Garbage(RingGarbage),
    /// Counts of the [`RingRecord::Garbage`] before it of the same thread, most objects first.
    GarbageKinds {
        /// Thread id.
        tid: u32,
        /// The next of its kinds.
        counts: [RingKindCount; KINDS_AT_ONCE],
    },
    /// An object of a cycle and its reference to the next; the last refers to the first. Each sent
    /// once, in order, before records that refer to the cycle.
    CycleEdge {
        /// Number of the cycle, from 1.
        cycle: u32,
        /// Place of the object in it, from 0.
        at: u16,
        /// Number of its objects.
        length: u16,
        /// The object's [`RingRecord::ObjectKind`].
        kind: u32,
        /// The reference as Python writes it; [`NO_TEXT`]: it has no name.
        name: TextId,
    },
    /// Cycles of the [`RingRecord::Garbage`] before it of the same thread, most objects first.
    GarbageCycles(RingCycleCount),
    /// Objects of the [`RingRecord::Garbage`] before it of the same thread whose allocation was
    /// sampled.
    GarbageBirth {
        /// Thread id.
        tid: u32,
        /// The [`RingRecord::ObjectKind`] with their type, and with the function, file and line that
        /// allocated them.
        kind: u32,
        /// Number of sampled objects.
        samples: u32,
    },
    /// What is alive of the objects that were allocated at a line, of a sample of them.
    AliveLine(RingAliveLine),
    /// A training step is marked.
    StepMark {
        /// Time of the mark.
        at_ns: u64,
        /// When the call that is the mark returned; `at_ns` if that is unknown.
        end_ns: u64,
        /// Thread id.
        tid: u32,
        /// CPU time that the thread has used until then (CLOCK_THREAD_CPUTIME_ID), in ns; 0: unknown.
        cpu_ns: u64,
        /// What marks it.
        marker: StepMarker,
        /// See [`StepMarker`]; [`NO_TEXT`] also if there was no room for it.
        name: TextId,
    },
    /// The state of a hook in the interpreter changed.
    Hook {
        /// Time of the change.
        at_ns: u64,
        /// The new state.
        state: HookState,
        /// Interpreter id.
        interpreter: i64,
        /// Text with details, or [`NO_TEXT`].
        detail: TextId,
        /// Number of collections missed.
        count: u64,
    },
    /// A process was forked that has no ring yet: it creates one when it has something else to write.
    /// In the ring of the nearest ancestor that has one, whose memory it inherited.
    Fork {
        /// Time at which it began.
        at_ns: u64,
        /// Its process id, as it sees it.
        pid: u32,
        /// Its parent's, which sees the same ids.
        parent: u32,
    },
    /// An operation of a GPU.
    Gpu(RingGpuOp),
    /// A thread, or a stream, waited.
    Sync(RingSync),
    /// An event was recorded in a stream.
    Event {
        /// Correlation id of the call.
        correlation: u32,
        /// Context id.
        context: u32,
        /// Stream id.
        stream: u32,
        /// Event id.
        event: u32,
    },
    /// A CUDA call.
    Api(RingCall),
    /// CUPTI, or the driver for it, kept a thread busy.
    Overhead {
        /// Interval of the overhead.
        interval: TimeInterval,
        /// `CUpti_ActivityOverheadKind`; 6 << 16: the launch queue was full.
        kind: u32,
    },
    /// The state of CUPTI recording changed.
    Cupti {
        /// Time of the change.
        at_ns: u64,
        /// The new state.
        state: CuptiState,
        /// See [`CuptiState`].
        code: i64,
        /// See [`CuptiState`].
        detail: TextId,
    },
    /// CUPTI dropped records.
    Dropped {
        /// Time at which that was noticed.
        at_ns: u64,
        /// Number since the last such record.
        count: u64,
    },
    /// All GPU operations that had ended by then are in the ring, or counted as lost.
    Flushed {
        /// Time of the flush.
        at_ns: u64,
    },
}

impl RingRecord {
    /// The kind under which its loss is counted. The start of a collection is not counted: its end
    /// repeats all of it. Nor is a forked child, which then creates a ring.
    #[must_use]
    pub fn lost_kind(&self) -> Option<LostKind> {
        Some(match self {
            Self::PauseStart { .. } | Self::Fork { .. } => return None,
            Self::Pause(_) => LostKind::Pauses,
            Self::Gpu(_) | Self::Sync { .. } | Self::Event { .. } => LostKind::GpuWork,
            Self::Api { .. } | Self::Overhead { .. } => LostKind::Calls,
            Self::StepMark { .. } => LostKind::Steps,
            Self::Garbage(_)
            | Self::GarbageKinds { .. }
            | Self::GarbageCycles(_)
            | Self::AliveLine(_)
            | Self::GarbageBirth { .. } => LostKind::Garbage,
            _ => LostKind::Descriptions,
        })
    }
}
