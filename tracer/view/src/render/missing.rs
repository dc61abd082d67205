//! Data missing from the figures: deleted, lost, left out or not examined.

use super::overview::remarks;
use crate::document::{INDENT, Section, hanging};
use crate::units::{counted, duration};
use crate::unseen::unseen_words;
use gctrace_analysis::report::{DeletedReport, MissingData, OmittedGpuReport, PauseTotal, Report};
use gctrace_event::{SpacedClass, TraceEnd};

pub(crate) fn missing(report: &Report) -> Section {
    let items = items(report).into_iter();
    Section::new("Missing", items.map(|item| hanging(item, INDENT, "    ")).collect())
}

/// The data that a recorder has deleted.
fn deleted(deleted: &DeletedReport) -> String {
    let longest =
        deleted.longest_ns.map_or(String::new(), |ns| format!(", longest {}", duration(ns)));
    let waits = match deleted.waits.count {
        0 => String::new(),
        count => {
            let time = duration(deleted.waits.time_ns);
            format!("; {} off the CPU ({time} of all threads)", counted(count, "time"))
        }
    };
    let gpu = match deleted.operations.count {
        0 => String::new(),
        count => {
            let time = duration(deleted.operations.time_ns);
            format!("; {} ({time} on GPUs)", counted(count, "GPU operation"))
        }
    };
    let lost = match deleted.lost {
        0 => String::new(),
        lost => format!("; {} were lost", counted(lost, "event")),
    };
    format!(
        "{} deleted, of the {} before: {} ({} in total{longest}) counted exactly, in no other figure{waits}{gpu}{lost}.",
        counted(deleted.segments, "segment"),
        duration(deleted.time_ns),
        counted(deleted.pauses.count, "pause"),
        duration(deleted.pauses.time_ns),
    )
}

/// GPU work that a recorder only counted.
fn omitted_gpu_work(omitted: &OmittedGpuReport) -> String {
    let known = match omitted.known_ns {
        Some(known_ns) => {
            format!("GPU figures are of {} with the longest pause only", duration(known_ns))
        }
        None => "there are no figures on the GPU".to_owned(),
    };
    format!(
        "{} ({} on GPUs) and {} beyond --per-day only counted: {known}.",
        counted(omitted.operations.count, "GPU operation"),
        duration(omitted.operations.time_ns),
        counted(omitted.calls.count, "call"),
    )
}

/// Other records that a recorder only counted; `name` as in [`TraceEnd`].
fn omitted_others(name: &str, of: &PauseTotal) -> String {
    let what = match (SpacedClass::omitted_as(name), name) {
        (Some(SpacedClass::Samples), _) => {
            return format!(
                "{} beyond --per-day counted at the line of a later one.",
                counted(of.count, "CPU sample")
            );
        }
        (Some(SpacedClass::Layers), _) => "layer table",
        (Some(SpacedClass::Memory), _) => "device memory reading",
        (Some(SpacedClass::Calls), _) => "CUDA memory or failed call",
        (Some(SpacedClass::Devices), _) => "NVML sample",
        (_, TraceEnd::CALLED) => "finalizer or callback call",
        (_, TraceEnd::BACKWARD) => "backward pass",
        (_, other) => other,
    };
    let time = match of.time_ns {
        0 => String::new(),
        ns => format!(" ({})", duration(ns)),
    };
    format!("{} beyond --per-day only counted{time}, in no other figure.", counted(of.count, what))
}

/// Data missing from the figures, a sentence each; if there is none, a sentence that nothing is known to be missing.
pub(super) fn items(report: &Report) -> Vec<String> {
    let missing = &report.missing;
    let mut items: Vec<String> = missing.deleted.iter().map(deleted).collect();
    let lost = missing.lost.iter();
    items.extend(
        lost.map(|(place, events)| format!("{} lost: {place}.", counted(*events, "event"))),
    );
    items.extend(missing.unexamined.iter().map(|(why, count)| {
        format!(
            "{} {}: the figures exclude collections in {}.",
            counted(*count, "process"),
            why,
            if *count == 1 { "it" } else { "them" }
        )
    }));
    items.extend(missing.unseen.and_then(unseen_words).map(|words| format!("{words}.")));
    if missing.omitted.count > 0 {
        items.push(format!(
            "{} under {} left out of the tables ({}, included in the totals).",
            counted(missing.omitted.count, "pause"),
            if missing.deleted.is_some() {
                "--min-pause or beyond --per-day"
            } else {
                "--min-pause"
            },
            duration(missing.omitted.time_ns)
        ));
    }
    if missing.omitted_waits.count > 0 {
        items.push(format!(
            "{} off the CPU beyond --per-day only counted ({} of all threads), in no other figure.",
            counted(missing.omitted_waits.count, "short time"),
            duration(missing.omitted_waits.time_ns)
        ));
    }
    items.extend(missing.omitted_others.iter().map(|(name, of)| omitted_others(name, of)));
    items.extend(missing.omitted_gpu_work.as_ref().map(omitted_gpu_work));
    if missing.unfinished.count > 0 {
        items.push(format!(
            "{} cut short by the end of the process or thread ({} until then, in the tables).",
            counted(missing.unfinished.count, "pause"),
            duration(missing.unfinished.time_ns)
        ));
    }
    if missing.attached > 0 {
        let was = if missing.attached == 1 { "was" } else { "were" };
        let (start, earlier) = match missing.deleted {
            Some(_) => ("the first segment", "not in the figures"),
            None => ("recording", "unknown"),
        };
        items.push(format!(
            "{} {was} already running when {start} started; earlier pauses are {earlier}.",
            counted(missing.attached, "process")
        ));
    }
    if missing.inexact_overlaps > 0 {
        items.push(format!(
            "{}: the trace is far out of order; overlapping pauses may be counted twice.",
            counted(missing.inexact_overlaps, "process")
        ));
    }
    if missing.recorded_twice > 0 {
        items.push(format!(
            "{} recorded by the probes and in-process separately; each counts once.",
            counted(missing.recorded_twice, "pause")
                + if missing.recorded_twice == 1 { " was" } else { " were" }
        ));
    }
    items.extend(missing.unreadable.iter().map(|why| format!("Left out: {}", why)));
    items.extend(report.traces.iter().flat_map(|trace| {
        let name = match report.traces.len() {
            1 => String::new(),
            _ => format!("{}: ", trace.file.clone()),
        };
        remarks(trace).into_iter().map(move |remark| format!("{name}{remark}"))
    }));
    if items.is_empty() {
        items.push(nothing_known(missing).to_owned());
    }
    items
}

/// The sentence if no loss is known. "Nothing was lost" requires that every process was examined.
fn nothing_known(missing: &MissingData) -> &'static str {
    match (missing.every_process_examined, missing.unseen) {
        (Some(true), _) => "Nothing was lost.",
        (Some(false), Some(_)) => {
            "No event was lost. Processes that do not load the library are not seen in-process."
        }
        (Some(false), None) => {
            "No event was lost. Not seen in-process: the first collections of each interpreter (3 - 7), \
             before the library is loaded; the last ones of subinterpreters; processes that do not \
             load the library."
        }
        (None, _) => {
            "No loss is recorded. The trace does not state whether every process was examined."
        }
    }
}
