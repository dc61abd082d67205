//! `gctrace compare`: runs before and after a change.
//!
//! Owns the grouping of traces into runs, and the sequence of recording, comparing, logging and limits.
//! `gctrace_analysis::compare` compares, `render/comparison.rs` has the text.

mod change_log;
mod limits;
mod recording;

use crate::analyze::LIMIT_EXCEEDED;
use crate::args::{CompareArgs, ReportFormat};
use crate::document::Style;
use crate::print::clean;
use crate::{analyze, document, judged, output, print, render};
use gctrace_analysis::Analysis;
use gctrace_analysis::compare::compare;
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
pub(crate) fn run(config: &CompareArgs) -> anyhow::Result<u8> {
    let mut code = 0;
    let is_command = recording::is_command(&config.after);
    let page = if is_command { None } else { config.output.as_deref() };
    anyhow::ensure!(
        page.is_none_or(|page| matches!(page.extension(), Some(end) if end == "html")),
        "-o names the trace of a command that is recorded, or a page that ends in .html"
    );
    // Before a command is recorded for a comparison that is not possible.
    let keeps = page.is_some();
    let (before, before_first) = reports(&config.before, keeps, &mut code)?;
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
    let (after_reports, after_first) = reports(&after, keeps, &mut code)?;
    let comparison = compare(&before, &after_reports);
    if let (Some(path), Some(mut one), Some(mut other)) = (page, before_first, after_first) {
        let sides = [&before, &after_reports].map(|side| side.first());
        if let [Some(before), Some(after_report)] = sides {
            let sides = [(&mut one, before), (&mut other, after_report)];
            let page = render::comparison_page(&comparison, sides)?;
            let traces = [config.before.as_slice(), &after].concat();
            output::write_file(path, &traces, config.force, &page)?;
        }
    }
    let unchecked = limits::unchecked(&comparison, &config.fail_if);
    let limits = match unchecked {
        Some(_) => Vec::new(),
        None => limits::judged(&comparison, &config.fail_if),
    };
    let content = match config.form.of(None) {
        ReportFormat::Text => {
            let style = Style::of_output();
            let sections = render::comparison(&comparison, style);
            clean::text(&document::text(&sections, style)).into_owned()
        }
        ReportFormat::Json => print::json(&comparison)?,
        ReportFormat::Page => anyhow::bail!("a page is a file: -o FILE.html"),
        ReportFormat::Markdown => {
            let sections = render::comparison(&comparison, Style::OF_FILES);
            judged::markdown(&comparison.verdict.sentence, &limits, &sections)
        }
    };
    print::exact_answer(&content)?;
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

/// One report for each run of a side. Traces of ranks that overlap in time are of one run. With the analysis of
/// the first run, if it is `kept` for a page.
fn reports(
    traces: &[PathBuf],
    kept: bool,
    code: &mut u8,
) -> anyhow::Result<(Vec<Report>, Option<Analysis>)> {
    analyze::check_distinct(traces)?;
    let mut runs: Vec<(Vec<PathBuf>, Report)> = Vec::new();
    let mut first = None;
    for path in traces {
        let keeps = kept && runs.is_empty();
        let (analysis, report) = read(std::slice::from_ref(path), keeps, code)?;
        if keeps {
            first = Some(analysis);
        }
        match runs.iter_mut().find(|(_, run)| is_other_rank(run, &report)) {
            Some((paths, _)) => paths.push(path.clone()),
            None => runs.push((vec![path.clone()], report)),
        }
    }
    let mut all = Vec::new();
    for (traces, alone) in runs {
        let report = match traces.len() {
            1 => alone,
            // Their reports decide which ranks are of one run.
            _ => {
                let keeps = kept && all.is_empty();
                let (analysis, together) = read(&traces, keeps, code)?;
                if keeps {
                    first = Some(analysis);
                }
                together
            }
        };
        all.push(report);
    }
    Ok((all, first))
}

fn read(traces: &[PathBuf], keeps: bool, code: &mut u8) -> anyhow::Result<(Analysis, Report)> {
    let read = if keeps { analyze::read_for_page } else { analyze::read_all };
    let (mut analysis, read_code) = read(traces, None)?;
    *code = read_code.max(*code);
    let report = render::report(&mut analysis);
    Ok((analysis, report))
}

/// Whether the traces were recorded at the same time, by ranks of one job.
fn is_other_rank(run: &Report, other: &Report) -> bool {
    let facts = |report: &Report| {
        let trace = report.traces.first()?;
        let start_ns = trace.started_unix_ns?;
        let end_ns = gctrace_units::after(start_ns, trace.duration_ns);
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
    let name = match before.file_name() {
        Some(name) => name.to_string_lossy().into_owned(),
        None => "trace.json".to_owned(),
    };
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
