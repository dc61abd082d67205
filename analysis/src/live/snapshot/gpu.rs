//! GPUs, and what processes do on them.

use schemars::JsonSchema;
use serde::Serialize;

/// What one process does on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ProcessGpu {
    /// Index as the source counts: CUDA's own within the process, unless `by_nvml`.
    pub device: u32,
    /// Whether `device` is NVML's index ([`GpuFigures::index`]).
    pub by_nvml: bool,
    /// NVML's index of it, where known. CUDA may count in another order: where a process uses one device by
    /// either count they are taken for the same; where it uses several there is one entry for each index of
    /// either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvml_index: Option<u32>,
    /// Memory that torch's allocator has given to the program, in bytes, where that is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch_allocated_bytes: Option<u64>,
    /// Memory that torch's allocator has from the driver, in bytes, where that is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch_reserved_bytes: Option<u64>,
    /// Memory of the process on it in bytes (NVML).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Exact times from CUPTI, where it records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<GpuBusy>,
}

/// Exact times of one process's work on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GpuBusy {
    /// Length of the stretch of time that the next three are about: as long as the interval, but shorter where
    /// the first operation is younger, and 0 where the last is older than what is kept
    /// ([`crate::live::HISTORY_SECONDS`]).
    pub window_ns: u64,
    /// Its end: not after the last operation known, since records come from the GPU late. Where it is seconds
    /// old the process has stopped using the GPU, or its records are held back.
    pub until_ns: u64,
    /// Any operation ran.
    pub busy_ns: u64,
    /// None ran.
    pub idle_ns: u64,
    /// Idle while the process was in a pause: overlap, which need not be the cause.
    pub idle_in_gc_ns: u64,
    /// Since the first operation: any ran.
    pub total_busy_ns: u64,
    /// Since the first operation, up to the last: none ran, as far as is known. May become a little less when an
    /// operation is told late.
    pub total_idle_ns: u64,
    /// Of `total_idle_ns`: the process was in a pause. Likewise.
    pub total_idle_in_gc_ns: u64,
}

/// One GPU as NVML tells of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct GpuFigures {
    /// NVML's index.
    pub index: u32,
    /// Product name, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Part of the driver's last sample period in which any kernel ran, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u32>,
    /// Memory in use in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    /// Memory that it has in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// When NVML was asked.
    pub at_ns: u64,
}
