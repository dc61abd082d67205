//! The records: at most seven words each, and how they lie in them.
//!
//! Times are nanoseconds of CLOCK_MONOTONIC, threads the kernel's ids as the process sees them. Text is sent
//! once, in pieces, and named by a number from then on.

mod text;
mod wire;
mod words;

pub use text::NO_TEXT;
pub use text::TEXT_BYTES;
pub use text::TextPiece;
pub use text::pieces;

use crate::LostKind;
use std::fmt;

/// Names a text of this ring, see [`TextPiece`].
pub type TextId = u32;

/// Words of a record that mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedRecord {
    /// Its first byte, the kind of record.
    pub kind: u8,
}

impl fmt::Display for MalformedRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "a record of kind {} that makes no sense",
            self.kind
        )
    }
}

impl std::error::Error for MalformedRecord {}

/// A stretch of time; `end_ns` may be before `start_ns` in a damaged ring only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeInterval {
    /// Begin.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
}

/// What became of a hook in the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HookState {
    /// Collections are seen from now on.
    Installed = 1,
    /// The program had taken our entry out of `gc.callbacks`; it is back. Collections in between were missed:
    /// `count` of them, as the collector's own statistics say.
    Restored = 2,
    /// It was taken out again; it stays out.
    GivenUp = 3,
    /// The interpreter does not let itself be hooked; `detail` says why.
    Failed = 4,
    /// Allocations are counted from now on.
    CountingAllocations = 5,
    /// They are not; `detail` says why.
    NotCountingAllocations = 6,
    /// The collector's own statistics count `count` collections of which our entry was not told, though it was in
    /// its place: those of another collector (Nuitka's), or the program took it out, kept it and put it back.
    Bypassed = 7,
}

/// What became of CUPTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CuptiState {
    /// GPU work is recorded from now on; `code` is CUPTI's version, `detail` its file.
    Recording = 1,
    /// There is no libcupti in the process or near its libraries.
    Absent = 2,
    /// It lacks a function that is needed: `detail`.
    TooOld = 3,
    /// Somebody else has subscribed (CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, 39).
    Busy = 4,
    /// There is no driver, or it is not initialised (15, 999).
    NoDriver = 5,
    /// A call failed: its name in `detail`, what it returned in `code`.
    Refused = 6,
    /// Left to the program's own profiler (`--gpu-yield`).
    Yielded = 7,
    /// GPU times are not CUPTI's own in our clock but calibrated against it; `code` is the largest
    /// error in nanoseconds.
    Calibrated = 8,
    /// Records of one kind cannot be had: the kind in `code`, why in `detail`.
    Partial = 9,
}

/// What a GPU did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GpuRecord {
    /// Ran a kernel.
    Kernel = 1,
    /// Copied memory.
    Memcpy = 2,
    /// Filled memory.
    Memset = 3,
    /// Copied memory from one device to another.
    PeerCopy = 4,
}

/// Whose function was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ApiLayer {
    /// libcuda's.
    Driver = 1,
    /// libcudart's.
    Runtime = 2,
}

