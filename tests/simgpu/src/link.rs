//! How the copies of this library find each other.
//!
//! A folder created by [`crate::lay_out`] contains one copy per name, so that each is a file of its
//! own, like the real libraries. The copy named `libcuda.so.1` is the driver and contains the
//! simulator; all others call it, through its exported functions, as the real ones do. Without such
//! a file next to it, this copy is the driver itself.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use nix::libc;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The file that this code was loaded from.
fn own_file() -> PathBuf {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let address = own_file as *const libc::c_void;
    // SAFETY: `info` is writable; dladdr fills it or leaves it zeroed, and both are valid values.
    let info = unsafe {
        libc::dladdr(address, info.as_mut_ptr());
        info.assume_init()
    };
    if info.dli_fname.is_null() {
        return PathBuf::new();
    }
    // SAFETY: dladdr gives a C string that lives as long as the library is loaded, and it is: this
    // code is in it.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    PathBuf::from(OsStr::from_bytes(name.to_bytes()))
}

/// The folder that this code was loaded from.
pub(crate) fn folder() -> PathBuf {
    own_file().parent().map(Path::to_owned).unwrap_or_default()
}

/// Keeps this copy loaded for the life of the process, whatever is closed: the log refers to names
/// of functions in it. The real libraries are kept by their exit handlers too.
fn stay_loaded() {
    // SAFETY: the file is loaded already; nothing is run.
    let library =
        unsafe { Library::open(Some(own_file()), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NODELETE) };
    if let Ok(library) = library {
        std::mem::forget(library);
    }
}

/// The driver: `libcuda.so.1` beside this file, or this file.
fn driver_library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            stay_loaded();
            let beside = folder().join("libcuda.so.1");
            let file = if beside.exists() { beside } else { own_file() };
            // SAFETY: it is a copy of this library, which runs nothing when it is loaded.
            unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL).ok() }
        })
        .as_ref()
}

/// The address of an exported function of the driver; `None` if there is none of this name.
pub(crate) fn address(name: &CStr) -> Option<usize> {
    let library = driver_library()?;
    // SAFETY: only its address is taken; callers of the function know its type.
    let symbol = unsafe { library.get::<*const libc::c_void>(name.to_bytes_with_nul()) };
    symbol.ok().map(|symbol| symbol.into_raw().addr())
}

/// Functions of the driver, called through its exported symbols: nothing is inlined, and probes on
/// libcuda fire.
macro_rules! driver_functions {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),*);)*) => {$(
        $(#[$meta])*
        pub(crate) fn $name($($argument: $type),*) -> crate::error::Status {
            static ADDRESS: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
            let name = concat!(stringify!($name), "\0").as_bytes();
            let address = ADDRESS.get_or_init(|| {
                address(CStr::from_bytes_with_nul(name).ok()?)
            });
            let Some(address) = *address else {
                return Err(crate::error::CudaError::NOT_FOUND);
            };
            type LinkedFunction = extern "C" fn($($type),*) -> i32;
            // SAFETY: the address of the function of this name of the same version of this library,
            // where it is declared with the same types.
            let function = unsafe {
                std::mem::transmute::<*const libc::c_void, LinkedFunction>(std::ptr::with_exposed_provenance(address))
            };
            crate::error::status(function($($argument),*))
        }
    )*};
}

/// The driver's functions as the other layers call them.
pub(crate) mod driver {
    #![expect(non_snake_case, reason = "names of the C ABI")]
    use super::{CStr, address, libc};
    use crate::call::CallRecord;
    use std::ffi::c_char;

