//! The part of a report about CUDA, NCCL and torch's device memory.

use schemars::JsonSchema;
use serde::Serialize;

/// Calls on the CPU, over all traces. What the GPU did meanwhile is not known from them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CudaReport {
    /// Kernels and graphs put into streams, whether each was recorded or all were counted.
    pub launches: u64,
    /// The same per second between the first and the last of each trace.
    pub launches_per_s: Option<f64>,
    /// Functions by the time in them. Of launches that were counted by the millisecond there is none.
    pub functions: Vec<CudaFunction>,
    /// What torch's caching allocator held, by process and device.
    pub memory: Vec<DeviceMemoryReport>,
    /// Pauses within which device memory was given back (once for each device).
    pub pauses_that_freed: u64,
    /// Backward passes: outermost calls of `torch::autograd::Engine::execute`.
    pub backward_passes: u64,
    /// Time in them.
    pub backward_ns: u64,
}

/// Calls of one function. Of nested calls the outermost counts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CudaFunction {
    /// `cuda_driver`, `cuda_runtime` or `nccl`.
    pub category: String,
    /// Its name.
    pub name: String,
    /// Calls.
    pub count: u64,
    /// Time in them; 0 for launches and events, of which only the entry is recorded.
    pub time_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Bytes copied, filled, allocated or sent, where the function says.
    pub bytes: u64,
    /// Calls that returned an error.
    pub errors: u64,
}

/// Memory of one device in one process.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeviceMemoryReport {
    /// Index in `traces`.
    pub trace: usize,
    /// Process id on the host.
    pub pid: u32,
    /// Index of the device in the process.
    pub device: i8,
    /// Most that the program had of it, as far as recorded: at most one value a millisecond is.
    pub peak_allocated_bytes: u64,
    /// Most that the allocator had from the driver, likewise.
    pub peak_reserved_bytes: u64,
    /// Given back by collecting threads within their pauses.
    pub freed_in_pauses_bytes: u64,
}
