//! `gctrace analyze`: reads traces and writes a report; also reads traces for `gctrace export`.
//!
//! Owns the sequence of files, errors, output and the limits of `--fail-if`. `gctrace_event::read` reads traces,
//! `gctrace_analysis` analyzes them, `render` formats the report.

mod items;
mod progress;
mod segments;
mod summaries;

pub(crate) use items::{TraceItems, with_summaries};
pub(crate) use progress::{ReadProgress, TraceProgress};
pub(crate) use summaries::{DistinctTraces, missing_ranks};

use crate::args::{AnalyzeArgs, ReportFormat, ReportLimit};
use crate::document::{Section, Style};
use crate::files::first_repetition;
use crate::files::segments::segments_in;
use crate::judged::JudgedLimit;
use crate::print::clean;
use crate::units::{counted, duration, percent};
use crate::{document, judged, output, print, render, text};
use gctrace_analysis::report::{PhaseReport, PhasesReport, Report};
use gctrace_analysis::{Analysis, parallel};
use gctrace_event::read::{DecodedItem, TraceCompletion, TraceReader};
use gctrace_event::summary::SummaryHeader;
use gctrace_event::{TraceCompression, TraceHeader};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Exit code if a trace could not be read, or only partly.
const SOME_UNREADABLE: u8 = 1;

/// Exit code if a limit of `--fail-if` is exceeded.
pub(crate) const LIMIT_EXCEEDED: u8 = 3;

/// Pauses kept one by one of each trace of a page, however many traces there are.
const LEAST_KEPT: usize = 100;

/// Prints one report on all traces, or writes it to a file. Unreadable traces are reported on
/// standard error, and the report covers the others. Returns the exit code: 0, or 1 if an error kept
/// any trace from being read completely. A cut-off trace is not an error.
///
/// # Errors
/// No trace can be read, or the report cannot be written.
pub(crate) fn run(config: &AnalyzeArgs) -> anyhow::Result<u8> {
    let format = config.report.format();
    let is_page = format == ReportFormat::Page;
    let read = if is_page { read_for_page } else { read_all };
    let (mut analysis, code) = read(&config.traces, config.jobs)?;
    let mut report = render::report(&mut analysis);
    let limits: Vec<_> = config.fail_if.iter().map(|limit| check(&report, *limit)).collect();
    let costliest = judged::costliest(&report).cloned();
    if format == ReportFormat::Json {
        report.condense();
    }
    let content = match format {
        ReportFormat::Json => print::json(&report)?,
        ReportFormat::Page => render::page(&mut analysis, &report, &config.traces)?,
        ReportFormat::Markdown => {
            let report_text = sections(&report, config, Style::OF_FILES);
            judged::markdown(&report.verdict.sentence, &limits, &report_text)
        }
        ReportFormat::Text => {
            let is_printed = config.report.file().is_none();
            let style = if is_printed { Style::of_output() } else { Style::OF_FILES };
            clean::text(&document::text(&sections(&report, config, style), style)).into_owned()
        }
    };
    output::write(&config.report, &config.traces, &content)?;
    judged::report(&limits, costliest.as_ref());
    if let Some(path) = &config.code_quality {
        judged::write_code_quality(path, &limits, costliest.as_ref(), &config.traces)?;
    }
    Ok(if judged::any_exceeded(&limits) { LIMIT_EXCEEDED } else { code })
}

/// Largest trace that is read for [`verdict`], in bytes: read in well under a second.
const VERDICT_BYTES: u64 = 64 << 20;
/// The same for a compressed trace; read, it is at least eight times larger.
const VERDICT_PACKED_BYTES: u64 = 8 << 20;

/// The verdict on a trace that was just recorded, in at most five lines; none if nothing was
/// recorded, or if reading the trace would take more than a moment.
pub(crate) fn verdict(path: &Path) -> Vec<String> {
    // The file may have been replaced since: a link or a pipe is not followed.
    let size = |path: &Path| match path.symlink_metadata() {
        Ok(found) if found.is_file() => Some(found.len()),
        _ => None,
    };
    let segments = segments_in(path);
    let (bytes, most) = match TraceCompression::by_name(path) {
        _ if !segments.is_empty() => {
            (segments.iter().map(|(_, segment)| size(segment)).sum(), VERDICT_PACKED_BYTES)
        }
        TraceCompression::None => (size(path), VERDICT_BYTES),
        TraceCompression::Gzip | TraceCompression::Zstd => (size(path), VERDICT_PACKED_BYTES),
    };
    if bytes.is_none_or(|bytes: u64| bytes > most) {
        return Vec::new();
    }
    let progress = ReadProgress::new(std::slice::from_ref(&path));
    let mut read = read(path, Analysis::default(), &progress);
    progress.finish();
    match read.failure {
        None => render::verdict_lines(&render::report(&mut read.analysis)),
        Some(_) => Vec::new(),
    }
}

/// The first line of a trace; `None` if it is not one of gctrace's.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn header(path: &Path) -> anyhow::Result<Option<TraceHeader>> {
    let segments = segments_in(path);
    let mut reader = match segments.first() {
        Some((_, first)) => segments::open(first)?,
        None => TraceReader::open(path)?,
    };
    // It is the first line.
    Ok(match reader.next_item()? {
        Some(DecodedItem::Header(header)) => Some(*header),
        _ => None,
    })
}

