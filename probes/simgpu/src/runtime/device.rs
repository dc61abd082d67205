//! Devices, versions, errors.

use super::{LAST_ERROR, READY, remembered, use_device, with_context};
use crate::c;
use crate::call::exported;
use crate::error::{CudaError, Status};
use crate::link::driver;
use std::ffi::c_char;

/// The runtime version that the copies under `.so.12` and `.so.13` both report.
const RUNTIME_VERSION: i32 = 12_080;

fn set_device(device: i32) -> Status {
    driver::cuInit(0)?;
    use_device(device)?;
    READY.set(true);
    Ok(())
}

fn count(target: *mut i32) -> Status {
    driver::cuInit(0)?;
    driver::cuDeviceGetCount(target)
}

fn error(code: i32) -> *const c_char {
    CudaError::name(code).unwrap_or(c"unrecognized error code").as_ptr()
}

exported! { Runtime;
    fn cudaGetDeviceCount(count: *mut i32) [] => remembered(self::count(count));
    fn cudaSetDevice(device: i32) [] => remembered(set_device(device));
    fn cudaGetDevice(device: *mut i32) [] => with_context(|| driver::cuCtxGetDevice(device));
    fn cudaDeviceSynchronize() [] => with_context(driver::cuCtxSynchronize);
    fn cudaDriverGetVersion(version: *mut i32) [] => driver::cuDriverGetVersion(version);
    fn cudaRuntimeGetVersion(version: *mut i32) [] => c::write(version, RUNTIME_VERSION);
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> i32 {
    LAST_ERROR.take()
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> i32 {
    LAST_ERROR.get()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(code: i32) -> *const c_char {
    error(code)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: i32) -> *const c_char {
    error(code)
}
