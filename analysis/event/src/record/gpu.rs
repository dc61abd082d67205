//! NVML samples: context for the pauses, never evidence about a single one.
//!
//! Owns the meaning of each figure. Units are NVML's own (nvml.h of driver 570); the display
//! converts them.

use super::kind::{Phase, declare};
use bitcode::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// A GPU as NVML describes it. Written once, and again, whole, when something in it changed (a new
/// driver was loaded, for example); the last one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct GpuDevice {
    /// NVML's index; samples name the GPU by it. CUDA's indices may be in another order.
    #[serde(rename = "gpu")]
    pub index: u32,
    /// When NVML was queried, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub at_ns: u64,
    /// NVML's identifier `GPU-...`, stable across reboots; `None` if not reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Product name, as NVML reports it; `None` if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Total device memory in bytes; `None` if NVML does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// Version of NVIDIA's driver; `None` if NVML does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// It is partitioned by MIG; NVML then has no utilization of the whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mig: bool,
}

declare! { GpuDevice: Phase::Meta, "gctrace_gpu", "a GPU", at: at_ns, by: "--nvml-hz" }

/// One NVML sample of one GPU; values that NVML does not report are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct GpuSample {
    /// Index of the sampled GPU, as in [`GpuDevice::index`].
    #[serde(rename = "gpu")]
    pub device: u32,
    /// Time of the sample, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub at_ns: u64,
    /// Share of the driver's last sample period (1/6 s to 1 s, by product) with a running kernel, in percent
    /// (`nvmlDeviceGetUtilizationRates`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u32>,
    /// Share of the same period with reads or writes of device memory, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_utilization_percent: Option<u32>,
    /// Memory used by all processes, in bytes; without the driver's own reserve if NVML reports that separately
    /// (drivers from 510 on).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    /// Power draw in milliwatts: of most boards the average over the last second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mw: Option<u32>,
    /// Clock of the streaming multiprocessors in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<u32>,
    /// Received over PCIe, in NVML's KB per second over 20 ms; sampled once a second at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_rx_kb_per_s: Option<u32>,
    /// Sent over PCIe, in the driver's KB per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_tx_kb_per_s: Option<u32>,
    /// Why the clocks were below the highest possible: names of NVML's
    /// `nvmlClocksThrottleReason...` in lower case; empty if they were not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle_reasons: Option<Vec<String>>,
    /// Processes with a compute context, ascending by pid; sampled once a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<GpuProcess>>,
}

declare! { GpuSample: Phase::Meta, "gctrace_gpu_sample", "a sample of a GPU", at: at_ns, spaced: Devices, by: "--nvml-hz" }

impl GpuSample {
    /// `throttle_reasons` of a GPU that has nothing to do.
    pub const IDLE: &'static str = "gpu_idle";
    /// `throttle_reasons` of clocks that were set lower by a user.
    pub const CLOCKS_SETTING: &'static str = "applications_clocks_setting";
    /// `throttle_reasons` of clocks that the display sets.
    pub const DISPLAY_SETTING: &'static str = "display_clock_setting";

    /// Whether the clocks are reduced for a reason other than idleness or a setting. `None` if NVML
    /// does not report reasons.
    #[must_use]
    pub fn throttled(&self) -> Option<bool> {
        let reasons = self.throttle_reasons.as_ref()?;
        Some(reasons.iter().any(|reason| is_throttling(reason)))
    }
}

/// Whether a reason of [`GpuSample::throttle_reasons`] is throttling rather than idleness or a
/// setting.
#[must_use]
pub fn is_throttling(reason: &str) -> bool {
    ![GpuSample::IDLE, GpuSample::CLOCKS_SETTING, GpuSample::DISPLAY_SETTING].contains(&reason)
}

/// Memory of one process on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct GpuProcess {
    /// Process id on the host, NVML's name for the process.
    pub pid: u32,
    /// Memory of the process in bytes, including its contexts; `None` if the driver does not report
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}
