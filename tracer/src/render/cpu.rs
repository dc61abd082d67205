//! The section on samples of what threads execute (`--sample`).

use super::table::{ReportSection, TableOfColumns, paragraph};
use crate::units::{count, counted, duration, percent};
use gctrace_analysis::report::{CpuReport, Report};
use gctrace_analysis::words::samples::{busy_share, cpu_time, file_name, line};

/// Maximum number of processes listed; the others are in the JSON.
const PROCESSES_SHOWN: usize = 4;
/// Maximum number of lines, and of files, of each.
const SHOWN: usize = 10;

pub(crate) fn cpu(report: &Report) -> ReportSection {
    let mut lines = Vec::new();
    for cpu in report.cpu.iter().take(PROCESSES_SHOWN) {
        lines.extend(paragraph(&sentence(cpu, report.cpu.len() > 1)));
        lines.extend(table(cpu));
    }
    if !lines.is_empty() {
        lines.extend(paragraph(
            "Measured by samples: a line has those of all that it calls, of each stack the innermost line \
             that is no library's. A thread that waits has none.",
        ));
    }
    ReportSection::new("What used the CPU", lines)
}

fn sentence(cpu: &CpuReport, is_one_of_several: bool) -> String {
    let of = if is_one_of_several { format!(" of process {}", cpu.pid) } else { String::new() };
    format!(
        "{} of CPU time{of} in {}, by {} samples ({} a second); the busiest thread ran {} of {}. In \
         collections: {}.",
        cpu_time(cpu, cpu.samples),
        counted(cpu.threads, "thread"),
        count(cpu.samples),
        cpu.hertz,
        percent(busy_share(cpu)),
        duration(cpu.observed_ns),
        share(cpu.in_pauses, cpu),
    )
}

fn share(samples: u64, cpu: &CpuReport) -> String {
    percent(samples as f64 / cpu.samples.max(1) as f64)
}

fn table(cpu: &CpuReport) -> Vec<String> {
    let lines = cpu.lines.iter().take(SHOWN).map(|of| (line(of), of.samples));
    let files = cpu.files.iter().take(SHOWN).map(|of| (file_name(of), of.samples));
    let table = |title: &str, rows: Vec<(String, u64)>| {
        TableOfColumns::new(&rows)
            .left(title, |(name, _)| name.clone())
            .right("CPU time", |(_, samples)| cpu_time(cpu, *samples))
            .right("share", |(_, samples)| share(*samples, cpu))
            .lines()
    };
    let mut all = table("Python line", lines.collect());
    all.extend(table("machine code of", files.collect()));
    all
}
