//! The effect of a call of CUDA, HIP or Level Zero on a schedule, by its name.
//!
//! The names are functions of the driver, the runtime and NCCL, as CUPTI and gctrace's probes write
//! them; suffixes of ABI variants (`_v2`, `_ptsz`, `_v3020`) are ignored.

use super::idle::IdleCause;
use bitcode::{Decode, Encode};
use gctrace_event::{GpuApi, is_launch};

/// The effect of a call on streams and on the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub enum CallEffect {
    /// Puts one operation into a stream: a kernel.
    Launch,
    /// Puts a graph of operations into a stream.
    GraphLaunch,
    /// Copies or sets memory; whether it blocks depends on its operands.
    Copy,
    /// Blocks until a stream is empty.
    StreamSynchronize,
    /// Blocks until a device or context is empty.
    DeviceSynchronize,
    /// Blocks until an event has happened.
    EventSynchronize,
    /// Puts an event into a stream.
    EventRecord,
    /// Makes a stream wait for an event.
    StreamWaitEvent,
    /// Asks whether a stream or an event is done; threads that only do this poll.
    Query,
    /// Reserves or frees memory; freeing may wait for the device.
    Memory,
    /// A collective of NCCL.
    Collective,
    /// Any other call.
    Other,
}

/// Functions of CUDA and HIP, then of Unified Runtime and Level Zero.
const COPIES: [&str; 5] =
    ["Memcpy", "Memset", "EnqueueUSM", "EnqueueMem", "CommandListAppendMemory"];
const STREAM_WAITS: [&str; 5] = [
    "StreamSynchronize",
    "QueueFinish",
    "CommandQueueSynchronize",
    "CommandListHostSynchronize",
    "FenceHostSynchronize",
];
const EVENT_WAITS: [&str; 3] = ["EventSynchronize", "EventWait", "EventHostSynchronize"];

impl CallEffect {
    /// The kind of the call of that name.
    pub fn of(function: &str) -> Self {
        let Some((_, name)) = GpuApi::of(function) else {
            // NCCL and RCCL have the same functions.
            return if function.contains("nccl") { Self::Collective } else { Self::Other };
        };
        let starts_with =
            |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        match () {
            () if starts_with(&["GraphLaunch"]) => Self::GraphLaunch,
            () if is_launch(name) => Self::Launch,
            () if starts_with(&COPIES) => Self::Copy,
            () if starts_with(&STREAM_WAITS) => Self::StreamSynchronize,
            () if starts_with(&["DeviceSynchronize", "CtxSynchronize", "ThreadSynchronize"]) => {
                Self::DeviceSynchronize
            }
            () if starts_with(&EVENT_WAITS) => Self::EventSynchronize,
            () if starts_with(&["EventRecord", "CommandListAppendSignalEvent"]) => {
                Self::EventRecord
            }
            () if starts_with(&[
                "StreamWaitEvent",
                "EnqueueEventsWait",
                "CommandListAppendWait",
            ]) =>
            {
                Self::StreamWaitEvent
            }
            () if starts_with(&["EventQuery", "StreamQuery", "EventGetInfo"]) => Self::Query,
            () if starts_with(&["Malloc", "Free", "Mem", "Host", "USM", "ExtMalloc"]) => {
                Self::Memory
            }
            () => Self::Other,
        }
    }

    /// Whether it puts kernels into a stream.
    #[must_use]
    pub fn launches(self) -> bool {
        matches!(self, Self::Launch | Self::GraphLaunch)
    }

    /// The cause that the time in a call has.
    pub(crate) fn idle_cause(self) -> IdleCause {
        match self {
            Self::StreamSynchronize | Self::DeviceSynchronize | Self::EventSynchronize => {
                IdleCause::Synchronization
            }
            Self::Copy => IdleCause::Copy,
            Self::Memory => IdleCause::Allocation,
            Self::Launch
            | Self::GraphLaunch
            | Self::EventRecord
            | Self::StreamWaitEvent
            | Self::Query
            | Self::Collective
            | Self::Other => IdleCause::Host,
        }
    }

    /// Whether the calling thread may wait in it for work on the GPU.
    #[must_use]
    pub fn may_block(self) -> bool {
        matches!(
            self,
            Self::Copy
                | Self::StreamSynchronize
                | Self::DeviceSynchronize
                | Self::EventSynchronize
                | Self::Memory
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        for (function, kind) in [
            ("cudaLaunchKernel", CallEffect::Launch),
            ("cuLaunchKernelEx_ptsz", CallEffect::Launch),
            ("cudaGraphLaunch", CallEffect::GraphLaunch),
            ("cudaMemcpyAsync", CallEffect::Copy),
            ("cuMemsetD8Async", CallEffect::Copy),
            ("cuMemAlloc_v2", CallEffect::Memory),
            ("cudaFree", CallEffect::Memory),
            ("cudaHostAlloc", CallEffect::Memory),
            ("cudaStreamSynchronize", CallEffect::StreamSynchronize),
            ("cuCtxSynchronize", CallEffect::DeviceSynchronize),
            ("cudaEventQuery", CallEffect::Query),
            ("cudaStreamIsCapturing", CallEffect::Other),
            ("ncclAllReduce", CallEffect::Collective),
            ("hipLaunchKernel", CallEffect::Launch),
            ("hipExtModuleLaunchKernel", CallEffect::Launch),
            ("hipGraphLaunch", CallEffect::GraphLaunch),
            ("hipMemcpyWithStream", CallEffect::Copy),
            ("hipDeviceSynchronize", CallEffect::DeviceSynchronize),
            ("hipStreamSynchronize", CallEffect::StreamSynchronize),
            ("hipHostMalloc", CallEffect::Memory),
            ("hipGetDevice", CallEffect::Other),
            ("urEnqueueKernelLaunch", CallEffect::Launch),
            ("urEnqueueUSMMemcpy", CallEffect::Copy),
            ("urQueueFinish", CallEffect::StreamSynchronize),
            ("urEventWait", CallEffect::EventSynchronize),
            ("zeCommandListAppendLaunchKernel", CallEffect::Launch),
            ("zeEventHostSynchronize", CallEffect::EventSynchronize),
            ("zeMemAllocDevice", CallEffect::Memory),
            ("someOtherLibrary", CallEffect::Other),
        ] {
            assert_eq!(CallEffect::of(function), kind, "{function}");
        }
    }
}
