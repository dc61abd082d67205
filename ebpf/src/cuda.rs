//! Probes on CUDA, NCCL and torch functions, and their events.
//!
//! Owns the object of `bpf/cuda.bpf.c`. The caller passes the functions and their locations.

mod calibrate;
mod cookie;

/// A call, as `struct cuda_call_event` in `bpf/event.h` has it. It never ends before it starts; what
/// its function does not take is 0.
pub use crate::cuda::skeleton::types::cuda_call_event as CudaCallEvent;
pub use calibrate::CudaCalibration;
pub use cookie::CallProbe;

use crate::attach::{LinkPlan, ProbeEnd};
use crate::error::Error;
use crate::session::{Attachment, BpfSession};
use crate::support::{AttachMethod, per_cpu_sum};
use crate::wire::read;
use crate::{arch, link};
use gctrace_abi::CallKind;
use gctrace_event::DeviceMemory;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{ProgramAttachType, RingBuffer, RingBufferBuilder};
use skeleton::types::{call_counter, device_memory_event, event_kind};
use skeleton::{CudaSkel, CudaSkelBuilder};
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::path::Path;
use std::rc::Rc;

crate::skeleton!(mod "cuda");

/// The loaded programs. Dropping it detaches nothing: links have their own lifetime.
pub struct CudaPrograms {
    // Declared, and so dropped, before the programs it reads from.
    ring: RingBuffer<'static>,
    batch: Rc<RefCell<Vec<CudaEvent>>>,
    attach: AttachMethod,
    skeleton: CudaSkel<'static>,
}

/// The programs' counts for one kind of call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Hits in recorded processes, nested calls included; one per call, at the entry.
    pub hits: u64,
    /// Of these: nested in another recorded call.
    pub nested: u64,
    /// Hits in processes that are not recorded but use the same library.
    pub foreign: u64,
    /// Lost because the ring was full.
    pub lost: u64,
}

impl CudaPrograms {
    /// Loads the programs; no function is probed yet.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::Map`], [`Error::RingSize`].
    pub fn load(session: &BpfSession, ring_bytes: u32) -> Result<Self, Error> {
        if ring_bytes < 4096 || !ring_bytes.is_power_of_two() {
            return Err(Error::RingSize(ring_bytes));
        }
        let attach = session.attach_kind();
        // Borrowed by the skeleton for its whole life: until gctrace ends.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = CudaSkelBuilder::default().open(storage).map_err(Error::Load)?;
        open.maps.call_ring.set_max_entries(ring_bytes).map_err(Error::Load)?;
        let shared = session.shared_maps()?;
        shared.lend(open.open_object_mut()).map_err(Error::Load)?;
        if attach == AttachMethod::Single {
            // The value 0, as in ordinary kprobe programs.
            for program in [&mut open.progs.at_call, &mut open.progs.at_call_return] {
                program.set_attach_type(ProgramAttachType::CgroupInetIngress);
            }
        }
        let skeleton = open.load().map_err(Error::Load)?;
        let batch = Rc::new(RefCell::new(Vec::new()));
        let ring = ring(&skeleton, &batch).map_err(Error::Load)?;
        Ok(Self { ring, batch, attach, skeleton })
    }

    /// Places probes in a file: they fire in every process that maps it, now and later.
    ///
    /// # Errors
    /// [`Error::Attach`] with the kernel's error.
    pub fn attach(&mut self, file: &Path, probes: &[CallProbe]) -> Result<Attachment, Error> {
        let (mut entries, mut returns) = (LinkPlan::default(), LinkPlan::default());
        for probe in probes {
            let cookie = probe.cookie();
            entries.push(probe.entry, cookie, None);
            for instruction in &probe.returns {
                entries.push(*instruction, probe.cookie_at_return(), None);
            }
            if probe.on_return || (arch::ENDS_LAUNCHES && probe.encloses) {
                returns.push(probe.entry, cookie, None);
            }
        }
        let mut links = Vec::new();
        // Return probes first: a call with a seen start must have a seen end.
        let ends = [
            (&self.skeleton.progs.at_call_return, &returns, ProbeEnd::Return),
            (&self.skeleton.progs.at_call, &entries, ProbeEnd::Entry),
        ];
        for (program, plan, end) in ends {
            if plan.is_empty() {
                continue;
            }
            let linked = link::attach(self.attach, None, program, file, plan, end);
            links.extend(linked.map_err(|source| Error::Attach {
                file: file.to_owned(),
                source: source.into(),
            })?);
        }
        Ok(Attachment::new(links))
    }

    /// Drains the ring, in the order of each thread's events.
    ///
    /// # Errors
    /// [`Error::Map`] if the ring cannot be read.
    pub fn poll(&mut self) -> Result<Vec<CudaEvent>, Error> {
        self.ring.consume().map_err(|source| Error::Map { map: "call_ring", source })?;
        Ok(std::mem::take(&mut *self.batch.borrow_mut()))
    }

    /// The programs' counts for a kind of call.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn counts(&self, kind: CallKind) -> Result<CallCounts, Error> {
        Ok(CallCounts {
            hits: self.counter(call_counter::CALL_HITS, kind)?,
            nested: self.counter(call_counter::CALL_NESTED, kind)?,
            foreign: self.counter(call_counter::CALL_FOREIGN, kind)?,
            lost: self.counter(call_counter::CALL_LOST, kind)?,
        })
    }

    fn counter(&self, which: call_counter, kind: CallKind) -> Result<u64, Error> {
        let map = &self.skeleton.maps.call_counters;
        per_cpu_sum(map, "call_counters", which.0 + kind as u32)
    }
}

fn ring(
    skeleton: &CudaSkel<'_>,
    batch: &Rc<RefCell<Vec<CudaEvent>>>,
) -> libbpf_rs::Result<RingBuffer<'static>> {
    let batch = Rc::clone(batch);
    let mut builder = RingBufferBuilder::new();
    builder.add(&skeleton.maps.call_ring, move |bytes: &[u8]| {
        batch.borrow_mut().extend(decode(bytes));
        0
    })?;
    builder.build()
}

/// An event of a probe on CUDA, NCCL or torch.
#[derive(Clone, Copy, Debug)]
pub enum CudaEvent {
    /// A completed call.
    Call(CudaCallEvent),
    /// Torch's caching allocator allocated or freed device memory.
    Memory(DeviceMemory),
}

/// Decodes one record; `None` if it is invalid (too short, unknown kind).
fn decode(bytes: &[u8]) -> Option<CudaEvent> {
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
