//! Copies and fills.

use super::with_context;
use crate::call::exported;
use crate::error::Status;
use crate::link::driver;

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