/// Reads traces, and reports unreadable ones on standard error. Returns the analysis and the exit code; neither depends
/// on `jobs`: the most traces read at the same time, `None` as many as there are processors.
///
/// # Errors
/// No trace can be read, or one is named twice.
pub(crate) fn read_all(
    traces: &[PathBuf],
    jobs: Option<NonZeroUsize>,
) -> anyhow::Result<(Analysis, u8)> {
    read_all_into(traces, jobs, &Analysis::default)
}

/// The same, with pauses one by one, for a page.
///
/// # Errors
/// As there.
pub(crate) fn read_for_page(
    traces: &[PathBuf],
    jobs: Option<NonZeroUsize>,
) -> anyhow::Result<(Analysis, u8)> {
    let kept = (render::PAUSES_DRAWN / traces.len().max(1)).max(LEAST_KEPT);
    read_all_into(traces, jobs, &|| Analysis::keeping_pauses(kept))
}

/// The same, each trace into an analysis that `empty` makes.
fn read_all_into(
    traces: &[PathBuf],
    jobs: Option<NonZeroUsize>,
    empty: &(dyn Fn() -> Analysis + Sync),
) -> anyhow::Result<(Analysis, u8)> {
    check_distinct(traces)?;
    let traces = with_summaries(traces);
    let processors = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let jobs = jobs.unwrap_or_else(processors);
    let progress = ReadProgress::new(&traces);
    let mut parts = parallel::map(&traces, jobs, |path| read(path, empty(), &progress));
    progress.finish();
    let mut distinct = DistinctTraces::default();
    for (path, part) in traces.iter().zip(&mut parts) {
        if let Err(error) = distinct.add(path, part.summary.as_ref()) {
            *part = ReadTrace::left_out(error);
        }
    }
    let headers = parts.iter().filter_map(|part| part.summary.as_ref());
    let mut stated: Vec<Option<u32>> = headers.map(|header| header.world_size).collect();
    let found: BTreeSet<u32> = parts.iter().flat_map(|part| part.analysis.ranks()).collect();
    // One rank stands for itself; several of a job that states more are some of it.
    if found.len() > 1 {
        stated.extend(parts.iter().filter_map(|part| part.analysis.world_size()).map(Some));
    }
    let missing = missing_ranks(&stated, &found);
    let mut failures = Vec::new();
    let parts = parts.into_iter().map(|part| {
        failures.extend(part.failure);
        part.analysis
    });
    let analysis = parts.reduce(|mut analysis, part| {
        analysis.append(part);
        analysis
    });
    let mut analysis = analysis.unwrap_or_default();
    analysis.set_threads(jobs);
    if let Some(missing) = missing {
        analysis.leave_out(missing.to_string());
        failures.push(missing);
    }
    if !analysis.has_evidence() {
        return Err(all_failed(failures));
    }
    for error in &failures {
        print::message(text::chain(error));
    }
    let code = if failures.is_empty() { 0 } else { SOME_UNREADABLE };
    Ok((analysis, code))
}

/// # Errors
/// A trace is named twice.
pub(crate) fn check_distinct(traces: &[PathBuf]) -> anyhow::Result<()> {
    match first_repetition(traces) {
        Some((again, before)) => anyhow::bail!(
            "{} is the same trace as {}: name each trace once",
            again.display(),
            before.display()
        ),
        None => Ok(()),
    }
}

/// Prints all errors except the last one, and returns the last.
pub(crate) fn all_failed(mut failures: Vec<anyhow::Error>) -> anyhow::Error {
    let last = failures.pop();
    for error in failures {
        print::message(text::chain(&error));
    }
    last.unwrap_or_else(|| anyhow::anyhow!("no trace given: gctrace analyze trace.json"))
}

fn sections(report: &Report, config: &AnalyzeArgs, style: Style) -> Vec<Section> {
    let name = |trace: &PathBuf| trace.display().to_string();
    let traces: Vec<String> = config.traces.iter().map(name).collect();
    if config.full { render::full(report) } else { render::first_screen(report, &traces, style) }
}

/// One trace, or its summary.
struct ReadTrace {
    analysis: Analysis,
    /// Why it could not be read to its end; everything before counts.
    failure: Option<anyhow::Error>,
    /// Of a summary.
    summary: Option<SummaryHeader>,
}

impl ReadTrace {
    /// A trace that counts for nothing in the report; the report mentions it.
    fn left_out(error: anyhow::Error) -> Self {
        let mut analysis = Analysis::default();
        analysis.leave_out(error.to_string());
        Self { analysis, failure: Some(error), summary: None }
    }
}

