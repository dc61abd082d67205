//! Calls of CUDA and NCCL, torch's device memory, backward passes.

use std::borrow::Cow;

/// Whose function was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CudaLayer {
    /// The driver, libcuda.
    Driver,
    /// The runtime, libcudart.
    Runtime,
    /// NCCL.
    Nccl,
}

impl CudaLayer {
    /// `cat` of its calls; those of driver and runtime are the PyTorch profiler's.
    #[must_use]
    pub fn category(self) -> &'static str {
        match self {
            Self::Driver => "cuda_driver",
            Self::Runtime => "cuda_runtime",
            Self::Nccl => "nccl",
        }
    }

    /// The layer of that category.
    #[must_use]
    pub fn from_category(category: &[u8]) -> Option<Self> {
        [Self::Driver, Self::Runtime, Self::Nccl]
            .into_iter()
            .find(|layer| layer.category().as_bytes() == category)
    }
}

/// A call on the CPU. Of nested calls (the runtime's of the driver) the outermost is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaCall {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Whose function.
    pub layer: CudaLayer,
    /// Its name.
    pub function: Cow<'static, str>,
    /// When it was entered.
    pub start_ns: u64,
    /// When it returned. Of launches and events only the entry is recorded: the begin again.
    pub end_ns: u64,
    /// Its stream: the handle that it was given (0 is the default stream), or the PyTorch profiler's number.
    pub stream: Option<u64>,
    /// How many bytes it is about.
    pub bytes: Option<u64>,
    /// Grid of a launch, in blocks.
    pub grid: Option<[u32; 3]>,
    /// Names the operations on the GPU that it asked for, where the source knows it.
    pub correlation: Option<u64>,
    /// The error that it returned (`CUresult`, `cudaError_t`, `ncclResult_t`), if it did.
    pub error: Option<i32>,
}

impl CudaCall {
    /// Whether it puts a kernel or a graph into a stream.
    #[must_use]
    pub fn is_launch(&self) -> bool {
        self.function.starts_with("cuLaunch")
            || self.function.starts_with("cudaLaunch")
            || self.function.ends_with("GraphLaunch")
    }

    /// Time in the call in nanoseconds.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// Launches of one thread into one stream, counted instead of written one by one: those of one millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaLaunches {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Handle of the stream.
    pub stream: u64,
    /// When the first was entered.
    pub first_ns: u64,
    /// When the last was.
    pub last_ns: u64,
    /// How many.
    pub count: u64,
}

/// What torch's caching allocator holds on a device. At most one a millisecond of each device, and the last
/// before and within each pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Process.
    pub pid: u32,
    /// Thread that asked.
    pub tid: u32,
    /// When.
    pub at_ns: u64,
    /// `c10::DeviceType`; 1 is CUDA.
    pub device_type: i8,
    /// Index of the device among those of its type.
    pub device: i8,
    /// Bytes given to the program by this one event; negative: taken back.
    pub bytes: i64,
    /// Bytes that the program has.
    pub allocated: u64,
    /// Bytes that the allocator has from the driver.
    pub reserved: u64,
}

/// Device memory that was given back to torch's allocator within a pause, by the thread that collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseMemory {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Begin of the pause.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// `c10::DeviceType`.
    pub device_type: i8,
    /// Index of the device.
    pub device: i8,
    /// Bytes given back.
    pub freed_bytes: u64,
    /// In so many blocks.
    pub freed_blocks: u64,
}

/// A backward pass: the outermost call of `torch::autograd::Engine::execute` of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackwardStep {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// When it was entered.
    pub start_ns: u64,
    /// When it returned; the begin again where that cannot be seen.
    pub end_ns: u64,
}
