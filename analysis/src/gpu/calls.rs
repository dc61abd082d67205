//! The effect of a CUDA call on a schedule, by its name.
//!
//! The names are functions of the driver, the runtime and NCCL, as CUPTI and gctrace's probes write
//! them; suffixes of ABI variants (`_v2`, `_ptsz`, `_v3020`) are ignored.

use bitcode::{Decode, Encode};

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

impl CallEffect {
    /// The kind of the call of that name.
    #[must_use]
    pub fn of(function: &str) -> Self {
        let function = function.strip_prefix("cuda").or_else(|| function.strip_prefix("cu"));
        let Some(name) = function else {
            return Self::Collective;
        };
        let starts_with =
            |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        match () {
            () if starts_with(&["GraphLaunch"]) => Self::GraphLaunch,
            () if starts_with(&["Launch"]) => Self::Launch,
            () if starts_with(&["Memcpy", "Memset"]) => Self::Copy,
            () if starts_with(&["StreamSynchronize"]) => Self::StreamSynchronize,
            () if starts_with(&["DeviceSynchronize", "CtxSynchronize", "ThreadSynchronize"]) => {
                Self::DeviceSynchronize
            }
            () if starts_with(&["EventSynchronize"]) => Self::EventSynchronize,
            () if starts_with(&["EventRecord"]) => Self::EventRecord,
            () if starts_with(&["StreamWaitEvent"]) => Self::StreamWaitEvent,
            () if starts_with(&["EventQuery", "StreamQuery"]) => Self::Query,
            () if starts_with(&["Malloc", "Free", "Mem", "Host"]) => Self::Memory,
            () => Self::Other,
        }
    }

    /// Whether it puts kernels into a stream.
    #[must_use]
    pub fn launches(self) -> bool {
        matches!(self, Self::Launch | Self::GraphLaunch)
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
        ] {
            assert_eq!(CallEffect::of(function), kind, "{function}");
        }
    }
}
