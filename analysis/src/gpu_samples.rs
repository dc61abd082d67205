//! NVML's samples of the GPUs of one trace, summed.
//!
//! Owns the sums, in memory bounded by the numbers of GPUs and of processes on them.

use crate::bounded::{ranked, within_bound};
use crate::figure::Basis;
use crate::time::extend;
use gctrace_event::{GpuDevice, GpuSample, is_throttling};
use gctrace_stats::ratio;
use serde::Serialize;
use std::collections::BTreeMap;

/// NVML samples of one GPU in one trace. Context for the pauses rather than evidence: a utilization covers a sample
/// period of 1/6 s to 1 s. That is too long to show a gap as short as a pause.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuReport {
    /// Always measured: the samples are the driver's (NVML).
    pub basis: Basis,
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// NVML's index of the GPU on its host, from 0.
    pub index: u32,
    /// UUID of the GPU (`GPU-...`); `null` if unknown.
    pub uuid: Option<String>,
    /// Product name of the GPU, as NVML reports it; `null` if unknown.
    pub name: Option<String>,
    /// Version of the driver; `null` if unknown.
    pub driver: Option<String>,
    /// Whether the GPU is partitioned by MIG.
    pub mig: bool,
    /// Number of NVML samples of this GPU in the trace.
    pub samples: u64,
    /// Time from the first to the last sample, in ns.
    pub covered_ns: u64,
    /// Share of the sample period with any kernel running, including kernels that only wait, 0 to 1; `null` if no
    /// sample has it.
    pub utilization_ratio: Option<GpuFigure>,
    /// Share of the sample period with accesses to device memory, 0 to 1; `null` if no sample has it.
    pub memory_utilization_ratio: Option<GpuFigure>,
    /// Memory used by all processes, in bytes; `null` if no sample has it.
    pub memory_used_bytes: Option<GpuFigure>,
    /// Memory of the GPU, in bytes; `null` if unknown.
    pub memory_total_bytes: Option<u64>,
    /// Power draw in W; `null` if no sample has it.
    pub power_w: Option<GpuFigure>,
    /// Clock of the streaming multiprocessors in MHz; `null` if no sample has it.
    pub sm_clock_mhz: Option<GpuFigure>,
    /// Clock of the memory in MHz; `null` if no sample has it.
    pub memory_clock_mhz: Option<GpuFigure>,
    /// Data received over PCIe, in the driver's KB per second, measured over 20 ms at most once a
    /// second; `null` if no sample has it.
    pub pcie_rx_kb_per_s: Option<GpuFigure>,
    /// Data sent over PCIe, in the driver's KB per second, measured over 20 ms at most once a
    /// second; `null` if no sample has it.
    pub pcie_tx_kb_per_s: Option<GpuFigure>,
    /// Share of samples with clocks reduced by power, heat or another GPU (not by idleness or a
    /// setting), 0 to 1; `null` if no sample contains throttle reasons.
    pub throttled_ratio: Option<f64>,
    /// All throttle reasons seen, the most frequent first.
    pub throttle_reasons: Vec<ThrottleShare>,
    /// Processes with memory on the GPU, the largest first.
    pub processes: Vec<GpuProcessReport>,
}

/// Statistics of one figure over all samples with a value; unit as in its name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuFigure {
    /// Number of samples with a value.
    pub samples: u64,
    /// Mean of the samples with a value, not weighted by time.
    pub mean: f64,
    /// Smallest value among the samples, in the same unit.
    pub min: f64,
    /// Largest value among the samples, in the same unit.
    pub max: f64,
}

/// How often one reason reduced the clocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThrottleShare {
    /// NVML's name of the reason, for example `sw_power_cap`.
    pub reason: String,
    /// Share of the samples with throttle reasons, 0 to 1.
    pub ratio: f64,
    /// Whether it counts as throttling; `gpu_idle` and settings do not.
    pub throttling: bool,
}

/// A process with memory on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuProcessReport {
    /// Process id on the host, as the driver reports it.
    pub pid: u32,
    /// Rank in a distributed job; `null` if unknown.
    pub rank: Option<u32>,
    /// Whether gctrace recorded the process in this trace, not only its use of the GPU.
    pub recorded: bool,
    /// Largest amount of memory of the process, in bytes; `null` if the driver does not report it.
    pub memory_peak_bytes: Option<u64>,
}

/// GPUs of one trace; a damaged trace may name any number.
const GPUS_KEPT: usize = 1_024;
/// Processes of one GPU, and reasons.
const NAMES_KEPT: usize = 4_096;

/// The GPUs of a trace, by NVML's index.
#[derive(Debug, Default)]
pub(crate) struct GpuSamples(BTreeMap<u32, GpuSampleSums>);

#[derive(Debug, Default)]
struct GpuSampleSums {
    device: GpuDevice,
    samples: u64,
    /// First and last sample.
    span: Option<(u64, u64)>,
    utilization: SampleSums,
    memory_utilization: SampleSums,
    memory_used: SampleSums,
    power: SampleSums,
    sm_clock: SampleSums,
    memory_clock: SampleSums,
    pcie_rx: SampleSums,
    pcie_tx: SampleSums,
    /// Samples with throttle reasons, samples with a throttling one, and each reason.
    reasoned: u64,
    throttled: u64,
    reasons: BTreeMap<String, u64>,
    processes: BTreeMap<u32, Option<u64>>,
}