    driver_functions! {
        fn cuInit(flags: u32);
        fn cuDriverGetVersion(version: *mut i32);
        fn cuDeviceGetCount(count: *mut i32);
        fn cuDevicePrimaryCtxRetain(context: *mut u64, device: i32);
        fn cuCtxSetCurrent(context: u64);
        fn cuCtxGetCurrent(context: *mut u64);
        fn cuCtxGetDevice(device: *mut i32);
        fn cuCtxSynchronize();
        fn cuStreamCreateWithPriority(stream: *mut u64, flags: u32, priority: i32);
        fn cuStreamDestroy_v2(stream: u64);
        fn cuStreamSynchronize(stream: u64);
        fn cuStreamSynchronize_ptsz(stream: u64);
        fn cuStreamQuery(stream: u64);
        fn cuStreamWaitEvent(stream: u64, event: u64, flags: u32);
        fn cuLaunchHostFunc(stream: u64, function: u64, data: u64);
        fn cuStreamBeginCapture_v2(stream: u64, mode: i32);
        fn cuStreamEndCapture(stream: u64, graph: *mut u64);
        fn cuStreamIsCapturing(stream: u64, status: *mut i32);
        fn cuEventCreate(event: *mut u64, flags: u32);
        fn cuEventDestroy_v2(event: u64);
        fn cuEventRecord(event: u64, stream: u64);
        fn cuEventRecordWithFlags(event: u64, stream: u64, flags: u32);
        fn cuEventSynchronize(event: u64);
        fn cuEventQuery(event: u64);
        fn cuEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64);
        fn cuGraphInstantiateWithFlags(executable: *mut u64, graph: u64, flags: u64);
        fn cuGraphExecDestroy(executable: u64);
        fn cuGraphDestroy(graph: u64);
        fn cuGraphLaunch(executable: u64, stream: u64);
        fn cuGraphLaunch_ptsz(executable: u64, stream: u64);
        fn cuMemGetInfo_v2(free: *mut u64, total: *mut u64);
        fn cuMemAlloc_v2(address: *mut u64, bytes: u64);
        fn cuMemFree_v2(address: u64);
        fn cuMemAllocAsync(address: *mut u64, bytes: u64, stream: u64);
        fn cuMemFreeAsync(address: u64, stream: u64);
        fn cuMemHostAlloc(pointer: *mut u64, bytes: u64, flags: u32);
        fn cuMemFreeHost(pointer: u64);
        fn cuMemcpyHtoD_v2(target: u64, source: u64, bytes: u64);
        fn cuMemcpyDtoH_v2(target: u64, source: u64, bytes: u64);
        fn cuMemcpyDtoD_v2(target: u64, source: u64, bytes: u64);
        fn cuMemcpy(target: u64, source: u64, bytes: u64);
        fn cuMemcpyHtoDAsync_v2(target: u64, source: u64, bytes: u64, stream: u64);
        fn cuMemcpyDtoHAsync_v2(target: u64, source: u64, bytes: u64, stream: u64);
        fn cuMemcpyDtoDAsync_v2(target: u64, source: u64, bytes: u64, stream: u64);
        fn cuMemcpyAsync(target: u64, source: u64, bytes: u64, stream: u64);
        fn cuMemcpyAsync_ptsz(target: u64, source: u64, bytes: u64, stream: u64);
        fn cuMemsetD8_v2(target: u64, value: u8, bytes: u64);
        fn cuMemsetD8Async(target: u64, value: u8, bytes: u64, stream: u64);
        #[expect(clippy::too_many_arguments, reason = "the C ABI has as many")]
        fn cuLaunchKernel(
            function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
            block_z: u32, shared_bytes: u32, stream: u64, parameters: u64, extra: u64
        );
        #[expect(clippy::too_many_arguments, reason = "the C ABI has as many")]
        fn cuLaunchKernel_ptsz(
            function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
            block_z: u32, shared_bytes: u32, stream: u64, parameters: u64, extra: u64
        );
        #[expect(clippy::too_many_arguments, reason = "the C ABI has as many")]
        fn cuLaunchCooperativeKernel(
            function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
            block_z: u32, shared_bytes: u32, stream: u64, parameters: u64
        );
        fn cuLaunchKernelEx(config: u64, function: u64, parameters: u64, extra: u64);
        fn cuLaunchKernelEx_ptsz(config: u64, function: u64, parameters: u64, extra: u64);
        fn simgpuCallBegin(layer: u32, correlation: *mut u32);
        fn simgpuCallEnd(record: *const CallRecord);
        fn simgpuCommunicatorOpen(key: *const c_char, ranks: u32, rank: u32, wait: u32, communicator: *mut u64);
        fn simgpuCommunicatorClose(communicator: u64);
        fn simgpuCollectiveKernel(communicator: u64, name: *const c_char, bytes: u64, function: *mut u64);
    }
}
