//! The section on CUDA, NCCL and torch's device memory.

use crate::document::{Block, Section, Table, paragraph};
use crate::units::{duration, short_count};
use gctrace_analysis::report::{CudaReport, DeviceMemoryReport, Report};
use gctrace_event::GpuApi;

/// Maximum number of functions shown; the others are in the JSON.
const FUNCTIONS_SHOWN: usize = 8;
/// Maximum number of devices shown.
const DEVICES_SHOWN: usize = 8;

pub(crate) fn cuda(report: &Report) -> Section {
    let mut blocks = Vec::new();
    if let Some(cuda) = &report.cuda {
        blocks.push(paragraph(launches(cuda)));
        blocks.extend(functions(cuda));
        let devices = cuda.memory.iter().take(DEVICES_SHOWN);
        blocks.extend(devices.map(|memory| paragraph(device(memory))));
    }
    let heading = match api(report.cuda.as_ref()) {
        GpuApi::Cuda => "CUDA calls",
        GpuApi::Hip => "HIP calls",
        GpuApi::LevelZero => "Level Zero calls",
    };
    Section::new(heading, blocks)
}

/// The API of most calls.
pub(super) fn api(cuda: Option<&CudaReport>) -> GpuApi {
    let functions = cuda.iter().flat_map(|cuda| &cuda.functions);
    let apis =
        functions.filter_map(|function| Some((GpuApi::of(&function.name)?.0, function.count)));
    if let Some((api, _)) = apis.max_by_key(|(_, count)| *count) { api } else { GpuApi::Cuda }
}

fn launches(cuda: &CudaReport) -> String {
    let rate = match cuda.launches_per_s {
        Some(rate) => format!(" ({} per second)", short_count(rate as u64)),
        None => String::new(),
    };
    let passes = match cuda.backward_passes {
        0 => String::new(),
        count => {
            format!("; {} backward passes took {}", short_count(count), duration(cuda.backward_ns))
        }
    };
    format!("{} kernel and graph launches{rate}{passes}.", short_count(cuda.launches))
}

fn functions(cuda: &CudaReport) -> Option<Block> {
    if cuda.functions.is_empty() {
        return None;
    }
    let timed = |ns: u64| if ns == 0 { "-".to_owned() } else { duration(ns) };
    let table = Table::of(cuda.functions.iter().take(FUNCTIONS_SHOWN))
        .left("function", |function| function.name.clone())
        .right("calls", |function| short_count(function.count))
        .right("time", |function| timed(function.time_ns))
        .right("longest", |function| timed(function.max_ns));
    Some(table.into())
}

fn device(memory: &DeviceMemoryReport) -> String {
    let freed = match memory.freed_in_pauses_bytes {
        None => String::new(),
        Some(0) => "; nothing was freed in pauses".to_owned(),
        Some(bytes) => format!("; {} were freed in pauses", mebibytes(bytes)),
    };
    format!(
        "Device {} of process {}: peaks of {} allocated and {} reserved by torch{freed}.",
        memory.device,
        memory.pid,
        mebibytes(memory.peak_allocated_bytes),
        mebibytes(memory.peak_reserved_bytes),
    )
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_analysis::Analysis;
    use gctrace_analysis::report::CudaFunction;

    #[test]
    fn the_section_lists_calls_and_memory() {
        let mut report = Analysis::default().report();
        assert!(cuda(&report).is_empty());
        report.cuda = Some(CudaReport {
            launches: 1_234_567,
            launches_per_s: Some(51_000.0),
            functions: vec![CudaFunction {
                category: "cuda_driver".to_owned(),
                name: "cuStreamSynchronize".to_owned(),
                count: 40,
                time_ns: 2_500_000_000,
                max_ns: 90_000_000,
                bytes: 0,
                errors: 0,
            }],
            memory: vec![DeviceMemoryReport {
                trace: 0,
                pid: 42,
                device: 1,
                peak_allocated_bytes: 3 << 20,
                peak_reserved_bytes: 8 << 20,
                freed_in_pauses_bytes: Some(512 << 10),
            }],
            pauses_that_freed: 3,
            backward_passes: 20,
            backward_ns: 1_000_000_000,
        });
        let text = cuda(&report).text();
        assert!(text.contains("backward passes"), "{text}");
        assert!(text.contains("cuStreamSynchronize"), "{text}");
        assert!(text.contains("0.5 MiB were freed"), "{text}");
    }
}
