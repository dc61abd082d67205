//! What a report on several traces costs: CPU time of reading and of everything after it, and the
//! peak of the memory.
//!
//! `cargo run --release -p gctrace-analysis --example report_cost -- TRACES`
//!
//! With `GCTRACE_REPORT` set, the report is written to that file, to compare two builds.

use gctrace_analysis::Analysis;
use gctrace_event::read::TraceReader;
use std::error::Error;
use std::path::Path;
use test_kit::reports;

fn main() -> Result<(), Box<dyn Error>> {
    let mut analysis = Analysis::default();
    for file in std::env::args().skip(1) {
        reports::read(&mut analysis, &file, TraceReader::open(Path::new(&file))?)?;
    }
    let read = cpu_seconds()?;
    analysis.settle();
    let report = analysis.report();
    let whole = cpu_seconds()?;
    println!(
        "read {read:.2} s CPU, report {:.2} s CPU, {whole:.2} s in all; peak {}",
        whole - read,
        peak()?,
    );
    if let Some(path) = std::env::var_os("GCTRACE_REPORT") {
        serde_json::to_writer_pretty(std::fs::File::create(path)?, &report)?;
    }
    Ok(())
}

/// User and system time of this process: fields 14 and 15 of `/proc/self/stat`, in ticks of 10 ms
/// (proc_pid_stat(5)).
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').ok_or("a name in parentheses")?.1;
    let ticks = after_name.split_whitespace().skip(11).take(2);
    let ticks: Result<Vec<u64>, _> = ticks.map(str::parse).collect();
    let ticks: u64 = ticks?.iter().sum();
    Ok(ticks as f64 / 100.0)
}

fn peak() -> Result<String, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    Ok(line.ok_or("VmHWM")?.trim_start_matches("VmHWM:").trim().to_owned())
}
