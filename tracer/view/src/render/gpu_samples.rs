//! The section on NVML samples (`--nvml-hz`).

use crate::document::{Block, Section, Table, paragraph};
use crate::text::OrDash as _;
use crate::units::{counted, duration, mebibytes, percent, three_digits};
use gctrace_analysis::report::{GpuFigure, GpuProcessReport, GpuReport, Report};
use std::collections::BTreeMap;

/// Maximum number of GPUs listed; the others are in the JSON.
const GPUS_SHOWN: usize = 16;
/// Maximum number of processes named per GPU.
const PROCESSES_SHOWN: usize = 4;
/// Maximum number of throttle reasons named per GPU.
const REASONS_SHOWN: usize = 3;

pub(crate) fn gpus(report: &Report) -> Section {
    let mut blocks = Vec::new();
    if !report.gpus.is_empty() {
        let several = report.traces.len() > 1;
        let shown: Vec<(String, &GpuReport)> =
            report.gpus.iter().take(GPUS_SHOWN).map(|gpu| (name(gpu, several), gpu)).collect();
        blocks.push(table(&shown));
        blocks.extend(models(&shown).iter().map(paragraph));
        for (name, gpu) in &shown {
            let remarks = [throttling(name, gpu), memory(name, gpu)];
            blocks.extend(remarks.iter().flatten().map(paragraph));
        }
        blocks.push(paragraph(legend(report)));
    }
    Section::new("GPU (NVML)", blocks)
}

fn name(gpu: &GpuReport, several: bool) -> String {
    if several {
        format!("GPU {} of trace {}", gpu.index, gpu.trace + 1)
    } else {
        format!("GPU {}", gpu.index)
    }
}

fn table(shown: &[(String, &GpuReport)]) -> Block {
    let watts = |watts: f64| format!("{} W", three_digits(watts));
    Table::of(shown)
        .left("", |(name, _)| name.clone())
        .right("busy", |(_, gpu)| figure(gpu.utilization_ratio, |busy| percent(busy.mean)))
        .right("(min - max)", |(_, gpu)| {
            figure(gpu.utilization_ratio, |busy| {
                format!("{:.0} - {:.0} %", busy.min * 100.0, busy.max * 100.0)
            })
        })
        .right("memory peak", |(_, gpu)| {
            figure(gpu.memory_used_bytes, |used| memory_peak(gpu, used.max))
        })
        .right("power", |(_, gpu)| figure(gpu.power_w, |power| watts(power.mean)))
        .right("(max)", |(_, gpu)| figure(gpu.power_w, |power| watts(power.max)))
        .right("throttled", |(_, gpu)| gpu.throttled_ratio.map(percent).or_dash())
        .into()
}

/// `17.2 GiB of 80.0 GiB`.
fn memory_peak(gpu: &GpuReport, peak: f64) -> String {
    match gpu.memory_total_bytes {
        Some(total) => format!("{} of {}", mebibytes(peak), mebibytes(total as f64)),
        None => mebibytes(peak),
    }
}

/// `NVIDIA H100 80GB HBM3: GPU 0, GPU 1 (split by MIG).`
fn models(shown: &[(String, &GpuReport)]) -> Vec<String> {
    let mut models: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, gpu) in shown {
        let split = if gpu.mig { " (split by MIG)" } else { "" };
        let model = gpu.name.as_deref().unwrap_or("Unknown model");
        models.entry(model).or_default().push(format!("{name}{split}"));
    }
    let lines = models.into_iter().map(|(model, gpus)| format!("{}: {}.", model, gpus.join(", ")));
    lines.collect()
}

fn figure(figure: Option<GpuFigure>, show: impl FnOnce(GpuFigure) -> String) -> String {
    figure.map(show).or_dash()
}

/// `GPU 0: clocks reduced by sw_power_cap (40 % of samples).`
fn throttling(name: &str, gpu: &GpuReport) -> Option<String> {
    let reasons: Vec<String> = gpu
        .throttle_reasons
        .iter()
        .filter(|share| share.throttling)
        .take(REASONS_SHOWN)
        .map(|share| format!("{} ({} of samples)", share.reason, percent(share.ratio)))
        .collect();
    if reasons.is_empty() {
        return None;
    }
    Some(format!("{name}: clocks reduced by {}.", reasons.join(", ")))
}

/// `GPU 0, memory peak by process: 4242 (rank 0) 17.2 GiB, 99 (not recorded) 1.00 GiB.`
fn memory(name: &str, gpu: &GpuReport) -> Option<String> {
    let mut processes: Vec<String> =
        gpu.processes.iter().take(PROCESSES_SHOWN).map(process).collect();
    let more = gpu.processes.iter().skip(PROCESSES_SHOWN).count();
    if more > 0 {
        processes.push(format!("{more} more"));
    }
    if processes.is_empty() {
        return None;
    }
    Some(format!("{name}, memory peak by process: {}.", processes.join(", ")))
}

fn process(process: &GpuProcessReport) -> String {
    let who = match (process.rank, process.recorded) {
        (Some(rank), _) => format!(" (rank {rank})"),
        (None, true) => String::new(),
        (None, false) => " (not recorded)".to_owned(),
    };
    let peak = match process.memory_peak_bytes {
        Some(peak) => mebibytes(peak as f64),
        None => "unknown".to_owned(),
    };
    format!("{}{who} {peak}", process.pid)
}

fn legend(report: &Report) -> String {
    let more = match report.gpus.iter().skip(GPUS_SHOWN).count() {
        0 => String::new(),
        more => format!("{more} more GPUs (--format json lists more). "),
    };
    let samples: u64 = report.gpus.iter().map(|gpu| gpu.samples).sum();
    let covered_ns = report.gpus.iter().fold(0, |most, gpu| gpu.covered_ns.max(most));
    format!(
        "{more}{} over {}. Busy: utilization by NVML, the share of a window of 1/6 s to \
         1 s in which any kernel ran. Gaps as short as a pause do not show, so this is context, not \
         evidence of the cost of pauses.",
        counted(samples, "sample"),
        duration(covered_ns)
    )
}
