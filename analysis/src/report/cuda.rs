//! The part of a report about CUDA, NCCL and torch's device memory.

use schemars::JsonSchema;
use serde::Serialize;

/// CUDA and NCCL calls on the CPU, over all traces. They do not show when the GPU did the work.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CudaReport {
    /// Number of launches of kernels and graphs, whether recorded individually or counted.
    pub launches: u64,
    /// Launches per second between the first and the last launch of each trace; `null` if unknown.
    pub launches_per_s: Option<f64>,
    /// Functions by the time in their calls, descending. Launches that were only counted are not
    /// included.
    pub functions: Vec<CudaFunction>,
    /// Memory of PyTorch's caching allocator, by process and device.
    pub memory: Vec<DeviceMemoryReport>,
    /// Number of pauses that freed device memory, once for each device.
    pub pauses_that_freed: u64,
    /// Number of backward passes: outermost calls of `torch::autograd::Engine::execute`.
    pub backward_passes: u64,
    /// Time in backward passes, in ns.
    pub backward_ns: u64,
}

/// Calls of one function; of nested calls only the outermost counts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CudaFunction {
    /// API of the function: `cuda_driver`, `cuda_runtime` or `nccl`.
    pub category: String,
    /// Name of the function, for example `cudaLaunchKernel`.
    pub name: String,
    /// Number of calls that were recorded individually.
    pub count: u64,
    /// Time in the calls, in ns; 0 for launches and events, whose return is not recorded.
    pub time_ns: u64,
    /// Length of the longest call, in ns; 0 as for `time_ns`.
    pub max_ns: u64,
    /// Bytes copied, set, allocated or sent; 0 if the function has no size.
    pub bytes: u64,
    /// Number of calls that returned an error.
    pub errors: u64,
}

/// Memory of one device in PyTorch's allocator of one process.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeviceMemoryReport {
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// Process id: on the host if gctrace recorded the process, otherwise as the trace states it.
    pub pid: u32,
    /// Index of the device in the process.
    pub device: i8,
    /// Largest amount allocated to the program, in bytes, from at most one sample per millisecond.
    pub peak_allocated_bytes: u64,
    /// Largest amount reserved from the driver, in bytes, from at most one sample per millisecond.
    pub peak_reserved_bytes: u64,
    /// Device memory freed by collecting threads during their pauses, in bytes.
    pub freed_in_pauses_bytes: u64,
}
