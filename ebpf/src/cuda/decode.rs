//! Bytes of the ring of calls -> events. Pure: nothing here touches libbpf.

use super::CallKind;
use super::skeleton::types::cuda_call_event;
use super::skeleton::types::device_memory_event;
use super::skeleton::types::event_kind;
use crate::wire::Wire;

// SAFETY: integers only.
unsafe impl Wire for cuda_call_event {}
// SAFETY: integers only.
unsafe impl Wire for device_memory_event {}

/// What a probe on CUDA, NCCL or torch tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CudaEvent {
    /// A call.
    Call(CudaCallEvent),
    /// Torch's caching allocator gave or took memory of a device.
    Memory(DeviceMemoryEvent),
}

/// A call. Times are nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaCallEvent {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// [`super::CallProbe::function`].
    pub function: u16,
    /// What it does.
    pub kind: CallKind,
    /// When it was entered.
    pub start_ns: u64,
    /// When it returned; the begin again where only that is seen.
    pub end_ns: u64,
    /// Handle of its stream, 0 where it has none.
    pub stream: u64,
    /// Bytes, 0 where it does not say.
    pub bytes: u64,
    /// Grid of a launch, in blocks.
    pub grid: [u32; 3],
    /// What it returned; 0 where only the entry is seen.
    pub result: i32,
}

/// What torch's caching allocator holds on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemoryEvent {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// `c10::DeviceType`; 1 is CUDA.
    pub device_type: i8,
    /// Index of the device among those of its type.
    pub device: i8,
    /// When.
    pub at_ns: u64,
    /// Bytes given to the program; negative: taken back.
    pub bytes: i64,
    /// Bytes that the program has now.
    pub allocated: u64,
    /// Bytes that the allocator has from the driver.
    pub reserved: u64,
}

/// Decodes one record; `None` if it is none of ours (too short, unknown kind).
pub(super) fn decode(bytes: &[u8]) -> Option<CudaEvent> {
    let kind = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    match event_kind(kind) {
        event_kind::EVENT_CUDA_CALL => cuda_call_event::read(bytes).map(|wire| call(&wire)),
        event_kind::EVENT_DEVICE_MEMORY => {
            device_memory_event::read(bytes).map(|wire| memory(&wire))
        }
        _ => None,
    }
}

fn call(wire: &cuda_call_event) -> CudaEvent {
    CudaEvent::Call(CudaCallEvent {
        pid: wire.pid,
        tid: wire.tid,
        function: wire.function,
        kind: CallKind(u32::from(wire.call_kind)),
        start_ns: wire.start_ns,
        end_ns: wire.end_ns.max(wire.start_ns),
        stream: wire.stream,
        bytes: wire.bytes,
        grid: wire.grid,
        result: wire.result,
    })
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

    #[test]
    fn a_device_is_type_and_index() {
        let wire = device_memory_event {
            kind: event_kind::EVENT_DEVICE_MEMORY.0,
            device: 0x0301,
            bytes: -512,
            ..Default::default()
        };
        match decode(wire.bytes()) {
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