/// Everything that the injected library says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingRecord {
    /// Part of a text.
    Text(TextPiece),
    /// A Python frame, as a node of the tree of all stacks: named once, its caller before it.
    Frame {
        /// Names it, from 1.
        id: u32,
        /// The frame that called it; 0: none is recorded.
        parent: u32,
        /// Name of the function, qualified where the interpreter has that.
        function: TextId,
        /// `co_filename`.
        file: TextId,
        /// Line that is executed; 0: not known.
        line: u32,
    },
    /// An interpreter was found in the process.
    Interpreter {
        /// When.
        at_ns: u64,
        /// What `Py_GetVersion` says.
        version: TextId,
        /// The file that holds it.
        file: TextId,
        /// Built without the global interpreter lock.
        free_threaded: bool,
    },
    /// Settings of the collector: new or changed.
    Settings {
        /// When they were read.
        at_ns: u64,
        /// Interpreter id.
        interpreter: i64,
        /// `gc.get_threshold()`.
        thresholds: [i32; 3],
        /// `gc.isenabled()`.
        enabled: bool,
    },
    /// A collection begins.
    PauseBegin {
        /// When `gc.callbacks` was told.
        at_ns: u64,
        /// Thread.
        tid: u32,
        /// Generation, as told.
        generation: u8,
        /// Interpreter id.
        interpreter: i64,
    },
    /// A collection ended.
    Pause {
        /// From one call of our callback to the other.
        interval: TimeInterval,
        /// Thread.
        tid: u32,
        /// Generation, as told.
        generation: u8,
        /// Interpreter id.
        interpreter: i64,
        /// Objects freed.
        collected: u64,
        /// Objects that could not be.
        uncollectable: u64,
        /// Innermost Python frame; 0: none.
        frame: u32,
        /// The interpreter was ending: what is registered with `atexit` had run.
        at_exit: bool,
    },
    /// A hook in the interpreter was put in, taken out, ...
    Hook {
        /// When.
        at_ns: u64,
        /// What happened.
        state: HookState,
        /// Interpreter id.
        interpreter: i64,
        /// In words, or [`NO_TEXT`].
        detail: TextId,
        /// Collections missed.
        count: u64,
    },
    /// Work of a GPU.
    Gpu {
        /// On the GPU.
        interval: TimeInterval,
        /// What.
        work: GpuRecord,
        /// `CUpti_ActivityMemcpyKind` of a copy (1 HtoD, 2 DtoH, 8 DtoD, ...).
        copy_kind: u8,
        /// Device.
        device: u32,
        /// Context.
        context: u32,
        /// Stream.
        stream: u32,
        /// Names the call that asked for it.
        correlation: u32,
        /// Of a copy or fill; 0 of a kernel.
        bytes: u64,
        /// Name of a kernel, as the compiler mangled it.
        name: TextId,
        /// The graph that it is part of; 0: none.
        graph: u32,
    },
    /// A thread, or a stream, waited.
    Sync {
        /// When.
        interval: TimeInterval,
        /// `CUpti_ActivitySynchronizationType`: 1 event, 2 stream for event, 3 stream, 4 context.
        kind: u8,
        /// Names the call.
        correlation: u32,
        /// Context.
        context: u32,
        /// Stream that waits or is waited for; `u32::MAX`: all.
        stream: u32,
        /// Event that is waited for.
        event: u32,
    },
    /// An event was recorded into a stream.
    Event {
        /// Names the call.
        correlation: u32,
        /// Context.
        context: u32,
        /// Stream.
        stream: u32,
        /// The event.
        event: u32,
    },
    /// A call.
    Api {
        /// From entry to return.
        interval: TimeInterval,
        /// Whose function.
        layer: ApiLayer,
        /// Thread.
        tid: u32,
        /// Names the GPU's work that it asked for.
        correlation: u32,
        /// Number of the function (cupti_runtime_cbid.h, cupti_driver_cbid.h).
        function: u32,
        /// Its name, where CUPTI tells it.
        name: TextId,
    },
    /// CUPTI, or the driver for it, kept a thread busy.
    Overhead {
        /// When.
        interval: TimeInterval,
        /// `CUpti_ActivityOverheadKind`; 6 << 16: the launch queue was full.
        kind: u32,
    },
    /// CUPTI began, failed, ...
    Cupti {
        /// When.
        at_ns: u64,
        /// What happened.
        state: CuptiState,
        /// See [`CuptiState`].
        code: i64,
        /// See [`CuptiState`].
        detail: TextId,
    },
    /// CUPTI dropped records.
    Dropped {
        /// When that was seen.
        at_ns: u64,
        /// How many since the last time.
        count: u64,
    },
    /// All GPU work that had ended by then is in the ring, or counted as lost.
    Flushed {
        /// When.
        at_ns: u64,
    },
}

impl RingRecord {
    /// Under which kind its loss is counted. The begin of a collection is not: its end says all of it again.
    #[must_use]
    pub fn lost_kind(&self) -> Option<LostKind> {
        Some(match self {
            Self::PauseBegin { .. } => return None,
            Self::Pause { .. } => LostKind::Pauses,
            Self::Gpu { .. } | Self::Sync { .. } | Self::Event { .. } => LostKind::GpuWork,
            Self::Api { .. } | Self::Overhead { .. } => LostKind::Calls,
            _ => LostKind::Descriptions,
        })
    }
}

impl HookState {
    fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Installed,
            Self::Restored,
            Self::GivenUp,
            Self::Failed,
            Self::CountingAllocations,
            Self::NotCountingAllocations,
            Self::Bypassed,
        ]
        .into_iter()
        .find(|state| *state as u8 == byte)
    }
}

impl CuptiState {
    fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Recording,
            Self::Absent,
            Self::TooOld,
            Self::Busy,
            Self::NoDriver,
            Self::Refused,
            Self::Yielded,
            Self::Calibrated,
            Self::Partial,
        ]
        .into_iter()
        .find(|state| *state as u8 == byte)
    }
}

impl GpuRecord {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Kernel, Self::Memcpy, Self::Memset, Self::PeerCopy]
            .into_iter()
            .find(|work| *work as u8 == byte)
    }
}

impl ApiLayer {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Driver, Self::Runtime]
            .into_iter()
            .find(|layer| *layer as u8 == byte)
    }
}
