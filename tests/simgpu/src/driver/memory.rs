//! Device memory, virtual memory, page-locked host memory.

use crate::call::exported;
use crate::error::{CudaError, Status};
use crate::{c, simulator, thread};
use nix::libc;

/// Alignment of page-locked memory.
const PAGE: usize = 4096;

fn allocate(target: *mut u64, bytes: u64) -> Status {
    let device = thread::device()?;
    let simulator = simulator::simulator()?;
    let others = simulator.other_processes_memory(device);
    let mut state = simulator.state();
    let address = state.memory.allocate(device, bytes, others)?;
    simulator.publish_memory(&state, device);
    c::write(target, address)
}

/// Size of an allocation in bytes, for the log; 0 if there is none.
fn size(address: u64) -> u64 {
    let size = |simulator: &simulator::Simulator| simulator.state().memory.size(address);
    simulator::simulator().ok().and_then(size).unwrap_or(0)
}

fn release(address: u64) -> Status {
    let simulator = simulator::simulator()?;
    let mut state = simulator.state();
    let (device, _) = state.memory.free(address)?;
    simulator.publish_memory(&state, device);
    Ok(())
}

/// `cuMemFree` returns once the device has finished all operations that may use the memory.
fn free(address: u64) -> Status {
    if address == 0 {
        return Ok(());
    }
    let simulator = simulator::simulator()?;
    simulator.wait_for_device(thread::device()?)?;
    release(address)
}

fn info(free: *mut u64, total: *mut u64) -> Status {
    let device = thread::device()?;
    let simulator = simulator::simulator()?;
    let others = simulator.other_processes_memory(device);
    let state = simulator.state();
    let limit = state.memory.limit();
    let used = state.memory.used(device) + others;
    c::write(free, limit.saturating_sub(used))?;
    c::write(total, limit)
}

/// Host memory: real, because programs write to it.
fn host_allocate(target: *mut u64, bytes: u64) -> Status {
    let simulator = simulator::simulator()?;
    let bytes = usize::try_from(bytes).map_err(|_| CudaError::INVALID_VALUE)?;
    // SAFETY: any size may be requested; null means out of memory.
    let pointer = unsafe { libc::memalign(PAGE, bytes.max(1)) };
    if pointer.is_null() {
        return Err(CudaError::OUT_OF_MEMORY);
    }
    let address = pointer.expose_provenance() as u64;
    simulator.state().page_locked.insert(address);
    c::write(target, address)
}

fn host_free(address: u64) -> Status {
    let known = simulator::simulator()?.state().page_locked.remove(&address);
    if !known {
        return Err(CudaError::INVALID_VALUE);
    }
    let address = usize::try_from(address).map_err(|_| CudaError::INVALID_VALUE)?;
    // SAFETY: returned by memalign above and freed once.
    unsafe { libc::free(std::ptr::with_exposed_provenance_mut(address)) };
    Ok(())
}

fn reserve(target: *mut u64, bytes: u64) -> Status {
    let address = simulator::simulator()?.state().memory.reserve(bytes)?;
    c::write(target, address)
}

exported! { Driver;
    fn cuMemGetInfo_v2(free: *mut u64, total: *mut u64) [] => info(free, total);
    fn cuMemAlloc_v2(address: *mut u64, bytes: u64) [bytes: bytes] => allocate(address, bytes);
    fn cuMemFree_v2(address: u64) [bytes: size(address)] => free(address);
    fn cuMemAllocAsync(address: *mut u64, bytes: u64, stream: u64) [stream: stream, bytes: bytes] =>
        allocate(address, bytes);
    fn cuMemFreeAsync(address: u64, stream: u64) [stream: stream, bytes: size(address)] => release(address);
    fn cuMemHostAlloc(pointer: *mut u64, bytes: u64, _flags: u32) [bytes: bytes] => host_allocate(pointer, bytes);
    fn cuMemAllocHost_v2(pointer: *mut u64, bytes: u64) [bytes: bytes] => host_allocate(pointer, bytes);
    fn cuMemFreeHost(pointer: u64) [] => host_free(pointer);
    fn cuMemAddressReserve(address: *mut u64, bytes: u64, _alignment: u64, _hint: u64, _flags: u64)
        [bytes: bytes] => reserve(address, bytes);
    fn cuMemAddressFree(_address: u64, bytes: u64) [bytes: bytes] => simulator::simulator().map(drop);
    fn cuMemCreate(handle: *mut u64, bytes: u64, _properties: u64, _flags: u64) [bytes: bytes] =>
        allocate(handle, bytes);
    fn cuMemRelease(handle: u64) [bytes: size(handle)] => release(handle);
    fn cuMemMap(_address: u64, bytes: u64, _offset: u64, _handle: u64, _flags: u64) [bytes: bytes] =>
        simulator::simulator().map(drop);
    fn cuMemUnmap(_address: u64, bytes: u64) [bytes: bytes] => simulator::simulator().map(drop);
    fn cuMemSetAccess(_address: u64, bytes: u64, _access: u64, _count: u64) [bytes: bytes] =>
        simulator::simulator().map(drop);
}
