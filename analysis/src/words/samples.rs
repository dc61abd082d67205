//! What a program executes, by samples.

use super::places::place;
use crate::paths::common_directory;
use crate::report::{CpuFile, CpuLine, CpuReport, Report};
use crate::units::{duration, percent};

/// Samples below which shares are not stated: at 100 the 95 % interval of a half is 40 to 60 %.
const ENOUGH: u64 = 100;
/// Lines named.
const NAMED: usize = 3;
/// From this share on a line, a file or collections are worth a word.
const WORTH: f64 = 0.05;

/// Where the process with the most CPU time spends it: `CPU time, 12.3 s by 1,218 samples: 61 % at
/// train.py:41 in step, ...`; `None` without samples, or with too few.
#[must_use]
pub fn samples_in_short(report: &Report) -> Option<String> {
    let cpu = report.cpu.first().filter(|cpu| cpu.samples >= ENOUGH)?;
    let share = |samples: u64| samples as f64 / cpu.samples as f64;
    let is_worth = |samples: u64| share(samples) >= WORTH;
    let lines = cpu.lines.iter().filter(|line| is_worth(line.samples)).take(NAMED);
    let directory = common_directory(cpu.lines.iter().filter_map(|of| of.line.as_ref()));
    let lines = lines.map(|of| {
        let line = line(of).replacen(directory, "", 1);
        format!("{} {line}", percent(share(of.samples)))
    });
    let lines: Vec<String> = lines.collect();
    let file = cpu.files.first().filter(|file| is_worth(file.samples));
    let file = file.map(|of| format!("{} of all in {}", percent(share(of.samples)), file_name(of)));
    let collections = format!("{} in collections", percent(share(cpu.in_pauses)));
    let parts: Vec<String> = lines.into_iter().chain(file).chain([collections]).collect();
    let of = if report.cpu.len() > 1 { format!(" of process {}", cpu.pid) } else { String::new() };
    let (time, busy) = (cpu_time(cpu, cpu.samples), percent(busy_share(cpu)));
    let parts = parts.join(", ");
    Some(format!("CPU time{of}, {time} by samples, busiest thread {busy} busy: {parts}."))
}

/// Share of its time for which the busiest thread was on a CPU, 1 at most; it waited for the rest, or for
/// a CPU.
#[must_use]
pub fn busy_share(cpu: &CpuReport) -> f64 {
    let ns = cpu.busiest_thread as f64 * 1e9 / cpu.hertz as f64;
    (ns / cpu.observed_ns.max(1) as f64).min(1.0)
}

/// Samples as time.
#[must_use]
pub fn cpu_time(cpu: &CpuReport, samples: u64) -> String {
    duration((samples as f64 * 1e9 / cpu.hertz as f64) as u64)
}

/// `at train.py:41 in step`, or what has no Python line.
#[must_use]
pub fn line(of: &CpuLine) -> String {
    let at = |line| format!("at {}", place(line));
    of.line.as_ref().map_or_else(|| "outside of Python".to_owned(), at)
}

/// The name of the file.
#[must_use]
pub fn file_name(of: &CpuFile) -> String {
    of.file.clone().unwrap_or_else(|| "unknown code".to_owned())
}
