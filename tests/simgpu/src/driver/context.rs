//! Contexts: one per device, the primary one. The current context is per thread.

use crate::call::exported;
use crate::error::{CudaError, Status};
use crate::thread::device;
use crate::{c, handles, simulator, thread};

fn set_current(context: u64) -> Status {
    let device = match context {
        0 => None,
        handle => {
            Some(known(handles::CONTEXT.id(handle).map_err(|_| CudaError::INVALID_CONTEXT)?)?)
        }
    };
    if let Some(device) = device {
        simulator::simulator()?.publish_context(device);
    }
    thread::set_device(device);
    Ok(())
}

/// Checks that the device exists.
pub(crate) fn known(device: u32) -> Result<u32, CudaError> {
    let devices = simulator::simulator()?.settings.devices;
    (device < devices).then_some(device).ok_or(CudaError::INVALID_DEVICE)
}

/// A device number of the C API.
pub(crate) fn ordinal(device: i32) -> Result<u32, CudaError> {
    known(u32::try_from(device).map_err(|_| CudaError::INVALID_DEVICE)?)
}

fn current() -> u64 {
    device().map_or(0, |device| handles::CONTEXT.of(device))
}

exported! { Driver;
    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: i32) [] =>
        c::write(context, handles::CONTEXT.of(ordinal(device)?));
    fn cuDevicePrimaryCtxRelease_v2(device: i32) [] => ordinal(device).map(drop);
    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, _flags: u32) [] => ordinal(device).map(drop);
    fn cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32) [] => {
        ordinal(device)?;
        c::write(flags, 0)?;
        c::write(active, 1)
    };
    fn cuCtxCreate_v2(context: *mut u64, _flags: u32, device: i32) [] => {
        let handle = handles::CONTEXT.of(ordinal(device)?);
        set_current(handle)?;
        c::write(context, handle)
    };
    fn cuCtxDestroy_v2(context: u64) [] => {
        let device = handles::CONTEXT.id(context).map_err(|_| CudaError::INVALID_CONTEXT)?;
        simulator::simulator()?.wait_for_device(known(device)?)
    };
    fn cuCtxSetCurrent(context: u64) [] => set_current(context);
    fn cuCtxPushCurrent_v2(context: u64) [] => set_current(context);
    fn cuCtxPopCurrent_v2(context: *mut u64) [] => {
        let popped = current();
        set_current(0)?;
        c::write(context, popped)
    };
    fn cuCtxGetCurrent(context: *mut u64) [] => {
        simulator::simulator()?;
        c::write(context, current())
    };
    fn cuCtxGetDevice(target: *mut i32) [] => {
        let device = i32::try_from(device()?).map_err(|_| CudaError::INVALID_DEVICE)?;
        c::write(target, device)
    };
    fn cuCtxGetApiVersion(_context: u64, version: *mut u32) [] => c::write(version, 3020);
    fn cuCtxSynchronize() [] => simulator::simulator()?.wait_for_device(device()?);
}
