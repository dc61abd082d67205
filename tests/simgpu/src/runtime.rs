//! libcudart: each function calls the driver through its exported functions, as the real one does,
//! so that probes on both layers fire.

use crate::c;
use crate::call::exported;
use crate::driver::launch::config;
use crate::error::{CudaError, Status};
use crate::link::driver;
use std::cell::Cell;
use std::ffi::c_char;

thread_local! {
    /// Whether this thread has a current context.
    static READY: Cell<bool> = const { Cell::new(false) };
    /// The result of `cudaGetLastError`.
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
}

/// Runs a call's body with a current context, device 0's unless the thread selected another, and
/// remembers its error.
fn with_context(body: impl FnOnce() -> Status) -> Status {
    remembered(ready().and_then(|()| body()))
}

fn remembered(status: Status) -> Status {
    if let Err(CudaError(code)) = status {
        LAST_ERROR.set(code);
    }
    status
}

fn ready() -> Status {
    if READY.get() {
        return Ok(());
    }
    driver::cuInit(0)?;
    let mut context = 0;
    driver::cuCtxGetCurrent(&raw mut context)?;
    if context == 0 {
        use_device(0)?;
    }
    READY.set(true);
    Ok(())
}

/// Makes a device's primary context current.
fn use_device(device: i32) -> Status {
    let mut context = 0;
    driver::cuDevicePrimaryCtxRetain(&raw mut context, device)?;
    driver::cuCtxSetCurrent(context)
}

// Devices, versions, errors.

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

// Memory.

exported! { Runtime;
    fn cudaMemGetInfo(free: *mut u64, total: *mut u64) [] => with_context(|| driver::cuMemGetInfo_v2(free, total));
    fn cudaMalloc(address: *mut u64, bytes: u64) [bytes: bytes] =>
        with_context(|| driver::cuMemAlloc_v2(address, bytes));
    fn cudaFree(address: u64) [] => with_context(|| driver::cuMemFree_v2(address));
    fn cudaMallocAsync(address: *mut u64, bytes: u64, stream: u64) [stream: stream, bytes: bytes] =>
        with_context(|| driver::cuMemAllocAsync(address, bytes, stream));
    fn cudaFreeAsync(address: u64, stream: u64) [stream: stream] =>
        with_context(|| driver::cuMemFreeAsync(address, stream));
    fn cudaHostAlloc(pointer: *mut u64, bytes: u64, flags: u32) [bytes: bytes] =>
        with_context(|| driver::cuMemHostAlloc(pointer, bytes, flags));
    fn cudaMallocHost(pointer: *mut u64, bytes: u64) [bytes: bytes] =>
        with_context(|| driver::cuMemHostAlloc(pointer, bytes, 0));
    fn cudaFreeHost(pointer: u64) [] => with_context(|| driver::cuMemFreeHost(pointer));
}

// Copies and fills.

// `cudaMemcpyKind`.
const TO_DEVICE: i32 = 1;
const TO_HOST: i32 = 2;
const ON_DEVICE: i32 = 3;

fn copy(target: u64, source: u64, bytes: u64, kind: i32) -> Status {
    match kind {
        TO_DEVICE => driver::cuMemcpyHtoD_v2(target, source, bytes),
        TO_HOST => driver::cuMemcpyDtoH_v2(target, source, bytes),
        ON_DEVICE => driver::cuMemcpyDtoD_v2(target, source, bytes),
        _ => driver::cuMemcpy(target, source, bytes),
    }
}

fn copy_async(target: u64, source: u64, bytes: u64, kind: i32, stream: u64) -> Status {
    match kind {
        TO_DEVICE => driver::cuMemcpyHtoDAsync_v2(target, source, bytes, stream),
        TO_HOST => driver::cuMemcpyDtoHAsync_v2(target, source, bytes, stream),
        ON_DEVICE => driver::cuMemcpyDtoDAsync_v2(target, source, bytes, stream),
        _ => driver::cuMemcpyAsync(target, source, bytes, stream),
    }
}

/// The byte that memory is set to.
fn byte(value: i32) -> u8 {
    value.to_le_bytes()[0]
}

exported! { Runtime;
    fn cudaMemcpy(target: u64, source: u64, bytes: u64, kind: i32) [bytes: bytes] =>
        with_context(|| copy(target, source, bytes, kind));
    fn cudaMemcpyAsync(target: u64, source: u64, bytes: u64, kind: i32, stream: u64) [stream: stream, bytes: bytes] =>
        with_context(|| copy_async(target, source, bytes, kind, stream));
    fn cudaMemcpyAsync_ptsz(target: u64, source: u64, bytes: u64, _kind: i32, stream: u64)
        [stream: stream, bytes: bytes] =>
        with_context(|| driver::cuMemcpyAsync_ptsz(target, source, bytes, stream));
    fn cudaMemset(target: u64, value: i32, bytes: u64) [bytes: bytes] =>
        with_context(|| driver::cuMemsetD8_v2(target, byte(value), bytes));
    fn cudaMemsetAsync(target: u64, value: i32, bytes: u64, stream: u64) [stream: stream, bytes: bytes] =>
        with_context(|| driver::cuMemsetD8Async(target, byte(value), bytes, stream));
}

// Streams.

