//! Initialization, versions, the devices and their faults.

use super::{
    DRIVER_NOT_LOADED, GPU_IS_LOST, INSUFFICIENT_SIZE, INVALID_ARGUMENT, UNINITIALIZED, exported,
};
use crate::error::{CudaError, Status};
use crate::settings::{SimFault, SimSettings};
use crate::sync::LockExt;
use crate::{c, handles, link};
use std::ffi::c_char;
use std::sync::Mutex;

/// Number of utilization queries after which the fault `nvml-lost` occurs.
const QUERIES_UNTIL_LOST: u64 = 10;

#[derive(Debug)]
struct NvmlSession {
    users: u32,
    settings: SimSettings,
    queries: u64,
}

static SESSION: Mutex<Option<NvmlSession>> = Mutex::new(None);

fn initialize() -> Status {
    let mut session = SESSION.hold();
    if let Some(session) = session.as_mut() {
        session.users += 1;
        return Ok(());
    }
    let settings = settings();
    if settings.has(SimFault::NoNvml) {
        return Err(DRIVER_NOT_LOADED);
    }
    *session = Some(NvmlSession { users: 1, settings, queries: 0 });
    Ok(())
}

/// Settings from the environment; for missing ones, from the processes that use the devices.
fn settings() -> SimSettings {
    let mut settings = SimSettings::from_environment(&link::folder());
    let text = std::fs::read_to_string(settings.shared.join("devices")).unwrap_or_default();
    let mut reported = text.split_whitespace().map(str::parse::<u64>);
    if let (Some(Ok(devices)), Some(Ok(memory))) = (reported.next(), reported.next()) {
        if std::env::var_os("SIMGPU_DEVICES").is_none() {
            settings.devices = u32::try_from(devices).unwrap_or(1);
        }
        if std::env::var_os("SIMGPU_MEMORY").is_none() {
            settings.memory = memory;
        }
    }
    settings
}

fn end() -> Status {
    let mut session = SESSION.hold();
    let open = session.as_mut().ok_or(UNINITIALIZED)?;
    open.users -= 1;
    if open.users == 0 {
        *session = None;
    }
    Ok(())
}

/// The settings; an error unless `nvmlInit` was called and `nvmlShutdown` was not.
pub(super) fn current() -> Result<SimSettings, CudaError> {
    let session = SESSION.hold();
    session.as_ref().map(|session| session.settings.clone()).ok_or(UNINITIALIZED)
}

pub(super) fn device_handle(device: u32) -> u64 {
    handles::NVML_DEVICE.of(device)
}

/// The device of a handle, and the settings.
pub(super) fn device(handle: u64) -> Result<(u32, SimSettings), CudaError> {
    let settings = current()?;
    if lost(&settings) {
        return Err(GPU_IS_LOST);
    }
    let number = handles::NVML_DEVICE.id(handle).ok();
    let device = number.filter(|number| *number < settings.devices).ok_or(INVALID_ARGUMENT)?;
    Ok((device, settings))
}

fn lost(settings: &SimSettings) -> bool {
    let session = SESSION.hold();
    let queries = session.as_ref().map(|session| session.queries);
    settings.has(SimFault::NvmlLost) && queries >= Some(QUERIES_UNTIL_LOST)
}

/// Counts a utilization query.
pub(super) fn count_query() {
    if let Some(session) = SESSION.hold().as_mut() {
        session.queries += 1;
    }
}

/// Text into a C buffer.
pub(super) fn text(target: *mut c_char, length: u32, text: &str) -> Status {
    if target.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if c::write_text(target, length as usize, text) { Ok(()) } else { Err(INSUFFICIENT_SIZE) }
}

exported! {
    fn nvmlInit() => initialize();
    fn nvmlInit_v2() => initialize();
    fn nvmlInitWithFlags(_flags: u32) => initialize();
    fn nvmlShutdown() => end();
    fn nvmlSystemGetDriverVersion(version: *mut c_char, length: u32) => {
        current()?;
        text(version, length, "580.00.00")
    };
    fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: u32) => {
        current()?;
        text(version, length, "13.580.00.00")
    };
    fn nvmlSystemGetCudaDriverVersion(version: *mut i32) => c::write(version, crate::driver::CUDA_VERSION);
    fn nvmlSystemGetCudaDriverVersion_v2(version: *mut i32) => c::write(version, crate::driver::CUDA_VERSION);
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: i32) -> *const c_char {
    match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        9 => c"Driver Not Loaded",
        15 => c"GPU is lost",
        _ => c"Unknown Error",
    }
    .as_ptr()
}
