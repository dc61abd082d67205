//! The GPUs of one process, from all sources.
//!
//! Matches figures of the same device: CUDA and PyTorch use the same numbering, NVML may use another.

use super::device_work::LiveDeviceWork;
use super::history::PauseHistory;
use super::snapshot::ProcessGpu;
use crate::accumulate::interval_union::IntervalUnion;
use crate::bounded::within_bound;
use crate::cuda::CUDA_DEVICE;
use crate::leak_watch::AllocatedMemory;
use std::collections::BTreeMap;

/// Devices of one process; a host has sixteen.
const DEVICES: usize = 64;

/// GPU use of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessGpus {
    /// By CUDA's index within the process.
    work: BTreeMap<u32, LiveDeviceWork>,
}

impl ProcessGpus {
    /// Adds an operation. `paused`: when pauses of the process ran.
    pub(super) fn add(&mut self, device: u32, start_ns: u64, end_ns: u64, paused: &IntervalUnion) {
        if let Some(work) = within_bound(&mut self.work, device, DEVICES) {
            work.add(start_ns, end_ns, paused);
        }
    }

    /// Adds time with a pause running and no other.
    pub(super) fn add_paused(&mut self, start_ns: u64, end_ns: u64) {
        for work in self.work.values_mut() {
            work.add_paused(start_ns, end_ns);
        }
    }

    /// Time in pauses that is forgotten now.
    pub(super) fn forget_paused(&mut self, start_ns: u64, end_ns: u64) {
        for work in self.work.values_mut() {
            work.forget_paused(start_ns, end_ns);
        }
    }

    /// The device shown in the timeline: the first by index.
    pub(super) fn first(&self) -> Option<&LiveDeviceWork> {
        self.work.values().next()
    }

    /// `until`, `buckets`: end and length of the interval. `torch`: what PyTorch's allocators have. `by_nvml`:
    /// indices of NVML and the memory there.
    pub(super) fn figures(
        &self,
        (until, buckets): (u64, u64),
        history: Option<&PauseHistory>,
        torch: &AllocatedMemory,
        by_nvml: impl Iterator<Item = (u32, Option<u64>)>,
    ) -> Vec<ProcessGpu> {
        let mut devices: BTreeMap<u32, ProcessGpu> = BTreeMap::new();
        let paused =
            |from, until| if let Some(of) = history { of.paused_ns(from, until) } else { 0 };
        for (device, work) in &self.work {
            let busy = Some(work.figures(until, buckets, paused));
            devices.entry(*device).or_default().busy = busy;
        }
        for ((device_type, device), (allocated, reserved)) in torch {
            let (&CUDA_DEVICE, Ok(device)) = (device_type, u32::try_from(*device)) else {
                continue;
            };
            let gpu = devices.entry(device).or_default();
            gpu.torch_allocated_bytes = Some(*allocated);
            gpu.torch_reserved_bytes = Some(*reserved);
        }
        let mut gpus: Vec<ProcessGpu> =
            devices.into_iter().map(|(device, gpu)| ProcessGpu { device, ..gpu }).collect();
        let by_nvml: Vec<_> = by_nvml.collect();
        match (gpus.as_mut_slice(), by_nvml.as_slice()) {
            ([only], [(index, memory_bytes)]) => {
                only.nvml_index = Some(*index);
                only.memory_bytes = *memory_bytes;
            }
            _ => gpus.extend(by_nvml.into_iter().map(|(index, memory_bytes)| ProcessGpu {
                device: index,
                by_nvml: true,
                nvml_index: Some(index),
                memory_bytes,
                ..ProcessGpu::default()
            })),
        }
        gpus
    }
}
