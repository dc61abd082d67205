//! Measures how fast a trace is read on one core: MB of its text, unpacked, a second of CPU time, and
//! the peak memory of the analysis. The fastest of several runs. Then the size of its summary, and the
//! CPU time to make and to read it.
//!
//! `cargo run --release -p gctrace-analysis --example read_speed -- trace.json`

use gctrace_analysis::Analysis;
use gctrace_event::read::{EventReader, TraceInput, TraceReader};
use gctrace_event::summary::{SummaryReader, SummarySource, SummaryWriter};
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::{fs, io};
use test_kit::reports;

type Outcome = Result<(), Box<dyn Error>>;
type Stage = fn(&Path) -> Outcome;

const RUNS: u32 = 5;
const SUMMARY_RUNS: u32 = 100;

/// What is done with the text, from the least to the most: each includes those before it.
const STAGES: [(&str, Stage); 4] =
    [("text", text), ("events", events), ("records", records), ("analysis", analysis)];

fn main() -> Outcome {
    let Some(path) = std::env::args().nth(1) else {
        return Err("usage: read_speed TRACE".into());
    };
    let path = Path::new(&path);
    let bytes = io::copy(&mut TraceInput::open(path)?, &mut io::sink())?;
    print!("{}: {:.1} MB, MB/s:", path.display(), bytes as f64 / 1e6);
    for (name, stage) in STAGES {
        let mut best_ns = u64::MAX;
        for _ in 0..RUNS {
            let before = cpu_ns()?;
            stage(path)?;
            best_ns = best_ns.min(cpu_ns()?.saturating_sub(before));
        }
        print!(" {name} {:.0}", bytes as f64 * 1e3 / best_ns.max(1) as f64);
    }
    println!(", peak {} KiB", peak_kib()?);
    let before = cpu_ns()?;
    let summary = summary(path)?;
    let made_ns = cpu_ns()?.saturating_sub(before);
    // Less than the kernel's clock of CPU time can show, each.
    let before = cpu_ns()?;
    for _ in 0..SUMMARY_RUNS {
        let mut reader = SummaryReader::new("summary", io::Cursor::new(&summary))?;
        while let Some(item) = reader.next_item()? {
            black_box(item);
        }
    }
    let read_ns = cpu_ns()?.saturating_sub(before) / u64::from(SUMMARY_RUNS);
    println!(
        "its summary: {} bytes, made in {:.1} ms, read in {:.1} ms",
        summary.len(),
        made_ns as f64 / 1e6,
        read_ns as f64 / 1e6
    );
    Ok(())
}

fn summary(path: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut reader = TraceReader::open(path)?;
    let mut writer = SummaryWriter::default();
    while let Some(item) = reader.next_item()? {
        writer.add(item);
    }
    let source = SummarySource::of("trace", fs::File::open(path)?)?;
    Ok(writer.finish(reader.finish(), source, None))
}

/// Reads and unpacks.
fn text(path: &Path) -> Outcome {
    io::copy(&mut TraceInput::open(path)?, &mut io::sink())?;
    Ok(())
}

/// Checks the JSON and finds the members of the events.
fn events(path: &Path) -> Outcome {
    let mut reader = EventReader::new(TraceInput::open(path)?);
    while let Some(entry) = reader.next_entry()? {
        black_box(entry);
    }
    Ok(())
}

/// Decodes.
fn records(path: &Path) -> Outcome {
    let mut reader = TraceReader::open(path)?;
    while let Some(item) = reader.next_item()? {
        black_box(item);
    }
    Ok(())
}

/// Everything up to the report.
fn analysis(path: &Path) -> Outcome {
    let mut analysis = Analysis::default();
    reports::read(&mut analysis, "trace", TraceReader::open(path)?)?;
    analysis.settle();
    black_box(analysis.report());
    Ok(())
}

/// CPU time of this process, of its only thread, in ns (proc(5), `schedstat`).
fn cpu_ns() -> Result<u64, Box<dyn Error>> {
    let schedstat = fs::read_to_string("/proc/self/schedstat")?;
    let first = schedstat.split_whitespace().next();
    Ok(first.ok_or("schedstat is empty")?.parse()?)
}

/// Peak resident memory of this process in KiB.
fn peak_kib() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.ok_or("no VmHWM")?.trim().trim_end_matches(" kB");
    Ok(peak.parse()?)
}
