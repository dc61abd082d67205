//! PyTorch's cache of device memory.

use super::TimeInterval;
use super::messages::packed;

packed! {
    /// A call of `torch.cuda.empty_cache()`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RingEmptyCache {
        /// Kernel id of the calling thread, as the process sees it.
        pub tid: u32,
        /// Number of the innermost Python frame; 0: none.
        pub frame: u32,
        /// Its time.
        pub interval: TimeInterval,
        /// Bytes that the allocator had from the driver before it, of all devices; `None` if unknown.
        pub before: Option<u64>,
        /// The same after it.
        pub after: Option<u64>,
    }

    /// Device memory that tensors had less when a collection ended than when it began.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RingPauseMemory {
        /// Its number, as the process counts them.
        pub device: u32,
        /// Kernel id of the collecting thread.
        pub tid: u32,
        /// As of the collection.
        pub interval: TimeInterval,
        /// In bytes; 0 if they had more.
        pub freed: u64,
    }

    /// Memory of a device in PyTorch's allocator.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RingCacheMemory {
        /// Its number, as the process counts them.
        pub device: u32,
        /// Kernel id of the thread that asked.
        pub tid: u32,
        /// When it was asked.
        pub at_ns: u64 as time,
        /// Bytes of tensors.
        pub allocated: u64,
        /// Bytes that the allocator has from the driver.
        pub reserved: u64,
    }
}
