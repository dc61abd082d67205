//! `gctrace compare`: runs before and after a change.
//!
//! Owns which traces are of one run, and the sequence of recording, comparing, logging and limits.
//! `gctrace_analysis::compare` compares, `render/comparison.rs` has the text.

mod change_log;
mod limits;
mod recording;

use crate::analyze::LIMIT_EXCEEDED;
use crate::args::{CompareConfig, ReportFormat};
use crate::render::Style;
use crate::{analyze, judged, print, render};
use anyhow::Context as _;
use gctrace_analysis::compare::{ComparedRun, Comparison, compare};
use gctrace_analysis::report::Report;
use std::path::{Path, PathBuf};

/// Exit code of an option that cannot be followed, equal to the command line's parser's.
const WRONG_OPTION: u8 = 2;

/// Prints a comparison. Returns the exit code: 3 if a limit is exceeded, 2 if limits were given but
/// a side has one run, 1 if a trace could be read only in part, the command's own if a recorded
/// command failed, otherwise 0.
///
/// # Errors
/// A trace cannot be read or is named twice, the command cannot be recorded, or an output cannot be
/// written.
pub(crate) fn run(config: &CompareConfig) -> anyhow::Result<u8> {
    let mut code = 0;
    let is_command = recording::is_command(&config.after);
    let page = config.output.as_deref().filter(|_| !is_command);
    anyhow::ensure!(
        page.is_none_or(analyze::is_page),
        "-o names the trace of a command that is recorded, or a page that ends in .html"
    );
    // Before a command is recorded for a comparison that is not possible.
    let before = reports(&config.before, &mut code)?;
    if let Some(path) = &config.log {
        change_log::check(path)?;
    }
    anyhow::ensure!(
        is_command || (config.gc.is_none() && config.from.is_empty()),
        "--gc and --from are settings of a command that is recorded: put one after --"
    );
    let after = if is_command {
        match recording::record(config)? {
            Ok(trace) => vec![trace],
            Err(failed) => return Ok(failed),
        }
    } else {
        config.after.iter().map(PathBuf::from).collect()
    };
    let after_reports = reports(&after, &mut code)?;
    let comparison = compare(&before, &after_reports);
    if let Some(path) = page {
        write_page(path, config, &after, &comparison)?;
    }
    let unchecked = limits::unchecked(&comparison, &config.fail_if);
    let limits = match unchecked {
        Some(_) => Vec::new(),
        None => limits::judged(&comparison, &config.fail_if),
    };
    let written = match config.format {
        ReportFormat::Text => print::answer(&render::comparison(&comparison, Style::of_output())),
        ReportFormat::Json => {
            print::exactly(|out| render::json(&comparison, &mut print::JsonEscaper(out)))
        }
        ReportFormat::Markdown => {
            let text = render::comparison(&comparison, Style::OF_FILES);
            let verdict = &comparison.verdict.sentence;
            print::exactly(|out| print::answer_to(out, &judged::markdown(verdict, &limits, &text)))
        }
    };
    print::unless_closed(written).context("cannot write the comparison to standard output")?;
    if let Some(path) = &config.log {
        change_log::append(path, &comparison)?;
    }
    if let Some(reason) = unchecked {
        print::message(reason);
        return Ok(WRONG_OPTION);
    }
    let costliest = after_reports.iter().find_map(judged::costliest);
    judged::report(&limits, costliest);
    if let Some(path) = &config.code_quality {
        let traces = [config.before.as_slice(), &after].concat();
        judged::write_code_quality(path, &limits, costliest, &traces)?;
    }
    Ok(if judged::any_exceeded(&limits) { LIMIT_EXCEEDED } else { code })
}

/// Writes the page on the comparison, with the first run of each side.
fn write_page(
    path: &Path,
    config: &CompareConfig,
    after: &[PathBuf],
    comparison: &Comparison,
) -> anyhow::Result<()> {
    let files = |runs: &[ComparedRun]| -> Vec<PathBuf> {
        runs.first().map_or_else(Vec::new, |run| run.files.iter().map(PathBuf::from).collect())
    };
    let (mut before_run, _) = analyze::read_for_page(&files(&comparison.before), None)?;
    let (mut after_run, _) = analyze::read_for_page(&files(&comparison.after), None)?;
    let before_report = render::report(&mut before_run);
    let after_report = render::report(&mut after_run);
    let sides = [(&mut before_run, &before_report), (&mut after_run, &after_report)];
    let page = render::comparison_page(comparison, sides)?;
    let traces = [config.before.as_slice(), after].concat();
    Ok(analyze::write_page(path, &traces, config.force, &page)?)
}

/// One report for each run of a side. Traces of ranks that overlap in time are of one run.
fn reports(traces: &[PathBuf], code: &mut u8) -> anyhow::Result<Vec<Report>> {
    analyze::check_distinct(traces)?;
    let mut runs: Vec<(Vec<PathBuf>, Report)> = Vec::new();
    for path in traces {
        let report = report(std::slice::from_ref(path), code)?;
        match runs.iter_mut().find(|(_, run)| is_other_rank(run, &report)) {
            Some((paths, _)) => paths.push(path.clone()),
            None => runs.push((vec![path.clone()], report)),
        }
    }
    let together = |(traces, alone): (Vec<PathBuf>, Report)| match traces.len() {
        1 => Ok(alone),
        _ => report(&traces, code),
    };
    runs.into_iter().map(together).collect()
}

fn report(traces: &[PathBuf], code: &mut u8) -> anyhow::Result<Report> {
    let (mut analysis, read_code) = analyze::read_all(traces, None)?;
    *code = read_code.max(*code);
    analysis.settle();
    Ok(analysis.report())
}

/// Whether the traces were recorded at the same time, by ranks of one job.
fn is_other_rank(run: &Report, other: &Report) -> bool {
    let facts = |report: &Report| {
        let trace = report.traces.first()?;
        let start_ns = trace.started_unix_ns?;
        let end_ns = start_ns.saturating_add(trace.duration_ns);
        Some((trace.rank?, start_ns, end_ns))
    };
    match (facts(run), facts(other)) {
        (Some((rank, start_ns, end_ns)), Some((other_rank, other_start_ns, other_end_ns))) => {
            rank != other_rank && start_ns < other_end_ns && other_start_ns < end_ns
        }
        _ => false,
    }
}

/// The name of a trace after the change: `trace.json.gz` becomes `trace-after.json.gz`.
fn after_name(before: &Path) -> PathBuf {
    let name = before
        .file_name()
        .map_or_else(|| "trace.json".to_owned(), |name| name.to_string_lossy().into_owned());
    // In the name of a new trace, % starts a placeholder.
    let name = name.replace('%', "%%");
    let (stem, ending) = name.split_once('.').unwrap_or((&name, "json"));
    PathBuf::from(format!("{stem}-after.{ending}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_traces_are_named_after_the_old_one() {
        for (before, after) in [
            ("trace.json", "trace-after.json"),
            ("runs/a.json.gz", "a-after.json.gz"),
            ("50%.json", "50%%-after.json"),
            ("trace", "trace-after.json"),
            ("-", "--after.json"),
        ] {
            assert_eq!(after_name(Path::new(before)), Path::new(after), "{before}");
        }
    }
}
