//! CUDA and NCCL calls, PyTorch's device memory and backward passes: sums over a trace, and over
//! several.
//!
//! The cost of pauses for the GPU is not computed here.

use crate::bounded::ranked;
use crate::time::{add_to, duration_ns, extend, sum};
use gctrace_event::{CudaCall, CudaLaunches, DeviceMemory, PauseMemory, StepMark};
use serde::Serialize;
use std::collections::BTreeMap;

/// CUDA and NCCL calls on the CPU, over all traces. They do not show when the GPU did the work.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CudaReport {
    /// Number of launches of kernels and graphs, whether recorded individually or counted.
    pub launches: u64,
    /// Launches per second between the first and the last launch of each trace; `null` if unknown.
    pub launches_per_s: Option<f64>,
    /// Functions by the time in their calls, descending. Launches that were only counted are not
    /// included.
    pub functions: Vec<CudaFunction>,
    /// Memory of PyTorch's caching allocator, by process and device.
    pub memory: Vec<DeviceMemoryReport>,
    /// Number of pauses that freed device memory, once for each device; in-process of full collections.
    pub pauses_that_freed: u64,
    /// Number of backward passes: outermost calls of `torch::autograd::Engine::execute`.
    pub backward_passes: u64,
    /// Time in backward passes, in ns.
    pub backward_ns: u64,
}

/// Calls of one function; only the outermost of nested calls counts.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CudaFunction {
    /// API of the function: `cuda_driver`, `cuda_runtime` or `nccl`.
    pub category: String,
    /// Name of the function, for example `cudaLaunchKernel`.
    pub name: String,
    /// Number of calls that were recorded individually.
    pub count: u64,
    /// Time in the calls, in ns; 0 for launches and events: their return is not recorded.
    pub time_ns: u64,
    /// Length of the longest call, in ns; 0 as for `time_ns`.
    pub max_ns: u64,
    /// Bytes copied, set, allocated or sent; 0 if the function has no size.
    pub bytes: u64,
    /// Number of calls that returned an error.
    pub errors: u64,
}

/// Memory of one device in PyTorch's allocator of one process.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceMemoryReport {
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// Process id: on the host if gctrace recorded the process, otherwise as the trace states it.
    pub pid: u32,
    /// Index of the device in the process.
    pub device: i8,
    /// Largest amount allocated to the program, in bytes, from at most one sample per millisecond; in-process from
    /// the samples at full collections and after `empty_cache()`.
    pub peak_allocated_bytes: u64,
    /// Largest amount reserved from the driver, in bytes, from the same samples.
    pub peak_reserved_bytes: u64,
    /// Device memory freed by collecting threads during their pauses, in bytes; in-process only during measured full
    /// collections. `null` if unknown.
    pub freed_in_pauses_bytes: Option<u64>,
}

/// `c10::DeviceType` of CUDA devices.
pub(crate) const CUDA_DEVICE: i8 = 1;

/// A device as a process numbers it: process, index.
type Device = (u32, i8);

/// Sums over one trace.
#[derive(Debug, Default)]
pub(crate) struct CudaSums {
    /// By API and name; the values lack these.
    functions: BTreeMap<(&'static str, String), CudaFunction>,
    totals: CudaReport,
    /// First and last launch.
    launching: Option<(u64, u64)>,
    devices: BTreeMap<Device, DeviceMemorySums>,
}

#[derive(Debug, Default)]
struct DeviceMemorySums {
    /// Without the device.
    report: DeviceMemoryReport,
    /// Each block is seen, of all pauses.
    reports_blocks: bool,
}

impl CudaSums {
    pub(crate) fn add_call(&mut self, call: &CudaCall) {
        if call.is_launch() {
            self.add(1, (call.start_ns, call.start_ns));
        }
        let key = (call.layer.category(), call.function.to_string());
        let calls = self.functions.entry(key).or_default();
        calls.count += 1;
        add_to(&mut calls.time_ns, call.duration_ns());
        calls.max_ns = calls.max_ns.max(call.duration_ns());
        gctrace_units::add_if_known(&mut calls.bytes, call.bytes);
        calls.errors += u64::from(call.error.is_some());
    }

    pub(crate) fn add_launches(&mut self, launches: &CudaLaunches) {
        self.add(launches.count, (launches.first_ns, launches.last_ns));
    }

    fn add(&mut self, count: u64, (from_ns, to_ns): (u64, u64)) {
        add_to(&mut self.totals.launches, count);
        extend(&mut self.launching, from_ns, to_ns);
    }

    pub(crate) fn add_memory(&mut self, memory: &DeviceMemory) {
        if memory.device_type == CUDA_DEVICE {
            let key = (memory.pid, memory.device);
            let device = self.devices.entry(key).or_default();
            let report = &mut device.report;
            report.peak_allocated_bytes = report.peak_allocated_bytes.max(memory.allocated);
            report.peak_reserved_bytes = report.peak_reserved_bytes.max(memory.reserved);
            if memory.bytes != 0 {
                device.reports_blocks = true;
                report.freed_in_pauses_bytes.get_or_insert(0);
            }
        }
    }

    pub(crate) fn add_pause(&mut self, memory: &PauseMemory) {
        if memory.device_type == CUDA_DEVICE {
            let key = (memory.pid, memory.device);
            let device = self.devices.entry(key).or_default();
            device.reports_blocks |= memory.freed_blocks.is_some();
            let freed_bytes = device.report.freed_in_pauses_bytes.get_or_insert(0);
            add_to(freed_bytes, memory.freed_bytes);
            self.totals.pauses_that_freed += u64::from(memory.freed_bytes > 0);
        }
    }

