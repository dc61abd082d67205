//! Threads that are off the CPU.

use super::BpfSession;
use crate::decode::off_cpu;
use crate::error::Error;
use crate::event::OffCpuEvent;
use crate::wire::{OffCpuWire, SampledThread};
use libbpf_rs::{MapCore as _, MapFlags};
use zerocopy::FromBytes as _;

/// A shorter time off the CPU is not recorded, in ns: `OFF_CPU_NS` of `bpf/sampled_thread.bpf.h`.
const OFF_CPU_NS: u64 = 1_000_000;
/// `STACK_LOST` of `bpf/stack.bpf.h`: a stack that was not taken or sent.
const STACK_LOST: u64 = 1;

impl BpfSession {
    /// The times off the CPU that have not ended, cut at `at_ns` (CLOCK_MONOTONIC); empty unless samples are
    /// taken.
    ///
    /// # Errors
    /// [`Error::Map`] if the map cannot be read.
    pub fn open_waits(&self, at_ns: u64) -> Result<Vec<OffCpuEvent>, Error> {
        let map = &self.skeleton.maps.sampled_threads;
        let mut open = Vec::new();
        for key in map.keys() {
            let value = map
                .lookup(&key, MapFlags::ANY)
                .map_err(|source| Error::Map { map: "sampled_threads", source })?;
            let Some(value) = value else { continue };
            let tid = key.try_into().map(u32::from_ne_bytes);
            if let (Ok(thread), Ok(tid)) = (SampledThread::read_from_bytes(&value), tid)
                && thread.off_cpu_ns > 0
                && at_ns.saturating_sub(thread.off_cpu_ns) >= OFF_CPU_NS
            {
                open.extend(off_cpu(&OffCpuWire {
                    pid: thread.pid,
                    tid,
                    flags: thread.flags,
                    start_ns: thread.off_cpu_ns,
                    end_ns: at_ns,
                    stack: if thread.stack == STACK_LOST { 0 } else { thread.stack },
                    reason: thread.reason,
                    ..OffCpuWire::default()
                }));
            }
        }
        Ok(open)
    }
}
