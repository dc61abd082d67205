//! The state of a device.

use super::session::device;
use super::{INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, exported, session};
use crate::error::{CudaError, Status};
use crate::usage::ProcessUsage;
use crate::{c, clock, usage};

/// The shortest window that NVML documents for `utilization.gpu`.
const WINDOW_NS: u64 = 1_000_000_000 / 6;
/// Window of `nvmlDeviceGetPcieThroughput`, as documented.
const PCIE_WINDOW_NS: u64 = 20_000_000;

/// Milliwatts when idle, and the addition at full use.
const IDLE_POWER: u32 = 50_000;
const BUSY_POWER: u32 = 250_000;
/// MHz of the multiprocessors when idle and when busy, and of the memory.
const IDLE_CLOCK: u32 = 210;
const BUSY_CLOCK: u32 = 1_410;
const MEMORY_CLOCK: u32 = 1_215;

/// `nvmlClocksThrottleReasonGpuIdle`.
const THROTTLE_IDLE: u64 = 1;
/// `NVML_FI_DEV_POWER_INSTANT`.
const FIELD_POWER_INSTANT: u32 = 186;

/// `nvmlMemory_t`.
#[repr(C)]
struct MemoryV1 {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
struct ProcessV1 {
    pid: u32,
    memory: u64,
}

/// `nvmlProcessInfo_v2_t`, which the functions `_v3` use too.
#[repr(C)]
struct ProcessV2 {
    pid: u32,
    memory: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

/// `nvmlProcessUtilizationSample_t`.
#[repr(C)]
struct ProcessSample {
    pid: u32,
    timestamp_us: u64,
    sm: u32,
    memory: u32,
    encoder: u32,
    decoder: u32,
}

/// `nvmlFieldValue_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct FieldValue {
    field: u32,
    scope: u32,
    timestamp_us: i64,
    latency_us: i64,
    value_type: u32,
    result: i32,
    value: u64,
}

fn snapshots(handle: u64) -> Result<Vec<ProcessUsage>, CudaError> {
    let (device, settings) = device(handle)?;
    Ok(usage::snapshots(&settings.shared, device))
}

/// Percentage of the window in which a kernel of these processes ran.
fn percent(snapshots: &[ProcessUsage]) -> u32 {
    let now_ns = clock::now_ns();
    let busy_ns = usage::busy_ns(snapshots, now_ns - WINDOW_NS, now_ns);
    ((busy_ns * 100 + WINDOW_NS / 2) / WINDOW_NS) as u32
}

fn utilization(handle: u64, target: *mut [u32; 2]) -> Status {
    session::count_query();
    let gpu = percent(&snapshots(handle)?);
    // Time in which memory was read or written: here, the kernels' time.
    c::write(target, [gpu, gpu])
}

fn memory(handle: u64) -> Result<MemoryV1, CudaError> {
    let (_, settings) = device(handle)?;
    let used = snapshots(handle)?.iter().map(|one| one.memory).sum();
    let total = settings.memory;
    // Processes may have different settings.
    let free = total.saturating_sub(used);
    Ok(MemoryV1 { total, free, used })
}

fn memory_v2(handle: u64, target: *mut MemoryV2) -> Status {
    let MemoryV1 { total, free, used } = memory(handle)?;
    let version = c::read(target.cast::<u32>().cast_const())?;
    c::write(target, MemoryV2 { version, total, reserved: 0, free, used })
}

/// Writes as many items as the caller has room for; the protocol of NVML's lists.
fn list<T>(items: Vec<T>, count: *mut u32, target: *mut T) -> Status {
    let room = c::read(count.cast_const())?;
    let length = u32::try_from(items.len()).map_err(|_| INSUFFICIENT_SIZE)?;
    c::write(count, length)?;
    if length > room || (length > 0 && target.is_null()) {
        return Err(INSUFFICIENT_SIZE);
    }
    for (index, item) in items.into_iter().enumerate() {
        c::write(target.wrapping_add(index), item)?;
    }
    Ok(())
}

fn processes<T: From<ProcessUsage>>(handle: u64, count: *mut u32, target: *mut T) -> Status {
    let items = snapshots(handle)?.into_iter().map(T::from);
    list(items.collect(), count, target)
}

impl From<ProcessUsage> for ProcessV1 {
    fn from(usage: ProcessUsage) -> Self {
        Self { pid: usage.pid, memory: usage.memory }
    }
}

impl From<ProcessUsage> for ProcessV2 {
    fn from(usage: ProcessUsage) -> Self {
        Self {
            pid: usage.pid,
            memory: usage.memory,
            gpu_instance: u32::MAX,
            compute_instance: u32::MAX,
        }
    }
}

fn process_samples(handle: u64, target: *mut ProcessSample, count: *mut u32) -> Status {
    let timestamp_us = clock::now_ns() / 1000;
    let items: Vec<_> = snapshots(handle)?
        .into_iter()
        .map(|one| ProcessSample {
            pid: one.pid,
            timestamp_us,
            sm: percent(std::slice::from_ref(&one)),
            memory: 0,
            encoder: 0,
            decoder: 0,
        })
        .collect();
    if items.is_empty() {
        return Err(NOT_FOUND);
    }
    list(items, count, target)
}

fn power(handle: u64) -> Result<u32, CudaError> {
    Ok(IDLE_POWER + BUSY_POWER * percent(&snapshots(handle)?) / 100)
}

/// `nvmlClockType_t`: 0 graphics, 1 SM, 2 memory, 3 video.
fn clock_mhz(handle: u64, kind: u32, target: *mut u32) -> Status {
    let busy = percent(&snapshots(handle)?) > 0;
    let processors = if busy { BUSY_CLOCK } else { IDLE_CLOCK };
    match kind {
        0 | 1 | 3 => c::write(target, processors),
        2 => c::write(target, MEMORY_CLOCK),
        _ => Err(INVALID_ARGUMENT),
    }
}

fn max_clock_mhz(handle: u64, kind: u32, target: *mut u32) -> Status {
    device(handle)?;
    c::write(target, if kind == 2 { MEMORY_CLOCK } else { BUSY_CLOCK })
}

/// KB/s; `counter`: 0 what the device sends (copies to the host), 1 what it receives.
fn pcie(handle: u64, counter: u32, target: *mut u32) -> Status {
    let direction = match counter {
        0 => 2,
        1 => 1,
        _ => return Err(INVALID_ARGUMENT),
    };
    let now_ns = clock::now_ns();
    let from_ns = now_ns - PCIE_WINDOW_NS;
    let snapshots = snapshots(handle)?;
    let intervals = snapshots.iter().flat_map(|snapshot| &snapshot.intervals);
    let bytes: u128 = intervals
        .filter_map(|interval| Some((interval, interval.copied()?)))
        .filter(|(_, (_, copied_to))| *copied_to == direction)
        .map(|(interval, (bytes, _))| {
            let (start_ns, end_ns) = (interval.start_ns, interval.end_ns);
            let inside = end_ns.min(now_ns).saturating_sub(start_ns.max(from_ns));
            let whole = end_ns.saturating_sub(start_ns).max(1);
            u128::from(bytes) * u128::from(inside) / u128::from(whole)
        })
        .sum();
    let kilobytes_per_second = bytes * 1_000_000 / u128::from(PCIE_WINDOW_NS);
    c::write(target, u32::try_from(kilobytes_per_second).unwrap_or(u32::MAX))
}

fn throttle(handle: u64, target: *mut u64) -> Status {
    let idle = percent(&snapshots(handle)?) == 0;
    c::write(target, if idle { THROTTLE_IDLE } else { 0 })
}

fn fields(handle: u64, count: i32, values: *mut FieldValue) -> Status {
    device(handle)?;
    for index in 0..usize::try_from(count).map_err(|_| INVALID_ARGUMENT)? {
        let place = values.wrapping_add(index);
        let mut value = c::read(place.cast_const())?;
        value.timestamp_us = (clock::now_ns() / 1000) as i64;
        value.latency_us = 0;
        value.result = NOT_SUPPORTED.0;
        if value.field == FIELD_POWER_INSTANT {
            // NVML_VALUE_TYPE_UNSIGNED_INT.
            value.value_type = 1;
            value.value = u64::from(power(handle)?);
            value.result = 0;
        }
        c::write(place, value)?;
    }
    Ok(())
}

fn constant(handle: u64, target: *mut u32, value: u32) -> Status {
    device(handle)?;
    c::write(target, value)
}

exported! {
    fn nvmlDeviceGetUtilizationRates(handle: u64, rates: *mut [u32; 2]) => utilization(handle, rates);
    fn nvmlDeviceGetMemoryInfo(handle: u64, info: *mut MemoryV1) => c::write(info, memory(handle)?);
    fn nvmlDeviceGetMemoryInfo_v2(handle: u64, info: *mut MemoryV2) => memory_v2(handle, info);
    fn nvmlDeviceGetComputeRunningProcesses(handle: u64, count: *mut u32, infos: *mut ProcessV1) =>
        processes(handle, count, infos);
    fn nvmlDeviceGetComputeRunningProcesses_v2(handle: u64, count: *mut u32, infos: *mut ProcessV2) =>
        processes(handle, count, infos);
    fn nvmlDeviceGetComputeRunningProcesses_v3(handle: u64, count: *mut u32, infos: *mut ProcessV2) =>
        processes(handle, count, infos);
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(handle: u64, count: *mut u32, infos: *mut ProcessV2) => {
        device(handle)?;
        list(Vec::new(), count, infos)
    };
    fn nvmlDeviceGetProcessUtilization(handle: u64, samples: *mut ProcessSample, count: *mut u32, _since_us: u64) =>
        process_samples(handle, samples, count);
    fn nvmlDeviceGetPowerUsage(handle: u64, milliwatts: *mut u32) => c::write(milliwatts, power(handle)?);
    fn nvmlDeviceGetEnforcedPowerLimit(handle: u64, milliwatts: *mut u32) => constant(handle, milliwatts, 300_000);
    fn nvmlDeviceGetTemperature(handle: u64, _sensor: u32, degrees: *mut u32) => constant(handle, degrees, 40);
    fn nvmlDeviceGetClockInfo(handle: u64, kind: u32, mhz: *mut u32) => clock_mhz(handle, kind, mhz);
    fn nvmlDeviceGetClock(handle: u64, kind: u32, _which: u32, mhz: *mut u32) => clock_mhz(handle, kind, mhz);
    fn nvmlDeviceGetMaxClockInfo(handle: u64, kind: u32, mhz: *mut u32) => max_clock_mhz(handle, kind, mhz);
    fn nvmlDeviceGetPcieThroughput(handle: u64, counter: u32, value: *mut u32) => pcie(handle, counter, value);
    fn nvmlDeviceGetCurrPcieLinkGeneration(handle: u64, value: *mut u32) => constant(handle, value, 4);
    fn nvmlDeviceGetCurrPcieLinkWidth(handle: u64, value: *mut u32) => constant(handle, value, 16);
    fn nvmlDeviceGetPerformanceState(handle: u64, value: *mut u32) => constant(handle, value, 0);
    fn nvmlDeviceGetCurrentClocksThrottleReasons(handle: u64, reasons: *mut u64) => throttle(handle, reasons);
    fn nvmlDeviceGetCurrentClocksEventReasons(handle: u64, reasons: *mut u64) => throttle(handle, reasons);
    fn nvmlDeviceGetFieldValues(handle: u64, count: i32, values: *mut FieldValue) => fields(handle, count, values);
}
