//! Memory.

use super::with_context;
use crate::call::exported;
use crate::link::driver;

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
