//! CUDA and NCCL calls, torch's device memory.

use super::FrameId;
use super::kind::{Phase, declare};
use bitcode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use strum::IntoStaticStr;

/// The library of the called function.
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub enum CudaLayer {
    /// The driver, libcuda.
    Driver,
    /// The runtime, libcudart.
    #[default]
    Runtime,
    /// NCCL, libnccl.
    Nccl,
}

impl CudaLayer {
    /// `cat` of its calls; the names for driver and runtime are the PyTorch profiler's.
    #[must_use]
    pub fn category(self) -> &'static str {
        match self {
            Self::Driver => "cuda_driver",
            Self::Runtime => "cuda_runtime",
            Self::Nccl => "nccl",
        }
    }

    /// The layer with this category: [`CudaLayer::category`], the profiler's of PyTorch 1.8 to 1.11, or the same ending
    /// for another back end (`xpu_runtime`, `privateuse1_runtime`, `musa_driver`); `None` for any other.
    #[must_use]
    pub fn from_category(category: &[u8]) -> Option<Self> {
        match category {
            b"nccl" => Some(Self::Nccl),
            b"Runtime" => Some(Self::Runtime),
            _ if category.ends_with(b"_runtime") => Some(Self::Runtime),
            _ if category.ends_with(b"_driver") => Some(Self::Driver),
            _ => None,
        }
    }
}

/// The API of a call on the CPU, by the name of its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuApi {
    /// CUDA's runtime and driver, of NVIDIA; recorded by CUPTI.
    Cuda,
    /// HIP, of AMD's ROCm.
    Hip,
    /// Level Zero, for Intel's XPUs, and its callers: Unified Runtime and the predecessor of Unified Runtime.
    LevelZero,
}

impl GpuApi {
    /// The API of a function and the function's name without its prefix; `None` for functions of libraries, such as
    /// NCCL.
    #[must_use]
    pub fn of(function: &str) -> Option<(Self, &str)> {
        [
            ("cuda", Self::Cuda),
            ("cu", Self::Cuda),
            ("hip", Self::Hip),
            ("ze", Self::LevelZero),
            ("ur", Self::LevelZero),
            ("pi", Self::LevelZero),
        ]
        .into_iter()
        .find_map(|(prefix, api)| {
            let name = function.strip_prefix(prefix)?;
            let is_function = name.starts_with(|first: char| first.is_ascii_uppercase());
            if is_function { Some((api, name)) } else { None }
        })
    }
}

/// Whether a function, named without its API's prefix, puts a kernel into a stream; for a graph of kernels it is
/// `GraphLaunch`.
#[must_use]
pub fn is_launch(name: &str) -> bool {
    const LAUNCHES: [&str; 8] = [
        "Launch",
        "GraphLaunch",
        // HIP
        "ModuleLaunch",
        "ExtLaunch",
        "ExtModuleLaunch",
        "HccModuleLaunch",
        // Unified Runtime, Level Zero
        "EnqueueKernelLaunch",
        "CommandListAppendLaunch",
    ];
    LAUNCHES.iter().any(|launch| name.starts_with(launch))
}

/// A call on the CPU. If calls are nested (the runtime calls the driver), the outermost is recorded.
///
/// `Function` is the form of the function's name: the name itself in traces, its number in summaries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
pub struct CudaCall<Function = Cow<'static, str>> {
    /// Process id in the host's initial pid namespace; in other tools' traces as written there.
    #[serde(skip)]
    pub pid: u32,
    /// Kernel id of the calling thread.
    #[serde(skip)]
    pub tid: u32,
    /// Library that the function belongs to.
    #[serde(skip)]
    pub layer: CudaLayer,
    /// Name of the function, for example `cudaLaunchKernel`.
    #[serde(skip)]
    pub function: Function,
    /// Time of the entry, in ns of the trace's clock (gctrace's: CLOCK_MONOTONIC).
    #[serde(skip)]
    pub start_ns: u64,
    /// Time of the return; equal to the start for launches and events: only their entry is recorded.
    #[serde(skip)]
    pub end_ns: u64,
    /// Its stream: the handle that it was given (0 is the default stream), or the PyTorch
    /// profiler's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<u64>,
    /// How many bytes it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Grid of a launch, in blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grid: Option<[u32; 3]>,
    /// Correlation id of the GPU operations that it enqueued; `None` if the source does not know
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation: Option<u64>,
    /// The error that it returned (`CUresult`, `cudaError_t`, `ncclResult_t`), if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<i32>,
}

declare! {
    CudaCall: Phase::Slice, "cuda_runtime", "a call",
    pid: pid, tid: tid, at: start_ns, end: end_ns, spaced: Calls, by: "--cuda";
    fn title(&self) -> (&str, Cow<'_, str>) {
        (self.layer.category(), Cow::Borrowed(&self.function))
    }
}