    pub(crate) fn add_step(&mut self, step: &StepMark) {
        self.totals.backward_passes += 1;
        let length_ns = duration_ns(step.start_ns, step.end_ns);
        add_to(&mut self.totals.backward_ns, length_ns);
    }

    /// Devices with memory of a process's torch.
    pub(crate) fn devices_of(&self, pid: u32) -> usize {
        let devices = self.devices.range((pid, i8::MIN)..=(pid, i8::MAX));
        devices.count()
    }

    /// Device memory that a process freed during pauses, and the most that PyTorch reserved, in bytes, summed over
    /// devices. Devices with unseen blocks do not count.
    pub(crate) fn memory_of(&self, pid: u32) -> (u64, u64) {
        let devices = self.devices.range((pid, i8::MIN)..=(pid, i8::MAX));
        let devices = devices.filter(|(_, memory)| memory.reports_blocks);
        (
            sum(devices.clone().filter_map(|(_, memory)| memory.report.freed_in_pauses_bytes)),
            sum(devices.map(|(_, memory)| memory.report.peak_reserved_bytes)),
        )
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.functions.is_empty()
            && self.totals.launches == 0
            && self.devices.is_empty()
            && self.totals.backward_passes == 0
    }

    fn merge(&mut self, other: &Self) {
        for (key, calls) in &other.functions {
            let sum = self.functions.entry(key.clone()).or_default();
            add_to(&mut sum.count, calls.count);
            add_to(&mut sum.time_ns, calls.time_ns);
            sum.max_ns = sum.max_ns.max(calls.max_ns);
            add_to(&mut sum.bytes, calls.bytes);
            add_to(&mut sum.errors, calls.errors);
        }
        let (totals, others) = (&mut self.totals, &other.totals);
        add_to(&mut totals.launches, others.launches);
        totals.pauses_that_freed += others.pauses_that_freed;
        totals.backward_passes += others.backward_passes;
        add_to(&mut totals.backward_ns, others.backward_ns);
    }

    /// Functions by time, then by number of calls, descending.
    fn functions(&self) -> Vec<CudaFunction> {
        let functions = self.functions.iter().map(|((category, name), calls)| CudaFunction {
            category: (*category).to_owned(),
            name: name.clone(),
            ..calls.clone()
        });
        ranked(functions, usize::MAX, |function| (function.time_ns, function.count))
    }

    fn memory(&self, trace: usize) -> impl Iterator<Item = DeviceMemoryReport> {
        self.devices.iter().map(move |((pid, device), memory)| DeviceMemoryReport {
            trace,
            pid: *pid,
            device: *device,
            ..memory.report.clone()
        })
    }
}

/// The report over traces, each with its index; `None` if they contain none of this.
pub(crate) fn report<'a>(
    traces: impl Iterator<Item = (usize, &'a CudaSums)>,
) -> Option<CudaReport> {
    let (mut sum, mut launching_ns, mut memory) = (CudaSums::default(), 0u64, Vec::new());
    let mut any = false;
    for (index, trace) in traces.filter(|(_, trace)| !trace.is_empty()) {
        any = true;
        sum.merge(trace);
        if let Some((first, last)) = trace.launching {
            add_to(&mut launching_ns, last - first);
        }
        memory.extend(trace.memory(index));
    }
    if !any {
        return None;
    }
    Some(CudaReport {
        launches_per_s: gctrace_stats::rate(sum.totals.launches, launching_ns),
        functions: sum.functions(),
        memory,
        ..sum.totals
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_event::CudaLayer;

    fn call(function: &'static str, start_ns: u64, end_ns: u64) -> CudaCall {
        CudaCall {
            pid: 1,
            tid: 1,
            layer: CudaLayer::Driver,
            function: function.into(),
            start_ns,
            end_ns,
            stream: Some(0),
            bytes: Some(5),
            ..CudaCall::default()
        }
    }

    #[test]
    fn nothing_is_no_report() {
        assert!(report([(0, &CudaSums::default())].into_iter()).is_none());
    }

    #[test]
    fn launches_are_counted_whichever_way_they_were_written() {
        let mut state = CudaSums::default();
        state.add_call(&call("cuLaunchKernel", 1_000_000_000, 1_000_000_000));
        state.add_call(&call("cuStreamSynchronize", 5, 105));
        let counted = CudaLaunches {
            pid: 1,
            tid: 1,
            stream: 0,
            first_ns: 1_000_000_000,
            last_ns: 2_000_000_000,
            count: 99,
        };
        state.add_launches(&counted);
        let report = report([(0, &state)].into_iter()).unwrap();
        assert_eq!(report.launches, 100);
        assert_eq!(report.launches_per_s, Some(100.0));
        assert_eq!(report.functions[0].name, "cuStreamSynchronize");
        assert_eq!(report.functions[0].time_ns, 100);
        assert_eq!(report.functions[1].count, 1);
    }

    #[test]
    fn memory_is_that_of_cuda_devices() {
        let mut state = CudaSums::default();
        let mut memory = DeviceMemory {
            pid: 1,
            tid: 1,
            at_ns: 5,
            device_type: 1,
            device: 0,
            bytes: -10,
            allocated: 90,
            reserved: 200,
        };
        state.add_memory(&memory);
        memory.allocated = 50;
        state.add_memory(&memory);
        memory.device_type = 0;
        memory.allocated = 7000;
        state.add_memory(&memory);
        let report = report([(0, &state)].into_iter()).unwrap();
        assert_eq!(report.memory.len(), 1);
        assert_eq!(report.memory[0].peak_allocated_bytes, 90);
    }
}
