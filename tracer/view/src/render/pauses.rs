//! The sections on pauses: by generation and reason, the longest, pauses that freed nothing, explicit calls.

use crate::document::{Section, Table, paragraph};
use crate::text::{OrDash as _, mark};
use crate::units::{count, counted, duration, percent, short_count};
use gctrace_analysis::report::{GroupName, Location, PauseTotal, PausesReport, Report, WorstPause};
use gctrace_event::GcReason;
use std::time::{Duration, SystemTime};

pub(crate) fn longest(report: &Report) -> Section {
    let head = ["after start", "UTC", "length", "gen", "reason", "freed", "objects", "where"];
    let mut table = Table::new(&head, &[4, 7]);
    let with_trace = report.traces.len() > 1;
    for pause in &report.worst {
        table.row(worst_row(pause, with_trace, report.processes.len() == 1));
    }
    if report.worst.is_empty() {
        return Section::default();
    }
    let legend = if with_trace { Some(paragraph("#N: trace N, in the order above")) } else { None };
    Section::new("Longest pauses", std::iter::once(table.into()).chain(legend).collect())
}

/// `alone`: no other process has pauses, so the pid is omitted if there is a line.
fn worst_row(pause: &WorstPause, with_trace: bool, alone: bool) -> [String; 8] {
    let known = |value: Option<u64>| value.map(short_count).or_dash();
    let mut place = match pause.rank {
        _ if alone && pause.line.is_some() => String::new(),
        Some(rank) => format!("rank {rank}"),
        None => pause.pid.to_string(),
    };
    if with_trace {
        place = format!("#{} {place}", pause.trace + 1);
    }
    // The main thread is not named.
    if pause.tid != pause.pid {
        place += &match &pause.thread {
            Some(thread) => format!(" {}", thread),
            None => format!(" thread {}", pause.tid),
        };
    }
    if let Some(line) = &pause.line {
        place = format!("{place} {}", file_and_line(line)).trim_start().to_owned();
    }
    if pause.unfinished {
        place += " (cut)";
    }
    [
        after_start(0, pause.after_start_ns),
        pause.unix_ns.map(time_of_day).or_dash(),
        duration(pause.duration_ns),
        pause.generation.map(|generation| generation.to_string()).or_dash(),
        match pause.reason {
            GcReason::Manual => "gc.collect".to_owned(),
            other => other.as_ref().to_owned(),
        },
        known(pause.collected),
        known(pause.objects),
        place,
    ]
}

/// `loader.py:31`; the section on lines has the full name.
fn file_and_line(location: &Location) -> String {
    let file =
        if let Some((_, of)) = location.file.rsplit_once('/') { of } else { &*location.file };
    match (file, location.line) {
        ("", _) => location.function.clone(),
        (file, Some(line)) => format!("{file}:{line}"),
        (file, None) => file.to_owned(),
    }
}

/// Seconds with milliseconds, precise enough to find the pause in a trace viewer.
/// A time on the clock of all tables: seconds after the start of the trace.
pub(super) fn after_start(started_ns: u64, at_ns: u64) -> String {
    let ns = gctrace_units::duration_ns(started_ns, at_ns);
    format!("{}.{:03} s", ns / 1_000_000_000, ns / 1_000_000 % 1000)
}

/// `14:03:22` (UTC); date and nanoseconds are in the JSON.
fn time_of_day(unix_ns: u64) -> String {
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(unix_ns));
    let text = time.map(|time| humantime::format_rfc3339_seconds(time).to_string());
    text.as_deref().and_then(|text| text.get(11..19)).unwrap_or("-").to_owned()
}

/// A share of the observed time as the end of a sentence; empty if unknown.
fn of_observed(ratio: Option<f64>) -> String {
    let Some(ratio) = ratio else { return String::new() };
    format!(", {} of the observed time", percent(ratio))
}

fn effort(effort: PauseTotal) -> String {
    format!("{}, {}", count(effort.count), duration(effort.time_ns))
}

