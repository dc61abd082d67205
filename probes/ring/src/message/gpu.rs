//! GPU work, as CUPTI records it.

use super::messages::{messages, packed};
use super::{TextId, TimeInterval};
use crate::LostKind::{Calls, Descriptions, GpuWork};
use crate::RingRole;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// State of recording by CUPTI, and what `code` and `detail` contain in it
/// ([`GpuMessage::Cupti`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes, KnownLayout, TryFromBytes)]
#[repr(u8)]
pub enum CuptiState {
    /// GPU work is recorded from now on; `code` is CUPTI's version, `detail` its file.
    Recording = 1,
    /// There is no libcupti in the process or near its libraries.
    Absent = 2,
    /// It lacks a required function: `detail`.
    TooOld = 3,
    /// Another library has subscribed (CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, 39).
    Busy = 4,
    /// There is no driver, or it is not initialized (15, 999).
    NoDriver = 5,
    /// A call failed: its name in `detail`, its result in `code`.
    Refused = 6,
    /// Left to the program's own profiler (`--gpu-yield`).
    Yielded = 7,
    /// GPU timestamps are not CUPTI's own in our clock but calibrated against it; `code` is the
    /// largest error in nanoseconds.
    Calibrated = 8,
    /// Records of one kind are unavailable: the kind in `code`, the reason in `detail`.
    Partial = 9,
}

/// Kind of GPU operation, as CUPTI distinguishes them: a copy between devices is a kind of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes, KnownLayout, TryFromBytes)]
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
    /// Had the host run a function while its stream waited: no work of the device.
    HostFunction = 5,
}

/// API layer of a CUDA function; decides the meaning of its CUPTI function id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes, KnownLayout, TryFromBytes)]
#[repr(u8)]
pub enum ApiLayer {
    /// The driver, libcuda.
    Driver = 1,
    /// The runtime, libcudart.
    Runtime = 2,
}

packed! {
    /// An operation of a stream, as CUPTI records it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RingGpuOp {
        /// When it ran, on the GPU.
        pub interval: TimeInterval,
        /// Whether it was a kernel, a copy, a fill or a function of the host.
        pub work: GpuRecord,
        /// `CUpti_ActivityMemcpyKind` of a copy (1 HtoD, 2 DtoH, 8 DtoD, ...).
        pub copy_kind: u8,
        /// Number of the device, as CUDA counts a process's devices.
        pub device: u32,
        /// Id of its context, as CUPTI numbers them.
        pub context: u32,
        /// Id of its stream, as CUPTI numbers them.
        pub stream: u32,
        /// Correlation id of the call that enqueued it.
        pub correlation: u32,
        /// Size of a copy or fill in bytes; 0 for others.
        pub bytes: u64,
        /// Mangled name of a kernel; [`NO_TEXT`](super::NO_TEXT) for others.
        pub name: TextId,
        /// Id of the graph that contains it; 0: none.
        pub graph: u32,
    }

    /// A CUDA call, as CUPTI records it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RingCall {
        /// From the entry to the return, on the calling thread.
        pub interval: TimeInterval,
        /// API layer that its function belongs to.
        pub layer: ApiLayer,
        /// Kernel id of the calling thread; 0: unknown.
        pub tid: u32,
        /// Correlation id, shared with the GPU operations it enqueued.
        pub correlation: u32,
        /// Id of the function in its layer (cupti_runtime_cbid.h, cupti_driver_cbid.h).
        pub function: u32,
        /// Its name, if CUPTI reports it.
        pub name: TextId,
    }

    /// A wait of a thread or of a stream, as CUPTI records it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RingSync {
        /// When the thread waited, or enqueued the wait.
        pub interval: TimeInterval,
        /// `CUpti_ActivitySynchronizationType`: 1 event, 2 stream for event, 3 stream, 4 context.
        pub kind: u8,
        /// Correlation id of the call that waits.
        pub correlation: u32,
        /// Id of its context, as CUPTI numbers them.
        pub context: u32,
        /// Stream that waits or is waited for; `u32::MAX`: all.
        pub stream: u32,
        /// Id of the event that is waited for.
        pub event: u32,
    }
}

messages! {
    /// Messages in the ring of a process's GPU work.
    pub enum GpuMessage in RingRole::Gpu {
        /// A text, sent before its first use.
        1 [Descriptions] Text {
            /// Its number, from 1; used once in a ring.
            id: TextId,
            /// Itself.
            text: Box<str>,
        }
        /// An operation of a GPU.
        2 [GpuWork] Gpu(op: RingGpuOp)
        /// A thread, or a stream, waited.
        3 [GpuWork] Sync(wait: RingSync)
        /// An event was recorded in a stream.
        4 [GpuWork] Event {
            /// Correlation id of the call.
            correlation: u32,
            /// Context id.
            context: u32,
            /// Stream id.
            stream: u32,
            /// Event id.
            event: u32,
        }
        /// A CUDA call.
        5 [Calls] Api(call: RingCall)
        /// CUPTI, or the driver for it, kept a thread busy.
        6 [Calls] Overhead {
            /// Interval of the overhead.
            interval: TimeInterval,
            /// `CUpti_ActivityOverheadKind`; 6 << 16: the launch queue was full.
            kind: u32,
        }
        /// The state of CUPTI recording changed.
        7 [Descriptions] Cupti {
            /// Time of the change.
            at_ns: u64 as time,
            /// The new state.
            state: CuptiState,
            /// See [`CuptiState`].
            code: i64,
            /// See [`CuptiState`].
            detail: TextId,
        }
        /// CUPTI dropped records.
        8 [Descriptions] Dropped {
            /// Time when this was noticed.
            at_ns: u64 as time,
            /// Number since the last such message.
            count: u64,
        }
        /// All GPU operations that had ended by then are in the ring, or counted as lost.
        9 [Descriptions] Flushed {
            /// Time of the flush.
            at_ns: u64 as time,
        }
    }
}