fn read(path: &Path, mut analysis: Analysis, progress: &ReadProgress) -> ReadTrace {
    let items = match TraceItems::open(path) {
        Ok(items) => items,
        Err(error) => return ReadTrace::left_out(error),
    };
    let (name, summary) = (items.name().to_owned(), items.summary().cloned());
    analysis.begin_trace(&name);
    #[cfg(target_os = "linux")]
    if let Some(pid) = crate::files::lock::writer_of(path) {
        analysis.is_still_written(gctrace_analysis::report::TraceWriter { pid });
    }
    let take = |item: DecodedItem<'_>| {
        analysis.add(item);
        Ok::<(), Infallible>(())
    };
    let Ok((ending, failure)) = items.each(&mut progress.trace(), take);
    let failure = match failure {
        None if !analysis.has_evidence() => Some(no_evidence(&name, &ending)),
        failure => failure,
    };
    let damage = failure.as_ref().map(ToString::to_string);
    analysis.end_trace(ending, damage);
    ReadTrace { analysis, failure, summary }
}

/// The error for a well-formed trace without collections and GPU work.
pub(crate) fn no_evidence(name: &str, ending: &TraceCompletion) -> anyhow::Error {
    let place = match (&ending.cut, ending.anomalies.first.first()) {
        (_, Some(anomaly)) => format!("{}: {}", anomaly.position, anomaly.problem),
        (Some(cut), None) => format!("cut off at {cut}"),
        (None, None) => "read to its end".to_owned(),
    };
    anyhow::anyhow!(
        "{name}: {place}: {}, none of which is a usable garbage collection or a GPU operation. \
         To record collections: sudo gctrace -o trace.json -- python SCRIPT.py",
        counted(ending.events, "event")
    )
}

/// A limit, checked of the worst process in training or start-up.
fn check(report: &Report, limit: ReportLimit) -> JudgedLimit {
    let phases = report.phases.as_ref();
    // Without any pause there are no phases.
    let no_share = if report.totals.pauses.count == 0 { Some(0.0) } else { None };
    let no_pause = if report.totals.pauses.count == 0 { Some(0) } else { None };
    match limit {
        ReportLimit::GcShare(limit) => {
            let (training, start_up) = match phases {
                Some(phases) => (phases.training.paused_ratio, phases.start_up_ratio()),
                None => (None, None),
            };
            // Among equal shares the first counts.
            let (share, of) = if start_up > training {
                (start_up, "the run at start-up")
            } else {
                (training.or(no_share), "training")
            };
            let found = |share| {
                format!("the collector paused {} of {of}{}", percent(share), process(phases))
            };
            let is_exceeded = share.map(|share| share > limit);
            judged("gc_share", share.map(found), is_exceeded, &percent(limit))
        }
        ReportLimit::Longest(limit) => {
            let longest = |phase: &PhaseReport| phase.longest_collection_ns().unwrap_or(0);
            let training = phases.map(|phases| longest(&phases.training));
            // Where steps are unknown, so is the end of start-up.
            let start_up = match phases {
                Some(phases) if phases.steps.is_none() => Some(longest(&phases.start_up)),
                _ => None,
            };
            let (longest, at) = if start_up > training {
                (start_up, "at start-up")
            } else {
                (training.or(no_pause), "in training")
            };
            let found =
                |ns| format!("the longest pause {at}{} took {}", process(phases), duration(ns));
            let is_exceeded = longest.map(|ns| Duration::from_nanos(ns) > limit);
            let most = humantime::format_duration(limit).to_string();
            judged("longest", longest.map(found), is_exceeded, &most)
        }
        ReportLimit::ArrivalP99(limit) => {
            let p99 = report.service_loops().filter_map(|of| of.figures.lag_p99_ns).max();
            judged_turn(("p99", "requests wait for the loop up to (99 %)"), p99, limit)
        }
        ReportLimit::LongestTurn(limit) => {
            let longest = report.service_loops().map(|of| of.figures.longest_ns).max();
            judged_turn(("longest_turn", "the longest turn took"), longest, limit)
        }
    }
}

/// `about`: the figure, and what it says.
fn judged_turn(about: (&'static str, &str), ns: Option<u64>, limit: Duration) -> JudgedLimit {
    let found = ns.map(|ns| format!("{} {}", about.1, duration(ns)));
    let is_exceeded = ns.map(|ns| Duration::from_nanos(ns) > limit);
    judged(about.0, found, is_exceeded, &humantime::format_duration(limit).to_string())
}

/// The worst of several processes.
fn process(phases: Option<&PhasesReport>) -> String {
    match phases {
        Some(PhasesReport { among: ..2, .. }) | None => String::new(),
        Some(PhasesReport { rank: Some(rank), .. }) => format!(" of rank {rank}"),
        Some(PhasesReport { pid, .. }) => format!(" of process {pid}"),
    }
}

/// `None`: the traces do not contain the figure.
fn judged(
    figure: &'static str,
    found: Option<String>,
    is_exceeded: Option<bool>,
    most: &str,
) -> JudgedLimit {
    let sentence = match (found, is_exceeded) {
        (Some(found), Some(true)) => format!("limit exceeded: {found}, more than {most}"),
        (Some(found), Some(false)) => format!("limit kept: {found}, at most {most}"),
        _ => format!(
            "limit not checked, so it counts as exceeded: these traces do not contain {figure}"
        ),
    };
    JudgedLimit { figure, is_exceeded: is_exceeded != Some(false), sentence }
}
