//! GPUs as NVML reports them: the latest figures of each, and its utilization of the last minute. `gpu_samples.rs`
//! sums up all samples of a trace; nothing of that is shown here.

use super::locations::first_bytes;
use super::ring::{BUCKET_NS, BucketRing, bucket};
use super::snapshot::GpuFigures;
use crate::bounded::within_bound;
use gctrace_event::{GpuDevice, GpuProcess, GpuSample};
use std::collections::BTreeMap;

/// GPUs that are kept; a host has sixteen, or with MIG some hundred.
const GPUS: usize = 256;
/// Processes of one GPU.
const PROCESSES: usize = 4_096;
/// Maximum length of a product name, in bytes.
const NAME_BYTES: usize = 128;
/// A sample is valid for this long: NVML's sample period is at most 1 s (nvml.h,
/// `nvmlDeviceGetUtilizationRates`), and `--nvml-hz` may be as low as that.
const STANDS: u64 = 2_000_000_000 / BUCKET_NS;

/// GPUs by NVML's index.
#[derive(Debug, Default)]
pub(super) struct LiveGpus(BTreeMap<u32, LiveGpu>);

#[derive(Debug, Default)]
struct LiveGpu {
    figures: GpuFigures,
    /// Processes with a compute context, by pid.
    processes: Vec<GpuProcess>,
    utilization: BucketRing<Option<u8>>,
}

impl LiveGpus {
    fn of(&mut self, index: u32) -> Option<&mut LiveGpu> {
        let gpu = within_bound(&mut self.0, index, GPUS)?;
        gpu.figures.index = index;
        Some(gpu)
    }

    pub(super) fn describe(&mut self, device: &GpuDevice) {
        let Some(gpu) = self.of(device.index) else {
            return;
        };
        let name = device.name.as_deref();
        gpu.figures.name = name.map(|name| first_bytes(name, NAME_BYTES).to_owned());
        gpu.figures.memory_total_bytes = device.memory_total_bytes;
    }

    pub(super) fn add(&mut self, sample: &GpuSample) {
        let Some(gpu) = self.of(sample.device) else {
            return;
        };
        gpu.figures.utilization_percent = sample.utilization_percent;
        gpu.figures.memory_used_bytes = sample.memory_used_bytes;
        gpu.figures.at_ns = sample.at_ns;
        if let Some(processes) = &sample.processes {
            gpu.processes.clear();
            gpu.processes.extend(processes.iter().take(PROCESSES));
            gpu.processes.sort_by_key(|process| process.pid);
        }
        let percent = sample.utilization_percent;
        if let Some(slot) = gpu.utilization.slot(bucket(sample.at_ns)) {
            *slot = percent.map(gctrace_units::u8_or_most);
        }
    }

    pub(super) fn figures(&self) -> Vec<GpuFigures> {
        self.0.values().map(|gpu| gpu.figures.clone()).collect()
    }

    /// The GPUs that a process has a context on, and its memory there.
    pub(super) fn used_by(&self, pid: u32) -> impl Iterator<Item = (u32, Option<u64>)> {
        self.0.iter().filter_map(move |(index, gpu)| {
            let at = gpu.processes.binary_search_by_key(&pid, |one| one.pid);
            let process = gpu.processes.get(at.ok()?)?;
            Some((*index, process.memory_bytes))
        })
    }

    /// Utilization of a GPU at the end of a bucket, in percent.
    pub(super) fn utilization(&self, index: u32, bucket: u64) -> Option<u32> {
        let gpu = self.0.get(&index)?;
        let from = bucket.saturating_sub(STANDS);
        let samples = gpu.utilization.within(from, bucket.saturating_add(1));
        let last = samples.filter_map(|(_, percent)| percent).last();
        last.map(u32::from)
    }
}
