//! The parts of a report about NVML samples, and about CUDA, NCCL and torch's device memory.

use super::Basis;
use schemars::JsonSchema;
use serde::Serialize;

/// NVML samples of one GPU in one trace. Context for the pauses rather than evidence: a utilization
/// covers a sample period of 1/6 s to 1 s, which is too long to show a gap as short as a pause.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GpuReport {
    /// Always measured: the samples are the driver's (NVML).
    pub basis: Basis,
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// NVML's index of the GPU on its host, from 0.
    pub index: u32,
    /// UUID of the GPU (`GPU-...`); `null` if unknown.
    pub uuid: Option<String>,
    /// Product name of the GPU, as NVML reports it; `null` if unknown.
    pub name: Option<String>,
    /// Version of the driver; `null` if unknown.
    pub driver: Option<String>,
    /// Whether the GPU is partitioned by MIG.
    pub mig: bool,
    /// Number of NVML samples of this GPU in the trace.
    pub samples: u64,
    /// Time from the first to the last sample, in ns.
    pub covered_ns: u64,
    /// Share of the sample period in which any kernel ran, including kernels that only wait, 0 to
    /// 1; `null` if no sample has it.
    pub utilization_ratio: Option<GpuFigure>,
    /// Share of the sample period in which device memory was accessed, 0 to 1; `null` if no sample
    /// has it.
    pub memory_utilization_ratio: Option<GpuFigure>,
    /// Memory used by all processes, in bytes; `null` if no sample has it.
    pub memory_used_bytes: Option<GpuFigure>,
    /// Memory of the GPU, in bytes; `null` if unknown.
    pub memory_total_bytes: Option<u64>,
    /// Power draw in W; `null` if no sample has it.
    pub power_w: Option<GpuFigure>,
    /// Clock of the streaming multiprocessors in MHz; `null` if no sample has it.
    pub sm_clock_mhz: Option<GpuFigure>,
    /// Clock of the memory in MHz; `null` if no sample has it.
    pub memory_clock_mhz: Option<GpuFigure>,
    /// Data received over PCIe, in the driver's KB per second, measured over 20 ms at most once a
    /// second; `null` if no sample has it.
    pub pcie_rx_kb_per_s: Option<GpuFigure>,
    /// Data sent over PCIe, in the driver's KB per second, measured over 20 ms at most once a
    /// second; `null` if no sample has it.
    pub pcie_tx_kb_per_s: Option<GpuFigure>,
    /// Share of samples with clocks reduced by power, heat or another GPU (not by idleness or a
    /// setting), 0 to 1; `null` if no sample contains throttle reasons.
    pub throttled_ratio: Option<f64>,
    /// All throttle reasons seen, the most frequent first.
    pub throttle_reasons: Vec<ThrottleShare>,
    /// Processes with memory on the GPU, the largest first.
    pub processes: Vec<GpuProcessReport>,
}

/// Statistics of one figure over all samples with a value; unit as in its name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GpuFigure {
    /// Number of samples with a value.
    pub samples: u64,
    /// Mean of the samples with a value, not weighted by time.
    pub mean: f64,
    /// Smallest value among the samples, in the same unit.
    pub min: f64,
    /// Largest value among the samples, in the same unit.
    pub max: f64,
}

/// How often one reason reduced the clocks.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ThrottleShare {
    /// NVML's name of the reason, for example `sw_power_cap`.
    pub reason: String,
    /// Share of the samples with throttle reasons, 0 to 1.
    pub ratio: f64,
    /// Whether it counts as throttling; `gpu_idle` and settings do not.
    pub throttling: bool,
}

/// A process with memory on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GpuProcessReport {
    /// Process id on the host, as the driver reports it.
    pub pid: u32,
    /// Rank in a distributed job; `null` if unknown.
    pub rank: Option<u32>,
    /// Whether gctrace recorded the process in this trace, not only its use of the GPU.
    pub recorded: bool,
    /// Largest amount of memory of the process, in bytes; `null` if the driver does not report it.
    pub memory_peak_bytes: Option<u64>,
}

/// CUDA and NCCL calls on the CPU, over all traces. They do not show when the GPU did the work.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
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
    /// Number of pauses that freed device memory, once for each device; in-process of full collections.
    pub pauses_that_freed: u64,
    /// Number of backward passes: outermost calls of `torch::autograd::Engine::execute`.
    pub backward_passes: u64,
    /// Time in backward passes, in ns.
    pub backward_ns: u64,
}

/// Calls of one function; of nested calls only the outermost counts.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
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
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct DeviceMemoryReport {
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// Process id: on the host if gctrace recorded the process, otherwise as the trace states it.
    pub pid: u32,
    /// Index of the device in the process.
    pub device: i8,
    /// Largest amount allocated to the program, in bytes, from at most one sample per millisecond; in-process
    /// from those at full collections and after `empty_cache()`.
    pub peak_allocated_bytes: u64,
    /// Largest amount reserved from the driver, in bytes, from the same samples.
    pub peak_reserved_bytes: u64,
    /// Device memory freed by collecting threads during their pauses, in bytes; in-process during those full
    /// collections that were measured. `null` if unknown.
    pub freed_in_pauses_bytes: Option<u64>,
}
