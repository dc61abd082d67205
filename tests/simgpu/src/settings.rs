//! The simulator's settings, from the environment. Read once per process.

use crate::core::HardwareTiming;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

/// A fault that the simulator injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimFault {
    /// `cuptiSubscribe` reports that another library has subscribed (39).
    SubscribeBusy,
    /// CUPTI calls fail with 15, `CUPTI_ERROR_NOT_INITIALIZED`.
    Cupti15,
    /// CUPTI calls fail with 999, `CUPTI_ERROR_UNKNOWN`.
    Cupti999,
    /// CUPTI provides no events and no synchronizations: enabling them fails with 21,
    /// `CUPTI_ERROR_INVALID_KIND`.
    CuptiPartial,
    /// Every tenth activity record is dropped and counted as dropped.
    DroppedRecords,
    /// CUPTI's timestamps ignore the registered callback: they stay on CLOCK_REALTIME.
    WrongClock,
    /// Every hundredth kernel record never gets its end: it stays 0.
    NeverCompleting,
    /// The process is killed by SIGSEGV in an exit handler.
    CrashAtExit,
    /// `nvmlInit` fails with 9, `NVML_ERROR_DRIVER_NOT_LOADED`.
    NoNvml,
    /// After ten utilization queries NVML returns 15, `NVML_ERROR_GPU_IS_LOST`.
    NvmlLost,
}

impl FromStr for SimFault {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Ok(match name {
            "subscribe-busy" => Self::SubscribeBusy,
            "cupti-15" => Self::Cupti15,
            "cupti-999" => Self::Cupti999,
            "cupti-partial" => Self::CuptiPartial,
            "dropped-records" => Self::DroppedRecords,
            "wrong-clock" => Self::WrongClock,
            "never-completing" => Self::NeverCompleting,
            "crash-at-exit" => Self::CrashAtExit,
            "no-nvml" => Self::NoNvml,
            "nvml-lost" => Self::NvmlLost,
            _ => return Err(()),
        })
    }
}

/// See the table in the crate's documentation.
#[derive(Clone, Debug)]
pub(crate) struct SimSettings {
    pub(crate) devices: u32,
    pub(crate) memory: u64,
    pub(crate) timing: HardwareTiming,
    pub(crate) kernel_ns: u64,
    /// Between host and device, bytes per nanosecond.
    pub(crate) copy_bytes_per_ns: u64,
    /// Between ranks, bytes per nanosecond.
    pub(crate) link_bytes_per_ns: u64,
    pub(crate) log: Option<OsString>,
    pub(crate) log_every_ns: u64,
    pub(crate) shared: PathBuf,
    pub(crate) faults: Vec<SimFault>,
}

impl SimSettings {
    /// `beside`: the folder of the libraries.
    pub(crate) fn from_environment(beside: &std::path::Path) -> Self {
        let shared = env::var_os("SIMGPU_SHARED")
            .filter(|path| !path.is_empty())
            .map_or_else(|| beside.join("shared"), PathBuf::from);
        let faults = env::var("SIMGPU_FAULT").unwrap_or_default();
        Self {
            devices: number("SIMGPU_DEVICES", 1).clamp(1, 64) as u32,
            memory: number("SIMGPU_MEMORY", 16 << 30),
            timing: HardwareTiming {
                latency_ns: number("SIMGPU_LATENCY_NS", 5_000),
                gap_ns: number("SIMGPU_GAP_NS", 1_000),
            },
            kernel_ns: number("SIMGPU_KERNEL_NS", 10_000),
            copy_bytes_per_ns: number("SIMGPU_COPY_GBPS", 12).max(1),
            link_bytes_per_ns: number("SIMGPU_LINK_GBPS", 100).max(1),
            log: env::var_os("SIMGPU_LOG").filter(|prefix| !prefix.is_empty()),
            log_every_ns: number("SIMGPU_LOG_MS", 100).saturating_mul(1_000_000),
            shared,
            faults: faults.split(',').filter_map(|name| name.trim().parse().ok()).collect(),
        }
    }

    pub(crate) fn has(&self, fault: SimFault) -> bool {
        self.faults.contains(&fault)
    }
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|value| value.trim().parse().ok()).unwrap_or(default)
}
