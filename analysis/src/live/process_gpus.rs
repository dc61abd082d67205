//! The GPUs of one process, from all sources.
//!
//! Owns which figures belong to the same device: CUDA and PyTorch use the same numbering, NVML may
//! use another.

use super::device_work::LiveDeviceWork;
use super::history::PauseHistory;
use super::snapshot::ProcessGpu;
use crate::accumulate::cuda::CUDA_DEVICE;
use crate::accumulate::interval_union::IntervalUnion;
use gctrace_event::DeviceMemory;
use std::collections::BTreeMap;

/// Devices of one process; a host has sixteen.
const DEVICES: usize = 64;

/// GPU use of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessGpus {
    work: Vec<LiveDeviceWork>,
    /// Bytes that torch's allocator has allocated and reserved, by device.
    torch: BTreeMap<u32, (u64, u64)>,
}

impl ProcessGpus {
    /// Adds an operation. `paused`: when pauses of the process ran.
    pub(super) fn add(&mut self, device: u32, start_ns: u64, end_ns: u64, paused: &IntervalUnion) {
        let at = self.work.iter().position(|work| work.device == device);
        let at = at.unwrap_or(self.work.len());
        if at == self.work.len() {
            if at >= DEVICES {
                return;
            }
            self.work.push(LiveDeviceWork::new(device));
        }
        if let Some(work) = self.work.get_mut(at) {
            work.add(start_ns, end_ns, paused);
        }
    }

    /// Adds a sample of the memory of PyTorch's allocator.
    pub(super) fn add_memory(&mut self, memory: &DeviceMemory) {
        let device = u32::try_from(memory.device);
        if let (CUDA_DEVICE, Ok(device)) = (memory.device_type, device)
            && (self.torch.len() < DEVICES || self.torch.contains_key(&device))
        {
            let held = (memory.allocated, memory.reserved);
            self.torch.insert(device, held);
        }
    }

    /// Adds time in which a pause ran and no other did.
    pub(super) fn add_paused(&mut self, start_ns: u64, end_ns: u64) {
        for work in &mut self.work {
            work.add_paused(start_ns, end_ns);
        }
    }

    /// Time in pauses that is forgotten now.
    pub(super) fn forget_paused(&mut self, start_ns: u64, end_ns: u64) {
        for work in &mut self.work {
            work.forget_paused(start_ns, end_ns);
        }
    }

    /// The device shown in the timeline: the first by index.
    pub(super) fn first(&self) -> Option<&LiveDeviceWork> {
        self.work.iter().min_by_key(|work| work.device)
    }

    /// `until`, `buckets`: end and length of the interval. `by_nvml`: indices of NVML and the
    /// memory there.
    pub(super) fn figures(
        &self,
        (until, buckets): (u64, u64),
        history: Option<&PauseHistory>,
        by_nvml: impl Iterator<Item = (u32, Option<u64>)>,
    ) -> Vec<ProcessGpu> {
        let mut devices: BTreeMap<u32, ProcessGpu> = BTreeMap::new();
        let paused = |from, until| history.map_or(0, |history| history.paused_ns(from, until));
        for work in &self.work {
            let busy = Some(work.figures(until, buckets, paused));
            devices.entry(work.device).or_default().busy = busy;
        }
        for (device, (allocated, reserved)) in &self.torch {
            let gpu = devices.entry(*device).or_default();
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