exported! { Runtime;
    fn cudaStreamCreate(stream: *mut u64) [] =>
        with_context(|| driver::cuStreamCreateWithPriority(stream, 0, 0));
    fn cudaStreamCreateWithFlags(stream: *mut u64, flags: u32) [] =>
        with_context(|| driver::cuStreamCreateWithPriority(stream, flags, 0));
    fn cudaStreamCreateWithPriority(stream: *mut u64, flags: u32, priority: i32) [] =>
        with_context(|| driver::cuStreamCreateWithPriority(stream, flags, priority));
    fn cudaStreamDestroy(stream: u64) [stream: stream] => with_context(|| driver::cuStreamDestroy_v2(stream));
    fn cudaStreamSynchronize(stream: u64) [stream: stream] =>
        with_context(|| driver::cuStreamSynchronize(stream));
    fn cudaStreamSynchronize_ptsz(stream: u64) [stream: stream] =>
        with_context(|| driver::cuStreamSynchronize_ptsz(stream));
    fn cudaStreamQuery(stream: u64) [stream: stream] => with_context(|| driver::cuStreamQuery(stream));
    fn cudaStreamWaitEvent(stream: u64, event: u64, flags: u32) [stream: stream, event: event] =>
        with_context(|| driver::cuStreamWaitEvent(stream, event, flags));
    fn cudaLaunchHostFunc(stream: u64, function: u64, data: u64) [stream: stream] =>
        with_context(|| driver::cuLaunchHostFunc(stream, function, data));
}

// Events.

exported! { Runtime;
    fn cudaEventCreate(event: *mut u64) [] => with_context(|| driver::cuEventCreate(event, 0));
    fn cudaEventCreateWithFlags(event: *mut u64, flags: u32) [] =>
        with_context(|| driver::cuEventCreate(event, flags));
    fn cudaEventDestroy(event: u64) [] => with_context(|| driver::cuEventDestroy_v2(event));
    fn cudaEventRecord(event: u64, stream: u64) [stream: stream, event: event] =>
        with_context(|| driver::cuEventRecord(event, stream));
    fn cudaEventRecordWithFlags(event: u64, stream: u64, flags: u32) [stream: stream, event: event] =>
        with_context(|| driver::cuEventRecordWithFlags(event, stream, flags));
    fn cudaEventSynchronize(event: u64) [event: event] => with_context(|| driver::cuEventSynchronize(event));
    fn cudaEventQuery(event: u64) [event: event] => with_context(|| driver::cuEventQuery(event));
    fn cudaEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64) [] =>
        with_context(|| driver::cuEventElapsedTime(milliseconds, start, end));
}

// Kernel launches.

/// `dim3`: passed by value in two registers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

exported! { Runtime;
    fn cudaLaunchKernel(function: u64, grid: Dim3, block: Dim3, parameters: u64, shared_bytes: u64, stream: u64)
        [stream: stream, grid: [grid.x, grid.y, grid.z]] => with_context(|| driver::cuLaunchKernel(
            function, grid.x, grid.y, grid.z, block.x, block.y, block.z, narrow(shared_bytes), stream, parameters, 0,
        ));
    fn cudaLaunchKernel_ptsz(function: u64, grid: Dim3, block: Dim3, parameters: u64, shared_bytes: u64, stream: u64)
        [stream: stream, grid: [grid.x, grid.y, grid.z]] => with_context(|| driver::cuLaunchKernel_ptsz(
            function, grid.x, grid.y, grid.z, block.x, block.y, block.z, narrow(shared_bytes), stream, parameters, 0,
        ));
    fn cudaLaunchCooperativeKernel(
        function: u64, grid: Dim3, block: Dim3, parameters: u64, shared_bytes: u64, stream: u64,
    ) [stream: stream, grid: [grid.x, grid.y, grid.z]] => with_context(|| driver::cuLaunchCooperativeKernel(
            function, grid.x, grid.y, grid.z, block.x, block.y, block.z, narrow(shared_bytes), stream, parameters,
        ));
    fn cudaLaunchKernelExC(configuration: u64, function: u64, parameters: u64)
        [stream: config(configuration).stream, grid: config(configuration).grid] =>
        with_context(|| driver::cuLaunchKernelEx(configuration, function, parameters, 0));
    fn cudaLaunchKernelExC_ptsz(configuration: u64, function: u64, parameters: u64)
        [stream: config(configuration).stream, grid: config(configuration).grid] =>
        with_context(|| driver::cuLaunchKernelEx_ptsz(configuration, function, parameters, 0));
}

fn narrow(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

// Graphs.

exported! { Runtime;
    fn cudaStreamBeginCapture(stream: u64, mode: i32) [stream: stream] =>
        with_context(|| driver::cuStreamBeginCapture_v2(stream, mode));
    fn cudaStreamEndCapture(stream: u64, graph: *mut u64) [stream: stream] =>
        with_context(|| driver::cuStreamEndCapture(stream, graph));
    fn cudaStreamIsCapturing(stream: u64, status: *mut i32) [stream: stream] =>
        with_context(|| driver::cuStreamIsCapturing(stream, status));
    fn cudaGraphInstantiate(executable: *mut u64, graph: u64, flags: u64) [] =>
        with_context(|| driver::cuGraphInstantiateWithFlags(executable, graph, flags));
    fn cudaGraphExecDestroy(executable: u64) [] => with_context(|| driver::cuGraphExecDestroy(executable));
    fn cudaGraphDestroy(graph: u64) [] => with_context(|| driver::cuGraphDestroy(graph));
    fn cudaGraphLaunch(executable: u64, stream: u64) [stream: stream] =>
        with_context(|| driver::cuGraphLaunch(executable, stream));
    fn cudaGraphLaunch_ptsz(executable: u64, stream: u64) [stream: stream] =>
        with_context(|| driver::cuGraphLaunch_ptsz(executable, stream));
}
