//! Decodes the records of the ring of calls. Pure: nothing here uses libbpf.

use super::skeleton::types::{device_memory_event, event_kind};
use crate::wire::read;
use gctrace_event::DeviceMemory;

/// A call, as `struct cuda_call_event` in `bpf/event.h` has it. It never ends before it starts; what
/// its function does not take is 0.
pub use super::skeleton::types::cuda_call_event as CudaCallEvent;

/// An event of a probe on CUDA, NCCL or torch.
#[derive(Clone, Copy, Debug)]
pub enum CudaEvent {
    /// A completed call.
    Call(CudaCallEvent),
    /// Torch's caching allocator allocated or freed device memory.
    Memory(DeviceMemory),
}

/// Decodes one record; `None` if it is invalid (too short, unknown kind).
pub(super) fn decode(bytes: &[u8]) -> Option<CudaEvent> {
    let kind = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    match event_kind(kind) {
        event_kind::EVENT_CUDA_CALL => read(bytes).map(call),
        event_kind::EVENT_DEVICE_MEMORY => read(bytes).map(|wire| memory(&wire)),
        _ => None,
    }
}

fn call(mut call: CudaCallEvent) -> CudaEvent {
    call.end_ns = call.end_ns.max(call.start_ns);
    CudaEvent::Call(call)
}

fn memory(wire: &device_memory_event) -> CudaEvent {
    let [device_type, device, _, _] = wire.device.to_le_bytes();
    CudaEvent::Memory(DeviceMemory {
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
