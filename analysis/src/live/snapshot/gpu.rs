//! GPUs and how processes use them.

use schemars::JsonSchema;
use serde::Serialize;

/// One GPU as one process uses it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ProcessGpu {
    /// Index of the device: CUDA's index within the process, or NVML's if `by_nvml`.
    pub device: u32,
    /// Whether `device` is NVML's index, as in `gpus`.
    pub by_nvml: bool,
    /// NVML's index of the device; absent if unknown. CUDA may number devices differently: if a
    /// process uses one device by either numbering, they are assumed to be the same; if it uses
    /// several, there is one entry per index of either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvml_index: Option<u32>,
    /// Memory allocated by PyTorch's allocator, in bytes; absent if it is not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch_allocated_bytes: Option<u64>,
    /// Memory that PyTorch's allocator reserved from the driver, in bytes; absent if it is not
    /// recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch_reserved_bytes: Option<u64>,
    /// Memory of the process on the GPU (NVML), in bytes; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Busy and idle time from CUPTI; absent if CUPTI does not record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<GpuBusy>,
}

/// Busy and idle time of one process on one GPU, from CUPTI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GpuBusy {
    /// Length of the interval that `busy_ns`, `idle_ns` and `idle_in_gc_ns` cover, in ns: the
    /// interval of the snapshot, or less if the first operation is more recent; 0 if the last
    /// operation is more than 60 s old.
    pub window_ns: u64,
    /// End of that interval, in ns: at most the end of the last known operation, as the GPU
    /// delivers its records late. If it is seconds old, the process no longer uses the GPU, or its
    /// records are delayed.
    pub window_end_ns: u64,
    /// Time in which any operation ran, in ns.
    pub busy_ns: u64,
    /// Time in which no operation ran, in ns.
    pub idle_ns: u64,
    /// Idle time during pauses of the process, in ns: overlap, which is not necessarily caused by
    /// them.
    pub idle_in_gc_ns: u64,
    /// Busy time since the first operation, in ns.
    pub total_busy_ns: u64,
    /// Idle time from the first to the last known operation, in ns. May decrease when the record of
    /// an operation arrives late.
    pub total_idle_ns: u64,
    /// Of `total_idle_ns`, time during pauses of the process, in ns. May decrease likewise.
    pub total_idle_in_gc_ns: u64,
}

/// The last NVML sample of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct GpuFigures {
    /// NVML's index of the GPU on the host, from 0.
    pub index: u32,
    /// Product name of the GPU, as NVML reports it; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Share of the driver's last sample period in which any kernel ran, in percent; absent if
    /// unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u32>,
    /// Memory in use, in bytes; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    /// Total memory, in bytes; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// Time of the sample, in ns.
    pub at_ns: u64,
}
