//! Decodes the records of the ring of calls. Pure: nothing here uses libbpf.

use super::skeleton::types::{cuda_call_event, device_memory_event, event_kind};
use crate::wire::read;
use gctrace_abi::CallKind;

/// An event of a probe on CUDA, NCCL or torch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CudaEvent {
    /// A completed call.
    Call(CudaCallEvent),
    /// Torch's caching allocator allocated or freed device memory.
    Memory(DeviceMemoryEvent),
}

/// A call. Timestamps are nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaCallEvent {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// Id of the calling thread, in the initial pid namespace.
    pub tid: u32,
    /// Which function was called: the id given as [`super::CallProbe::function`].
    pub function: u16,
    /// Kind of call, as given by [`super::CallProbe::kind`].
    pub kind: CallKind,
    /// Time of the entry; never after `end_ns`.
    pub start_ns: u64,
    /// Time of the return; equal to the start if only the entry is probed.
    pub end_ns: u64,
    /// Handle of its stream, 0 if it takes none.
    pub stream: u64,
    /// Number of bytes, 0 if it takes no size.
    pub bytes: u64,
    /// Grid of a launch, in blocks.
    pub grid: [u32; 3],
    /// Its result; 0 if only the entry is probed.
    pub result: i32,
}

/// Memory of torch's caching allocator on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemoryEvent {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// Id of the thread that allocated or freed, in the initial pid namespace.
    pub tid: u32,
    /// Type of the device, a `c10::DeviceType`: 1 is CUDA.
    pub device_type: i8,
    /// Index among the devices of its type.
    pub device: i8,
    /// Time of the event, in ns of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Bytes allocated by the program; negative: freed.
    pub bytes: i64,
    /// Bytes in use by the program now.
    pub allocated: u64,
    /// Bytes that the allocator has reserved from the driver.
    pub reserved: u64,
}

/// Decodes one record; `None` if it is invalid (too short, unknown kind).
pub(super) fn decode(bytes: &[u8]) -> Option<CudaEvent> {
    let kind = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    match event_kind(kind) {
        event_kind::EVENT_CUDA_CALL => call(&read(bytes)?),
        event_kind::EVENT_DEVICE_MEMORY => read(bytes).map(|wire| memory(&wire)),
        _ => None,
    }
}

fn call(wire: &cuda_call_event) -> Option<CudaEvent> {
    Some(CudaEvent::Call(CudaCallEvent {
        pid: wire.pid,
        tid: wire.tid,
        function: wire.function,
        kind: *CallKind::ALL.get(usize::from(wire.call_kind))?,
        start_ns: wire.start_ns,
        end_ns: wire.end_ns.max(wire.start_ns),
        stream: wire.stream,
        bytes: wire.bytes,
        grid: wire.grid,
        result: wire.result,
    }))
}

fn memory(wire: &device_memory_event) -> CudaEvent {
    let [device_type, device, _, _] = wire.device.to_le_bytes();
    CudaEvent::Memory(DeviceMemoryEvent {
        pid: wire.pid,
        tid: wire.tid,
        device_type: device_type.cast_signed(),
        device: device.cast_signed(),
        at_ns: wire.at_ns,
        bytes: wire.bytes,
        allocated: wire.allocated,
        reserved: wire.reserved,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes as _;

    #[test]
    fn a_device_is_type_and_index() {
        let wire = device_memory_event {
            kind: event_kind::EVENT_DEVICE_MEMORY.0,
            device: 0x0301,
            bytes: -512,
            ..Default::default()
        };
        match decode(wire.as_bytes()) {
            Some(CudaEvent::Memory(memory)) => {
                assert_eq!((memory.device_type, memory.device), (1, 3));
                assert_eq!(memory.bytes, -512);
            }
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_sensibly(kind in 8..14u32, rest in proptest::collection::vec(any::<u8>(), 0..80)) {
            let bytes: Vec<u8> = kind.to_ne_bytes().into_iter().chain(rest).collect();
            match decode(&bytes) {
                Some(CudaEvent::Call(call)) => prop_assert!(call.start_ns <= call.end_ns),
                Some(CudaEvent::Memory(_)) => prop_assert!(bytes.len() >= 48),
                None => {}
            }
        }
    }
}