/// Values of NVML are whole numbers.
#[derive(Clone, Copy, Debug, Default)]
struct SampleSums {
    samples: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// The recorded processes of a trace, and their ranks.
pub(crate) type Recorded = BTreeMap<u32, Option<u32>>;

impl GpuSamples {
    /// Adds a description; the last one counts.
    pub(crate) fn describe(&mut self, device: GpuDevice) {
        if let Some(sums) = within_bound(&mut self.0, device.index, GPUS_KEPT) {
            sums.device = device;
        }
    }

    /// Adds a sample.
    pub(crate) fn add(&mut self, sample: GpuSample) {
        if let Some(sums) = within_bound(&mut self.0, sample.device, GPUS_KEPT) {
            sums.add(sample);
        }
    }

    pub(crate) fn has_samples(&self) -> bool {
        self.0.values().any(|gpu| gpu.samples > 0)
    }

    /// GPUs in the order of their index.
    pub(crate) fn report(&self, trace: usize, recorded: &Recorded) -> Vec<GpuReport> {
        self.0.iter().map(|(index, sums)| sums.report(trace, *index, recorded)).collect()
    }
}

impl GpuSampleSums {
    fn add(&mut self, sample: GpuSample) {
        self.samples += 1;
        extend(&mut self.span, sample.at_ns, sample.at_ns);
        self.utilization.add(sample.utilization_percent);
        self.memory_utilization.add(sample.memory_utilization_percent);
        self.memory_used.add(sample.memory_used_bytes);
        self.power.add(sample.power_mw);
        self.sm_clock.add(sample.sm_clock_mhz);
        self.memory_clock.add(sample.memory_clock_mhz);
        self.pcie_rx.add(sample.pcie_rx_kb_per_s);
        self.pcie_tx.add(sample.pcie_tx_kb_per_s);
        if let Some(throttled) = sample.throttled() {
            self.reasoned += 1;
            self.throttled += u64::from(throttled);
        }
        for reason in sample.throttle_reasons.into_iter().flatten() {
            if let Some(count) = within_bound(&mut self.reasons, reason, NAMES_KEPT) {
                *count += 1;
            }
        }
        for process in sample.processes.into_iter().flatten() {
            if let Some(peak) = within_bound(&mut self.processes, process.pid, NAMES_KEPT) {
                *peak = process.memory_bytes.max(*peak);
            }
        }
    }

    fn report(&self, trace: usize, index: u32, recorded: &Recorded) -> GpuReport {
        GpuReport {
            basis: Basis::Measured,
            trace,
            index,
            uuid: self.device.uuid.clone(),
            name: self.device.name.clone(),
            driver: self.device.driver.clone(),
            mig: self.device.mig,
            samples: self.samples,
            covered_ns: if let Some((first, last)) = self.span { last - first } else { 0 },
            utilization_ratio: self.utilization.report(100.0),
            memory_utilization_ratio: self.memory_utilization.report(100.0),
            memory_used_bytes: self.memory_used.report(1.0),
            memory_total_bytes: self.device.memory_total_bytes,
            power_w: self.power.report(1000.0),
            sm_clock_mhz: self.sm_clock.report(1.0),
            memory_clock_mhz: self.memory_clock.report(1.0),
            pcie_rx_kb_per_s: self.pcie_rx.report(1.0),
            pcie_tx_kb_per_s: self.pcie_tx.report(1.0),
            throttled_ratio: ratio(self.throttled, self.reasoned),
            throttle_reasons: self.throttle_reasons(),
            processes: self.processes(recorded),
        }
    }

    fn throttle_reasons(&self) -> Vec<ThrottleShare> {
        let reasons = ranked(&self.reasons, usize::MAX, |(_, count)| *count).into_iter();
        let reasons = reasons.map(|(reason, count)| ThrottleShare {
            reason: reason.clone(),
            ratio: ratio(*count, self.reasoned).unwrap_or(0.0),
            throttling: is_throttling(reason),
        });
        reasons.collect()
    }

    fn processes(&self, recorded: &Recorded) -> Vec<GpuProcessReport> {
        let processes = self.processes.iter();
        let processes = processes.map(|(pid, memory_peak_bytes)| GpuProcessReport {
            pid: *pid,
            rank: recorded.get(pid).copied().flatten(),
            recorded: recorded.contains_key(pid),
            memory_peak_bytes: *memory_peak_bytes,
        });
        ranked(processes, usize::MAX, |process| process.memory_peak_bytes)
    }
}

impl SampleSums {
    fn add(&mut self, value: Option<impl Into<u64>>) {
        let Some(value) = value.map(Into::into) else { return };
        self.min = match self.samples {
            0 => value,
            _ => value.min(self.min),
        };
        self.max = value.max(self.max);
        self.samples += 1;
        self.sum += u128::from(value);
    }

    /// In units of `unit`; `None` without samples.
    fn report(self, unit: f64) -> Option<GpuFigure> {
        if self.samples == 0 {
            return None;
        }
        Some(GpuFigure {
            samples: self.samples,
            mean: self.sum as f64 / self.samples as f64 / unit,
            min: self.min as f64 / unit,
            max: self.max as f64 / unit,
        })
    }
}
