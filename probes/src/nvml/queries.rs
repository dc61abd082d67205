//! The queried values: the NVML function for each, and the meaning of its failure.

use gctrace_event::{GpuDevice, GpuProcess, GpuSample};
use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::{NvmlError as Code, nvml_sym, nvml_try};
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use std::collections::BTreeMap;
use strum::IntoStaticStr;

/// `NVML_DEVICE_MIG_ENABLE` (nvml.h).
const MIG_ENABLED: u32 = 1;

/// Names of the throttle reason bits (`nvmlClocksThrottleReason...`, in nvml.h of driver 555 and
/// later `nvmlClocksEventReason...`).
const REASONS: [(ThrottleReasons, &str); 9] = [
    (ThrottleReasons::GPU_IDLE, GpuSample::IDLE),
    (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, GpuSample::CLOCKS_SETTING),
    (ThrottleReasons::SW_POWER_CAP, "sw_power_cap"),
    (ThrottleReasons::HW_SLOWDOWN, "hw_slowdown"),
    (ThrottleReasons::SYNC_BOOST, "sync_boost"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "sw_thermal_slowdown"),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "hw_thermal_slowdown"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "hw_power_brake_slowdown"),
    (ThrottleReasons::DISPLAY_CLOCK_SETTING, GpuSample::DISPLAY_SETTING),
];

/// A value queried of a GPU, in the order of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, IntoStaticStr)]
#[strum(const_into_str)]
pub(super) enum NvmlQuery {
    /// Utilization: shares of time with kernels, and with memory accesses.
    #[strum(serialize = "utilization")]
    Utilization,
    /// Memory in use.
    #[strum(serialize = "memory in use")]
    Memory,
    /// Power draw.
    #[strum(serialize = "power")]
    Power,
    /// SM clock.
    #[strum(serialize = "SM clock")]
    SmClock,
    /// Memory clock.
    #[strum(serialize = "memory clock")]
    MemoryClock,
    /// Throttle reasons.
    #[strum(serialize = "throttle reasons")]
    Throttling,
    /// Memory by process.
    #[strum(serialize = "memory by process")]
    Processes,
    /// PCIe throughput: two calls of 20 ms each, while the driver counts.
    #[strum(serialize = "PCIe throughput")]
    Pcie,
}

impl NvmlQuery {
    /// The queries that are cheap.
    pub(super) const EACH_TIME: [Self; 6] = [
        Self::Utilization,
        Self::Memory,
        Self::Power,
        Self::SmClock,
        Self::MemoryClock,
        Self::Throttling,
    ];

    /// Queries the GPU and stores the value in the sample.
    pub(super) fn query(self, device: &Device<'_>, sample: &mut GpuSample) -> Result<(), Code> {
        match self {
            Self::Utilization => {
                let rates = device.utilization_rates()?;
                sample.utilization_percent = Some(rates.gpu);
                sample.memory_utilization_percent = Some(rates.memory);
            }
            Self::Memory => sample.memory_used_bytes = Some(memory(device)?.used),
            Self::Power => sample.power_mw = Some(device.power_usage()?),
            Self::SmClock => sample.sm_clock_mhz = Some(device.clock_info(Clock::SM)?),
            Self::MemoryClock => {
                sample.memory_clock_mhz = Some(device.clock_info(Clock::Memory)?);
            }
            Self::Throttling => sample.throttle_reasons = Some(throttle_reasons(device)?),
            Self::Processes => sample.processes = Some(processes(device)?),
            Self::Pcie => {
                sample.pcie_rx_kb_per_s = Some(device.pcie_throughput(PcieUtilCounter::Receive)?);
                sample.pcie_tx_kb_per_s = Some(device.pcie_throughput(PcieUtilCounter::Send)?);
            }
        }
        Ok(())
    }
}

/// Classification of a failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum QueryFailure {
    /// Permanent on this device; with the reason.
    Never(&'static str),
    /// Temporary; with the reason.
    Now(String),
    /// The device, or all of NVML, is gone.
    Lost(String),
}

