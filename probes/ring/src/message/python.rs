//! The library's records of an interpreter.

use super::messages::{messages, packed};
use super::{
    RingAliveLine, RingCacheMemory, RingCycleEdge, RingEmptyCache, RingGarbage, RingLayers,
    RingPauseMemory, RingTurn, RingTurns, TextId, TimeInterval,
};
use crate::LostKind::{Descriptions, Garbage, Pauses, Steps, Turns};
use crate::RingRole;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// Function of the frame that stands for those beyond the requested depth of stacks; it has no file
/// and no line.
pub const OUTER_FRAMES: &str = "[outer frames not recorded]";

/// State of a hook in the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes, KnownLayout, TryFromBytes)]
#[repr(u8)]
pub enum HookState {
    /// Collections are recorded from now on; `count` ran in this interpreter before ([`HookState::UNCOUNTED`]). 0 in a
    /// forked child: it inherited the hook.
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
    /// The collector's own statistics contain `count` collections without a call of our entry, although it was in
    /// place. Another collector made them (Nuitka's), or the program removed our entry, kept it and restored it.
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

/// Kinds of marks of a training step.
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

packed! {
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
        /// Number of unreachable objects that it freed; `None` if CPython did not say.
        pub collected: Option<u32>,
        /// Number of unreachable objects that could not be freed; `None` if CPython did not say.
        pub uncollectable: Option<u32>,
        /// Number of the innermost Python frame; 0: none.
        pub frame: u32,
        /// Why it ran.
        pub reason: RingReason,
        /// Objects that it left in the oldest generation, if it was full; `None`: unknown.
        pub oldest_objects: Option<u32>,
        /// Memory that the process used less when it ended than when it began, in bytes; `None` if it was not
        /// measured.
        pub freed_bytes: Option<u64>,
        /// CPU time of the collecting thread within the interval, in ns; `None` if it was not measured.
        pub cpu_ns: Option<u64>,
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
        pub at_ns: u64 as time,
        /// Time of all calls, in ns.
        pub time_ns: u64,
    }
}

messages! {
    /// Messages in the ring of an interpreter's events.
    pub enum PythonMessage in RingRole::Python {
        /// A text, sent before its first use.
        1 [Descriptions] Text {
            /// Its number, from 1; used once in a ring.
            id: TextId,
            /// Itself.
            text: Box<str>,
        }
        /// A Python frame, as a node of the tree of all stacks: sent once, after its caller.
        2 [Descriptions] Frame {
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
        }
        /// An interpreter was found in the process.
        3 [Descriptions] Interpreter {
            /// Time of detection.
            at_ns: u64 as time,
            /// Result of `Py_GetVersion`.
            version: TextId,
            /// The file that contains it.
            file: TextId,
            /// Whether it is a free-threaded build.
            free_threaded: bool,
        }
        /// Settings of the collector: initial or changed.
        4 [Descriptions] Settings {
            /// Time of reading them.
            at_ns: u64 as time,
            /// Interpreter id.
            interpreter: i64,
            /// `gc.get_threshold()`.
            thresholds: [i32; 3],
            /// `gc.isenabled()`.
            enabled: bool,
            /// Number of the frame that set them; 0: unknown.
            frame: u32,
        }
        /// A collection starts. Its loss is not counted: its end repeats all of it.
        5 [] PauseStart {
            /// Time of the call of `gc.callbacks`.
            at_ns: u64 as time,
            /// Thread id.
            tid: u32,
            /// Generation, as passed to the callback.
            generation: u8,
            /// Interpreter id.
            interpreter: i64,
        }
        /// A collection ended.
        6 [Pauses] Pause(pause: RingPause)
        /// Calls of the program's code by a collection.
        7 [Descriptions] Called(called: RingCalled)
        /// A measured step, with its memory by layer.
        8 [Descriptions] Layers(layers: RingLayers)
        /// `torch.cuda.empty_cache()`.
        9 [Descriptions] EmptyCache(call: RingEmptyCache)
        /// Device memory of PyTorch's allocator, after such a call or a full collection.
        10 [Descriptions] CacheMemory(memory: RingCacheMemory)
        /// Device memory that a full collection freed.
        11 [Descriptions] PauseMemory(memory: RingPauseMemory)
        /// A kind of object that garbage consists of: sent once, before messages that refer to it.
        12 [Descriptions] ObjectKind {
            /// Its number, from 1.
            id: u32,
            /// Qualified name of the type with its module, unless that is `builtins`.
            type_name: TextId,
            /// Name of the code that its objects belong to; [`NO_TEXT`](super::NO_TEXT): they belong to none.
            function: TextId,
            /// `co_filename` of that code.
            file: TextId,
            /// Line in it; 0: unknown.
            line: u32,
        }
        /// A reference cycle: sent once, before messages that refer to it.
        13 [Descriptions] Cycle {
            /// Its number, from 1.
            id: u32,
            /// Its objects, each with its reference to the next; the last refers to the first.
            edges: Vec<RingCycleEdge>,
        }
        /// The garbage of a collection, within it.
        14 [Garbage] Garbage(garbage: RingGarbage)
        /// Live objects among all objects allocated at some lines, estimated from a sample.
        15 [Garbage] Alive {
            /// When it was looked at.
            at_ns: u64 as time,
            /// By line.
            lines: Vec<RingAliveLine>,
        }
        /// A training step is marked.
        16 [Steps] StepMark {
            /// Time of the mark.
            at_ns: u64 as time,
            /// When the call that is the mark returned; `at_ns` if that is unknown.
            end_ns: u64 as time,
            /// Thread id.
            tid: u32,
            /// CPU time that the thread has used until then (CLOCK_THREAD_CPUTIME_ID), in ns; 0: unknown.
            cpu_ns: u64,
            /// Kind of the mark.
            marker: StepMarker,
            /// See [`StepMarker`]; [`NO_TEXT`](super::NO_TEXT) also if there was no room for it.
            name: TextId,
        }
        /// The state of a hook in the interpreter changed.
        17 [Descriptions] Hook {
            /// Time of the change.
            at_ns: u64 as time,
            /// The new state.
            state: HookState,
            /// Interpreter id.
            interpreter: i64,
            /// Text with details, or [`NO_TEXT`](super::NO_TEXT).
            detail: TextId,
            /// Number of collections missed.
            count: u64,
        }
        /// A process was forked that has no ring yet. It creates one when it has something else to write, so a loss of
        /// this message is not counted. The message is in the ring of the nearest ancestor with a ring: the process
        /// inherited that ring's memory.
        18 [] Fork {
            /// Time of its start.
            at_ns: u64 as time,
            /// Its process id, as it sees it.
            pid: u32,
            /// The process id of its parent; the parent sees the same ids.
            parent: u32,
        }
        /// Turns of a loop, counted.
        19 [Turns] Turns(turns: RingTurns)
        /// A long turn of a loop.
        20 [Turns] Turn(turn: RingTurn)
    }
}