impl<Function> CudaCall<Function> {
    /// The same call with its function named in another way.
    pub(crate) fn renamed<Other>(self, name: impl FnOnce(Function) -> Other) -> CudaCall<Other> {
        let Self { pid, tid, layer, function, start_ns, end_ns, .. } = self;
        let Self { stream, bytes, grid, correlation, error, .. } = self;
        let function = name(function);
        CudaCall {
            pid,
            tid,
            layer,
            function,
            start_ns,
            end_ns,
            stream,
            bytes,
            grid,
            correlation,
            error,
        }
    }
}

impl CudaCall {
    /// Whether it puts a kernel or a graph into a stream.
    #[must_use]
    pub fn is_launch(&self) -> bool {
        let Some((_, name)) = GpuApi::of(&self.function) else { return false };
        is_launch(name)
    }

    /// Time in the call in nanoseconds.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        gctrace_units::duration_ns(self.start_ns, self.end_ns)
    }
}

/// Launches of one thread into one stream within one millisecond, counted instead of written one by
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct CudaLaunches {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// Kernel id of the launching thread.
    #[serde(skip)]
    pub tid: u32,
    /// Entry of the first launch, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub first_ns: u64,
    /// Entry of the last launch, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub last_ns: u64,
    /// Number of launches, the first and the last included.
    pub count: u64,
    /// Handle of the stream as the calls passed it; 0 is the default stream.
    pub stream: u64,
}

declare! {
    CudaLaunches: Phase::Slice, "cuda launches", "launches",
    pid: pid, tid: tid, at: first_ns, end: last_ns, by: "--cuda"
}

/// Memory of PyTorch's caching allocator on a device. At most one per millisecond and device, and
/// the last one before and during each pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
pub struct DeviceMemory {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// Kernel id of the thread that allocated or freed.
    #[serde(skip)]
    pub tid: u32,
    /// When the allocator reported this, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub at_ns: u64,
    /// Bytes in use by the program on the device, after this event.
    #[serde(rename = "Total Allocated")]
    pub allocated: u64,
    /// Bytes that the allocator has from the driver.
    #[serde(rename = "Total Reserved")]
    pub reserved: u64,
    /// Bytes given to the program by this one event; negative: taken back.
    #[serde(rename = "Bytes")]
    pub bytes: i64,
    /// Index among the devices of its type.
    #[serde(rename = "Device Id")]
    pub device: i8,
    /// Type of the device, a `c10::DeviceType`: 1 is CUDA.
    #[serde(rename = "Device Type")]
    pub device_type: i8,
}

declare! {
    DeviceMemory: Phase::Instant("cpu_instant_event"), "[memory]", "device memory",
    pid: pid, tid: tid, at: at_ns, spaced: Memory, by: "--cuda"
}

/// Device memory returned to PyTorch's allocator during a pause: by kernel probes by the collecting thread,
/// in-process by how much less tensors had when a full collection ended than when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct PauseMemory {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// Kernel id of the collecting thread.
    #[serde(skip)]
    pub tid: u32,
    /// Start of the pause, as in [`crate::Pause::start_ns`].
    #[serde(skip)]
    pub start_ns: u64,
    /// End of the pause, as in [`crate::Pause::end_ns`].
    pub end_ns: u64,
    /// Type of the device, a `c10::DeviceType`: 1 is CUDA.
    pub device_type: i8,
    /// Index among the devices of its type.
    pub device: i8,
    /// Sum of the blocks freed, in bytes. By kernel probes a pause that freed none has no such record.
    pub freed_bytes: u64,
    /// Number of blocks freed; `None` in-process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed_blocks: Option<u64>,
}

declare! {
    PauseMemory: Phase::Meta, "gctrace_pause_memory", "a pause's memory",
    pid: pid, tid: tid, at: start_ns, spaced: Memory, by: "--cuda"
}

/// A call of `torch.cuda.empty_cache()`, by the injected library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct EmptyCache {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// Kernel id of the calling thread.
    #[serde(skip)]
    pub tid: u32,
    /// Its start, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub start_ns: u64,
    /// Its end; not before `start_ns`.
    pub end_ns: u64,
    /// Memory that PyTorch's allocator had from the driver before it, on all devices, in bytes; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_before: Option<u64>,
    /// The same after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_after: Option<u64>,
    /// The stack of the call; `None` if unknown.
    #[serde(skip)]
    pub stack: Option<FrameId>,
}

declare! {
    EmptyCache: Phase::Meta, "gctrace_empty_cache", "an empty_cache()",
    pid: pid, tid: tid, at: start_ns, end: end_ns, stack: stack, spaced: Calls
}