pub(crate) fn freed_nothing(report: &Report) -> Section {
    let nothing = &report.freed_nothing;
    let mut sentences = Vec::new();
    if nothing.total.count > 0 {
        sentences.push(format!(
            "{} freed no object and took {}: {} of the pause time.",
            counted(nothing.total.count, "collection"),
            duration(nothing.total.time_ns),
            percent(nothing.time_ratio),
        ));
        let kinds = [
            ("automatic, full", nothing.by_cause.automatic_full),
            ("automatic, younger generations", nothing.by_cause.automatic_partial),
            ("gc.collect()", nothing.by_cause.manual),
            ("at shutdown", nothing.by_cause.shutdown),
            ("reason unknown", nothing.by_cause.unknown),
        ];
        let kinds: Vec<String> = kinds
            .into_iter()
            .filter(|(_, kind)| kind.count > 0)
            .map(|(name, kind)| format!("{name}: {}", effort(kind)))
            .collect();
        sentences.push(kinds.join("; ") + ".");
    }
    let unknown = report.totals.pauses.outcome_unknown;
    if unknown > 0 {
        sentences.push(format!(
            "For {} the number of freed objects is unknown.",
            counted(unknown, "collection")
        ));
    }
    Section::of_sentences("Collections that freed nothing", &sentences)
}

pub(crate) fn explicit_calls(report: &Report) -> Section {
    let calls = &report.explicit_calls;
    let mut sentences = Vec::new();
    if calls.pauses.count > 0 {
        sentences.push(format!(
            "{} in {} took {}: {} of the pause time{}.{}",
            counted(calls.pauses.count, "call"),
            counted(calls.processes, "process"),
            duration(calls.pauses.time_ns),
            percent(calls.time_ratio),
            of_observed(calls.observed_ratio),
            match calls.pauses.freed_nothing.count {
                0 => String::new(),
                nothing => format!(" {} freed nothing.", count(nothing)),
            },
        ));
    }
    Section::of_sentences("Explicit gc.collect() calls", &sentences)
}

pub(crate) fn pauses(report: &Report) -> Section {
    let all = &report.totals.pauses;
    if all.count == 0 {
        return Section::default();
    }
    let head = ["", "pauses", "time", "share", "p50", "p90", "p99", "longest"];
    let mut table = Table::new(&head, &[0]);
    table.row(pauses_row("all", 1.0, all));
    for group in report.by_generation.iter().chain(&report.by_reason) {
        let name = group_name(group.name);
        table.row(pauses_row(&name, group.time_ratio, &group.pauses));
    }
    let mut together = match report.totals.stopped_ratio {
        Some(ratio) => format!(
            "Python was paused for {} of {} observed{}: {}.",
            duration(report.totals.stopped_ns),
            duration(report.totals.observed_ns),
            mark(report.totals.basis),
            percent(ratio),
        ),
        None => String::new(),
    };
    together += &percentile_error(all);
    Section::new("Pauses", vec![table.into(), paragraph(together)])
}

/// At most twelve characters, so that the table fits.
fn group_name(name: GroupName) -> String {
    match name {
        GroupName::Generation(Some(generation)) => format!("generation {generation}"),
        GroupName::Generation(None) => "generation ?".to_owned(),
        GroupName::Reason(GcReason::Manual) => "gc.collect()".to_owned(),
        GroupName::Reason(GcReason::Shutdown) => "at shutdown".to_owned(),
        GroupName::Reason(reason) => reason.as_ref().to_owned(),
    }
}

fn percentile_error(pauses: &PausesReport) -> String {
    match pauses.percentile_error_ratio {
        error if error > 0.0 => format!(" Percentiles are within ±{}.", percent(error)),
        _ => String::new(),
    }
}

fn pauses_row(name: &str, time_ratio: f64, pauses: &PausesReport) -> [String; 8] {
    let time = |ns: Option<u64>| ns.map(duration).or_dash();
    [
        name.to_owned(),
        short_count(pauses.count),
        duration(pauses.time_ns),
        percent(time_ratio),
        time(pauses.p50_ns),
        time(pauses.p90_ns),
        time(pauses.p99_ns),
        time(pauses.max_ns),
    ]
}

/// Start of a trace on its own clock: times in tables count from it.
pub(super) fn started_ns(report: &Report, trace: usize) -> u64 {
    if let Some(trace) = report.traces.get(trace) { trace.started_ns } else { 0 }
}
