//! `gctrace analyze`: reads traces and writes a report; also reads traces for `gctrace export`.
//!
//! Owns the sequence of files, errors and output. `gctrace_event::read` reads traces,
//! `gctrace_analysis` analyzes them, `render` formats the report.

mod limits;
mod progress;

pub(crate) use progress::ReadProgress;

use crate::args::AnalyzeConfig;
use crate::args::OutputFormat;
use crate::files::is_same_file;
use crate::files::write_export;
use crate::platform::Invoker;
use crate::print;
use crate::render;
use crate::render::Style;
use crate::text;
use anyhow::Context;
use gctrace_analysis::Analysis;
use gctrace_analysis::report::Report;
use gctrace_event::read::EventReader;
use gctrace_event::read::ReadError;
use gctrace_event::read::TraceInput;
use gctrace_event::read::TraceReader;
use std::io;
use std::path::Path;
use std::path::PathBuf;

/// Exit code if a trace could not be read, or only partly.
const SOME_UNREADABLE: u8 = 1;

/// Exit code if a limit of `--fail-if` is exceeded.
pub(crate) const LIMIT_EXCEEDED: u8 = 3;

/// Prints one report on all traces, or writes it to a file. Unreadable traces are reported on
/// standard error, and the report covers the others. Returns the exit code: 0, or 1 if an error kept
/// any trace from being read completely. A cut-off trace is not an error.
///
/// # Errors
/// No trace can be read, or the report cannot be written.
pub(crate) fn run(config: &AnalyzeConfig) -> anyhow::Result<u8> {
    let (mut analysis, code) = read_all(&config.traces)?;
    let report = render::report(&mut analysis);
    match &config.output {
        Some(path) => {
            let content = |out: &mut dyn io::Write| write(&report, config, out);
            let invoker = Invoker::detect();
            write_export(path, &invoker, &config.traces, config.force, &content)?;
        }
        None => print::unless_closed(show(&report, config))
            .context("cannot write the report to standard output")?,
    }
    let exceeded = limits::exceeded(&report, &config.fail_if);
    exceeded.iter().for_each(print::message);
    Ok(match exceeded.is_empty() {
        true => code,
        false => LIMIT_EXCEEDED,
    })
}

/// Largest trace that is read for [`verdict`], in bytes: read in well under a second.
const VERDICT_BYTES: u64 = 64 << 20;
/// The same for a compressed trace, which is about eight times larger when read.
const VERDICT_GZ_BYTES: u64 = 8 << 20;

/// The verdict on a trace that was just recorded, in at most five lines; none if nothing was
/// recorded, or if reading the trace would take more than a moment.
pub(crate) fn verdict(path: &Path) -> Vec<String> {
    let compressed = path.extension().is_some_and(|end| end == "gz");
    let most = if compressed {
        VERDICT_GZ_BYTES
    } else {
        VERDICT_BYTES
    };
    // The file may have been replaced since: a link or a pipe is not followed.
    let metadata = path.symlink_metadata();
    if !metadata.is_ok_and(|found| found.is_file() && found.len() <= most) {
        return Vec::new();
    }
    let mut analysis = Analysis::default();
    let mut progress = ReadProgress::new(1);
    let read = read(path, &mut analysis, &mut progress);
    progress.finish();
    match read {
        Ok(()) => render::verdict_lines(&render::report(&mut analysis)),
        Err(_) => Vec::new(),
    }
}

/// Reads traces, and reports unreadable ones on standard error. Returns the analysis and the exit
/// code.
///
/// # Errors
/// No trace can be read, or one is named twice.
pub(crate) fn read_all(traces: &[PathBuf]) -> anyhow::Result<(Analysis, u8)> {
    let mut analysis = Analysis::default();
    let mut progress = ReadProgress::new(traces.len());
    let mut failures = Vec::new();
    check_distinct(traces)?;
    for path in traces {
        if let Err(error) = read(path, &mut analysis, &mut progress) {
            failures.push(error);
        }
    }
    progress.finish();
    if !analysis.has_evidence() {
        return Err(all_failed(failures));
    }
    for error in &failures {
        print::message(text::chain(error));
    }
    let code = match failures.is_empty() {
        true => 0,
        false => SOME_UNREADABLE,
    };
    Ok((analysis, code))
}

