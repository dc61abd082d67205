//! Copies and fills. They take time but move nothing: device memory is not backed.

use super::stream::{per_thread, resolve};
use crate::call::exported;
use crate::core::{Completion, Operation, OperationKind};
use crate::error::{CudaError, Status};
use crate::{simulator, thread};
use std::sync::Arc;

// `CUpti_ActivityMemcpyKind`.
const UNKNOWN: u8 = 0;
const TO_DEVICE: u8 = 1;
const TO_HOST: u8 = 2;
const ON_DEVICE: u8 = 8;
const PEER: u8 = 10;

/// Fixed duration of each copy, in addition to its bytes.
const COPY_NS: u64 = 1_000;

/// Speed of a device's own memory, bytes per nanosecond (an A100's, rounded).
const MEMORY_BYTES_PER_NS: u64 = 1_500;

fn enqueue(kind: OperationKind, bytes: u64, stream: u64) -> Result<Completion, CudaError> {
    let stream = resolve(stream)?;
    let simulator = simulator::simulator()?;
    let speed = match kind {
        OperationKind::Memcpy(UNKNOWN | TO_DEVICE | TO_HOST) => {
            simulator.settings.copy_bytes_per_ns
        }
        OperationKind::Memcpy(PEER) => simulator.settings.link_bytes_per_ns,
        _ => MEMORY_BYTES_PER_NS,
    };
    let mut operation = Operation::new(kind, Arc::from(name(kind)), COPY_NS + bytes / speed, 0);
    operation.bytes = bytes;
    operation.correlation = thread::correlation();
    simulator.launch(stream, vec![operation])
}

/// Names as written by the PyTorch profiler.
fn name(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Memcpy(TO_DEVICE) => "Memcpy HtoD",
        OperationKind::Memcpy(TO_HOST) => "Memcpy DtoH",
        OperationKind::Memcpy(ON_DEVICE) => "Memcpy DtoD",
        OperationKind::Memcpy(PEER) => "Memcpy PtoP",
        OperationKind::Memcpy(_) => "Memcpy",
        _ => "Memset",
    }
}

fn copy(kind: u8, bytes: u64, stream: u64) -> Status {
    enqueue(OperationKind::Memcpy(kind), bytes, stream).map(drop)
}

fn copy_and_wait(kind: u8, bytes: u64) -> Status {
    thread::device()?;
    let end = enqueue(OperationKind::Memcpy(kind), bytes, 0)?;
    simulator::simulator()?.wait(&end);
    Ok(())
}

fn set(bytes: u64, stream: u64) -> Status {
    enqueue(OperationKind::Memset, bytes, stream).map(drop)
}

/// Bytes of `count` values of this size; an impossible number is as large as it gets.
fn sized(count: u64, size: u64) -> u64 {
    count.saturating_mul(size)
}

exported! { Driver;
    fn cuMemcpy(_target: u64, _source: u64, bytes: u64) [bytes: bytes] => copy_and_wait(UNKNOWN, bytes);
    fn cuMemcpyHtoD_v2(_target: u64, _source: u64, bytes: u64) [bytes: bytes] => copy_and_wait(TO_DEVICE, bytes);
    fn cuMemcpyDtoH_v2(_target: u64, _source: u64, bytes: u64) [bytes: bytes] => copy_and_wait(TO_HOST, bytes);
    fn cuMemcpyDtoD_v2(_target: u64, _source: u64, bytes: u64) [bytes: bytes] => copy(ON_DEVICE, bytes, 0);
    fn cuMemcpyAsync(_target: u64, _source: u64, bytes: u64, stream: u64) [stream: stream, bytes: bytes] =>
        copy(UNKNOWN, bytes, stream);
    fn cuMemcpyAsync_ptsz(_target: u64, _source: u64, bytes: u64, stream: u64) [stream: stream, bytes: bytes] =>
        copy(UNKNOWN, bytes, per_thread(stream));
    fn cuMemcpyHtoDAsync_v2(_target: u64, _source: u64, bytes: u64, stream: u64) [stream: stream, bytes: bytes] =>
        copy(TO_DEVICE, bytes, stream);
    fn cuMemcpyHtoDAsync_v2_ptsz(_target: u64, _source: u64, bytes: u64, stream: u64)
        [stream: stream, bytes: bytes] => copy(TO_DEVICE, bytes, per_thread(stream));
    fn cuMemcpyDtoHAsync_v2(_target: u64, _source: u64, bytes: u64, stream: u64) [stream: stream, bytes: bytes] =>
        copy(TO_HOST, bytes, stream);
    fn cuMemcpyDtoHAsync_v2_ptsz(_target: u64, _source: u64, bytes: u64, stream: u64)
        [stream: stream, bytes: bytes] => copy(TO_HOST, bytes, per_thread(stream));
    fn cuMemcpyDtoDAsync_v2(_target: u64, _source: u64, bytes: u64, stream: u64) [stream: stream, bytes: bytes] =>
        copy(ON_DEVICE, bytes, stream);
    fn cuMemcpyDtoDAsync_v2_ptsz(_target: u64, _source: u64, bytes: u64, stream: u64)
        [stream: stream, bytes: bytes] => copy(ON_DEVICE, bytes, per_thread(stream));
    fn cuMemcpyPeerAsync(_target: u64, _target_context: u64, _source: u64, _source_context: u64, bytes: u64, stream: u64)
        [stream: stream, bytes: bytes] => copy(PEER, bytes, stream);
    fn cuMemsetD8_v2(_target: u64, _value: u8, bytes: u64) [bytes: bytes] => set(bytes, 0);
    fn cuMemsetD32_v2(_target: u64, _value: u32, count: u64) [bytes: sized(count, 4)] =>
        set(sized(count, 4), 0);
    fn cuMemsetD8Async(_target: u64, _value: u8, bytes: u64, stream: u64) [stream: stream, bytes: bytes] =>
        set(bytes, stream);
    fn cuMemsetD8Async_ptsz(_target: u64, _value: u8, bytes: u64, stream: u64) [stream: stream, bytes: bytes] =>
        set(bytes, per_thread(stream));
    fn cuMemsetD16Async(_target: u64, _value: u16, count: u64, stream: u64)
        [stream: stream, bytes: sized(count, 2)] => set(sized(count, 2), stream);
    fn cuMemsetD32Async(_target: u64, _value: u32, count: u64, stream: u64)
        [stream: stream, bytes: sized(count, 4)] => set(sized(count, 4), stream);
    fn cuMemsetD32Async_ptsz(_target: u64, _value: u32, count: u64, stream: u64)
        [stream: stream, bytes: sized(count, 4)] => set(sized(count, 4), per_thread(stream));
}
