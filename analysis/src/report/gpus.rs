//! The part of a report about how the GPUs did.

use super::Basis;
use schemars::JsonSchema;
use serde::Serialize;

/// NVML's samples of one GPU in one trace. Context for the pauses, not evidence about them: a
/// utilization covers a window of 1/6 s to 1 s, so a gap as long as a pause cannot be seen in it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GpuReport {
    /// Measured by the driver.
    pub basis: Basis,
    /// Index of its trace in `traces`.
    pub trace: usize,
    /// NVML's index.
    pub index: u32,
    /// Its identity, `GPU-...`.
    pub uuid: Option<String>,
    /// Product name.
    pub name: Option<String>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// Split into several by MIG.
    pub mig: bool,
    /// Samples taken.
    pub samples: u64,
    /// From the first to the last.
    pub covered_ns: u64,
    /// Share of time with any kernel running (that of one which only waits included).
    pub utilization_ratio: Option<GpuFigure>,
    /// Share of time in which device memory was accessed.
    pub memory_utilization_ratio: Option<GpuFigure>,
    /// Memory in use by all processes, in bytes.
    pub memory_used_bytes: Option<GpuFigure>,
    /// Its memory, in bytes.
    pub memory_total_bytes: Option<u64>,
    /// Power draw in watts.
    pub power_w: Option<GpuFigure>,
    /// Clock of the multiprocessors in MHz.
    pub sm_clock_mhz: Option<GpuFigure>,
    /// Clock of the memory in MHz.
    pub memory_clock_mhz: Option<GpuFigure>,
    /// Received over PCIe, in the driver's KB per second, over 20 ms once a second at most.
    pub pcie_rx_kb_per_s: Option<GpuFigure>,
    /// Sent over PCIe, likewise.
    pub pcie_tx_kb_per_s: Option<GpuFigure>,
    /// Share of samples with clocks held down by power, heat or another GPU; not by idleness or a
    /// setting.
    pub throttled_ratio: Option<f64>,
    /// Every reason for low clocks that was met, the most frequent first.
    pub throttle_reasons: Vec<ThrottleShare>,
    /// Processes with memory on it, the largest first.
    pub processes: Vec<GpuProcessReport>,
}

/// A figure over all samples that have it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GpuFigure {
    /// Samples that have it.
    pub samples: u64,
    /// Mean of them.
    pub mean: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

/// How often a reason held the clocks down.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ThrottleShare {
    /// NVML's name of it, for example `sw_power_cap`.
    pub reason: String,
    /// Share of the samples that tell reasons.
    pub ratio: f64,
    /// It holds clocks down; `gpu_idle` and settings do not count as throttling.
    pub throttling: bool,
}

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GpuProcessReport {
    /// Process id on the host.
    pub pid: u32,
    /// Rank in a distributed job, where the trace says it.
    pub rank: Option<u32>,
    /// Whether it is one that was recorded.
    pub recorded: bool,
    /// Most memory that it had, in bytes; absent where the driver does not tell.
    pub memory_peak_bytes: Option<u64>,
}