/// # Errors
/// A trace is named twice.
pub(crate) fn check_distinct(traces: &[PathBuf]) -> anyhow::Result<()> {
    for (index, path) in traces.iter().enumerate() {
        if let Some(same) = traces[..index]
            .iter()
            .find(|other| is_same_file(path, other))
        {
            anyhow::bail!(
                "{} is the same trace as {}: name each trace once",
                path.display(),
                same.display()
            );
        }
    }
    Ok(())
}

/// Prints all errors except the last one, which is returned.
pub(crate) fn all_failed(mut failures: Vec<anyhow::Error>) -> anyhow::Error {
    let last = failures.pop();
    for error in failures {
        print::message(text::chain(&error));
    }
    last.unwrap_or_else(|| anyhow::anyhow!("no trace given: gctrace analyze trace.json"))
}

fn show(report: &Report, config: &AnalyzeConfig) -> io::Result<()> {
    match config.format {
        OutputFormat::Text => print::answer(&text_report(report, config, Style::of_output())),
        OutputFormat::Json => {
            print::exactly(|out| render::json(report, &mut print::JsonEscaper(out)))
        }
    }
}

fn text_report(report: &Report, config: &AnalyzeConfig, style: Style) -> String {
    let name = |trace: &PathBuf| trace.display().to_string();
    let traces: Vec<String> = config.traces.iter().map(name).collect();
    match config.full {
        true => render::text(report, style),
        false => {
            let money = config.gpu_hour.map(|price| (price, config.gpus));
            render::first_screen(report, &traces, money, style)
        }
    }
}

fn write(report: &Report, config: &AnalyzeConfig, out: &mut dyn io::Write) -> io::Result<()> {
    match config.format {
        OutputFormat::Text => print::answer_to(out, &text_report(report, config, Style::OF_FILES)),
        OutputFormat::Json => render::json(report, &mut print::JsonEscaper(out)),
    }
}

/// Reads one trace into the analysis. After an error, everything before it counts.
fn read(path: &Path, analysis: &mut Analysis, progress: &mut ReadProgress) -> anyhow::Result<()> {
    let input = match TraceInput::open(path) {
        Ok(input) => input,
        Err(error) => {
            analysis.leave_out(error.to_string());
            return Err(error.into());
        }
    };
    let name = input.name().to_owned();
    analysis.begin_trace(&name);
    progress.begin(&name, input.size());
    let mut reader = TraceReader::new(EventReader::new(input));
    let failure = items(&mut reader, analysis, progress).err();
    let ending = reader.finish();
    let failure = match failure {
        Some(error) => Some(error.into()),
        None if analysis.has_evidence() => None,
        None => Some(no_evidence(&name, &ending)),
    };
    let damage = failure.as_ref().map(ToString::to_string);
    analysis.end_trace(ending, damage);
    match failure {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn items(
    reader: &mut TraceReader,
    analysis: &mut Analysis,
    progress: &mut ReadProgress,
) -> Result<(), ReadError> {
    /// Items between updates of the progress bar: a few milliseconds.
    const POLL_INTERVAL: u32 = 8192;
    let mut items = 0u32;
    while let Some(item) = reader.next_item()? {
        analysis.add(item);
        items = items.wrapping_add(1);
        if items.is_multiple_of(POLL_INTERVAL) {
            progress.update(reader.events().input().consumed());
        }
    }
    Ok(())
}

/// The error for a well-formed trace without collections and GPU work.
pub(crate) fn no_evidence(
    name: &str,
    ending: &gctrace_event::read::TraceCompletion,
) -> anyhow::Error {
    let place = match (&ending.cut, ending.anomalies.first.first()) {
        (_, Some(anomaly)) => format!("{}: {}", anomaly.position, anomaly.problem),
        (Some(cut), None) => format!("cut off at {cut}"),
        (None, None) => "read to its end".to_owned(),
    };
    anyhow::anyhow!(
        "{name}: {place}: {} events, none of which is a usable garbage collection or a GPU operation. \
         To record collections: sudo gctrace -o trace.json -- python SCRIPT.py",
        ending.events
    )
}