impl From<Code> for QueryFailure {
    fn from(code: Code) -> Self {
        match code {
            Code::NotSupported => Self::Never("the device does not support it"),
            Code::FunctionNotFound | Code::FailedToLoadSymbol(_) => {
                Self::Never("the driver's library has no such function")
            }
            Code::NoPermission => Self::Never("no permission"),
            Code::GpuLost => Self::Lost("it is lost; see: sudo dmesg | grep Xid".to_owned()),
            Code::ResetRequired => {
                Self::Lost("it needs a reset: sudo nvidia-smi --gpu-reset".to_owned())
            }
            Code::Uninitialized | Code::DriverNotLoaded | Code::LibRmVersionMismatch => {
                Self::Lost(code.to_string())
            }
            other => Self::Now(format!("for now: {other}")),
        }
    }
}

/// Describes a GPU; values that it does not report are absent.
pub(super) fn describe(device: &Device<'_>, index: u32, driver: Option<String>) -> GpuDevice {
    GpuDevice {
        index,
        at_ns: 0,
        uuid: device.uuid().ok(),
        name: device.name().ok(),
        memory_total_bytes: memory(device).ok().map(|memory| memory.total),
        driver,
        mig: device.mig_mode().is_ok_and(|mode| mode.current == MIG_ENABLED),
    }
}

#[derive(Clone, Copy)]
struct MemoryUse {
    total: u64,
    used: u64,
}

/// Uses version 2 of the call (drivers from 510 on), or else version 1.
fn memory(device: &Device<'_>) -> Result<MemoryUse, Code> {
    match device.memory_info() {
        Ok(info) => Ok(MemoryUse { total: info.total, used: info.used }),
        Err(Code::FailedToLoadSymbol(_) | Code::FunctionNotFound) => memory_first_version(device),
        Err(code) => Err(code),
    }
}

fn memory_first_version(device: &Device<'_>) -> Result<MemoryUse, Code> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    // SAFETY: the handle belongs to this library, and the library outlives `device`. The structure is three integers:
    // zeros are valid, and the function writes all of them.
    let (code, info) = unsafe {
        let mut info = std::mem::zeroed();
        (function(device.handle(), &mut info), info)
    };
    nvml_try(code)?;
    Ok(MemoryUse { total: info.total, used: info.used })
}

fn throttle_reasons(device: &Device<'_>) -> Result<Vec<String>, Code> {
    let bits = match device.current_throttle_reasons() {
        Err(Code::FailedToLoadSymbol(_) | Code::FunctionNotFound) => event_reasons(device)?,
        answer => answer?,
    };
    let names = REASONS.iter().filter(|(reason, _)| bits.contains(*reason));
    Ok(names.map(|(_, name)| (*name).to_owned()).collect())
}

/// The same under its newer name, in case a driver drops the old one.
fn event_reasons(device: &Device<'_>) -> Result<ThrottleReasons, Code> {
    let library = device.nvml().lib();
    let function = nvml_sym(library.nvmlDeviceGetCurrentClocksEventReasons.as_ref())?;
    let mut bits = 0;
    // SAFETY: the handle belongs to this library, and the library outlives `device`.
    let code = unsafe { function(device.handle(), &mut bits) };
    nvml_try(code)?;
    Ok(ThrottleReasons::from_bits_truncate(bits))
}

/// Uses version 3 of the call (drivers from 510 on), or else version 2. NVML reports the MIG instances of a GPU
/// separately; they are summed here.
fn processes(device: &Device<'_>) -> Result<Vec<GpuProcess>, Code> {
    let answer = match device.running_compute_processes() {
        Err(Code::FailedToLoadSymbol(_) | Code::FunctionNotFound) => {
            device.running_compute_processes_v2()?
        }
        answer => answer?,
    };
    let mut by_pid: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for ProcessInfo { pid, used_gpu_memory, .. } in answer {
        let sum = by_pid.entry(pid).or_default();
        if let UsedGpuMemory::Used(bytes) = used_gpu_memory {
            gctrace_units::add_to(sum.get_or_insert(0), bytes);
        }
    }
    Ok(by_pid.into_iter().map(|(pid, memory_bytes)| GpuProcess { pid, memory_bytes }).collect())
}
