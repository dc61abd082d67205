//! Initialization, entry points by name, names of errors.

use crate::call::exported;
use crate::error::{CudaError, Status, guarded};
use crate::{c, link, simulator};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CString, c_char, c_void};

/// The CUDA version that the driver reports, 1000 * major + 10 * minor.
pub(crate) const CUDA_VERSION: i32 = 13_000;

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;

exported! { Driver;
    fn cuInit(flags: u32) [] => initialize(flags);
    fn cuDriverGetVersion(version: *mut i32) [] => c::write(version, CUDA_VERSION);
    fn cuGetProcAddress(name: *const c_char, target: *mut *const c_void, _version: i32, flags: u64) [] =>
        entry_point(name, target, flags);
    fn cuGetProcAddress_v2(
        name: *const c_char, target: *mut *const c_void, _version: i32, flags: u64, found: *mut i32,
    ) [] => {
        let status = entry_point(name, target, flags);
        // CU_GET_PROC_ADDRESS_SUCCESS or CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND.
        if !found.is_null() {
            c::write(found, i32::from(status.is_err()))?;
        }
        status
    };
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: i32, name: *mut *const c_char) -> i32 {
    guarded(|| match CudaError::name(code) {
        Some(text) => c::write(name, text.as_ptr()),
        None => Err(CudaError::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: i32, name: *mut *const c_char) -> i32 {
    cuGetErrorName(code, name)
}

fn initialize(flags: u32) -> Status {
    if flags != 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    if simulator::initialize()? {
        inject();
    }
    Ok(())
}

/// Loads the library named by CUDA_INJECTION64_PATH and calls its `InitializeInjection`, as the
/// driver does during initialization. A library that cannot be loaded or lacks the function is
/// ignored.
fn inject() {
    let Some(path) = std::env::var_os("CUDA_INJECTION64_PATH").filter(|path| !path.is_empty())
    else {
        return;
    };
    // SAFETY: the user requested this library to be loaded, with all it does then.
    let Ok(library) = (unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }) else {
        return;
    };
    // SAFETY: this is the type that the driver documents for the function.
    if let Ok(entry) = unsafe { library.get::<extern "C" fn() -> i32>(b"InitializeInjection\0") } {
        entry();
    }
    // It stays loaded for the life of the process.
    std::mem::forget(library);
}

/// A plain name refers to the newest version of a function.
fn entry_point(name: *const c_char, target: *mut *const c_void, flags: u64) -> Status {
    let name = c::text(name)?;
    let streams = if flags & PER_THREAD != 0 { "_ptsz" } else { "" };
    let versions = [format!("_v2{streams}"), streams.to_owned(), "_v2".to_owned(), String::new()];
    let found = versions.iter().find_map(|version| {
        let name = CString::new(format!("{name}{version}")).ok()?;
        link::address(&name)
    });
    match found {
        Some(address) => c::write(target, std::ptr::with_exposed_provenance(address)),
        None => {
            c::write(target, std::ptr::null())?;
            Err(CudaError::NOT_FOUND)
        }
    }
}
