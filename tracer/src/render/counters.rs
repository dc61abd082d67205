//! The section on performance counters. What was not counted is left out.

use super::table::Table;
use super::table::printable;
use super::table::wrap;
use super::text::Section;
use gctrace_analysis::report::CounterReport;
use gctrace_analysis::report::CountersReport;
use gctrace_analysis::report::Report;
use gctrace_analysis::units::count;
use gctrace_analysis::units::counted;
use gctrace_analysis::units::duration;
use gctrace_analysis::units::percent;
use gctrace_analysis::units::short_count;
use gctrace_analysis::units::three_digits;
use gctrace_event::Counter;
use std::collections::BTreeMap;

const INDENT: &str = "  ";

pub(crate) fn counters(report: &Report) -> Section {
    let mut lines = Vec::new();
    let mut sentences = Vec::new();
    if let Some(counters) = &report.counters {
        lines.extend(table(counters));
        sentences.extend(remarks(counters, report.totals.pauses.count));
    }
    sentences.extend(missing(report));
    for sentence in sentences {
        lines.extend(wrap(&sentence, INDENT, INDENT));
    }
    Section {
        heading: "Counters in pauses and outside",
        lines,
    }
}

/// One of the figures of a counter.
type Figure = fn(&CounterReport) -> Option<f64>;

fn table(counters: &CountersReport) -> Vec<String> {
    let columns: [(&str, &str, Figure); 3] = [
        ("/1000 instr.", "outside", |counter| {
            counter.inside_per_1000_instructions
        }),
        ("/ms on CPU", "outside", |counter| counter.inside_per_cpu_s),
        ("/1000 objects", "", |counter| counter.per_1000_objects),
    ];
    let shown: Vec<_> = columns
        .into_iter()
        .filter(|(_, _, figure)| counters.counters.iter().any(|c| figure(c).is_some()))
        .collect();
    let mut head = vec!["", "in pauses", "of all"];
    for (name, outside, _) in &shown {
        head.push(name);
        head.extend(Some(*outside).filter(|outside| !outside.is_empty()));
    }
    let mut table = Table::new(&head, &[0]);
    for counter in &counters.counters {
        let mut row = vec![
            counter.name.clone(),
            value(counter),
            counter.inside_ratio.map_or_else(dash, percent),
        ];
        for (name, ..) in &shown {
            row.extend(figures(counter, name));
        }
        table.row(row);
    }
    table.lines()
}

fn dash() -> String {
    "-".to_owned()
}

/// What was counted inside pauses.
fn value(counter: &CounterReport) -> String {
    match is_clock(counter) {
        true => duration(counter.inside),
        false => short_count(counter.inside),
    }
}

fn is_clock(counter: &CounterReport) -> bool {
    [Counter::TaskClock, Counter::CpuClock]
        .iter()
        .any(|clock| clock.as_str() == counter.name)
}

/// The cells of one column, or of one inside and one outside. Clocks have no rates that say
/// anything.
fn figures(counter: &CounterReport, column: &str) -> Vec<String> {
    let clock = is_clock(counter);
    let cell = |value: Option<f64>, per: f64| match value.filter(|_| !clock) {
        Some(value) => figure(value / per),
        None => dash(),
    };
    match column {
        "/1000 instr." => vec![
            cell(counter.inside_per_1000_instructions, 1.0),
            cell(counter.outside_per_1000_instructions, 1.0),
        ],
        "/ms on CPU" => vec![
            cell(counter.inside_per_cpu_s, 1e3),
            cell(counter.outside_per_cpu_s, 1e3),
        ],
        _ => vec![cell(counter.per_1000_objects, 1.0)],
    }
}

fn figure(value: f64) -> String {
    match value {
        value if value == 0.0 => "0".to_owned(),
        value if value >= 1e4 => short_count(value as u64),
        value if value < 1e-5 => "<0.00001".to_owned(),
        value => three_digits(value),
    }
}

fn remarks(counters: &CountersReport, pauses: u64) -> Vec<String> {
    let mut text = Vec::new();
    if let Some(inside) = counters.inside_ipc {
        let outside = counters.outside_ipc.map_or(String::new(), |outside| {
            format!(", outside {}", three_digits(outside))
        });
        text.push(format!(
            "Instructions per cycle: in pauses {}{outside}.",
            three_digits(inside)
        ));
    }
    text.push(scheduling(counters));
    let major = counters.major_fault_pauses;
    if major.count > 0 {
        text.push(format!(
            "{} ({}) waited for a disk (major faults).",
            counted(major.count, "pause"),
            duration(major.time_ns)
        ));
    }
    let examined = counters
        .counters
        .iter()
        .any(|c| c.per_1000_objects.is_some());
    if examined {
        text.push(format!(
            "Per 1000 objects: over {} of known size, {} objects, each looked at once (inferred).",
            counted(counters.examined_pauses, "full collection"),
            short_count(counters.examined_objects),
        ));
    }
    if counters.counters.iter().any(|c| c.outside.is_some()) {
        text.push("Outside: the whole process less its pauses (inferred).".to_owned());
    }
    if counters.migrated_pauses > 0 {
        text.push(format!(
            "In {} of {} the thread moved to another CPU; values counted per CPU were dropped \
             there.",
            count(counters.migrated_pauses),
            counted(pauses, "pause"),
        ));
    }
    if counters.scaled_pauses > 0 || counters.scaled_processes > 0 {
        text.push(format!(
            "Counters took turns on the processor: values of {} and totals of {} are scaled up.",
            counted(counters.scaled_pauses, "pause"),
            counted(counters.scaled_processes, "process"),
        ));
    }
    text.retain(|sentence| !sentence.is_empty());
    text
}

/// Context switches and moves in pauses, in words where there were none.
fn scheduling(counters: &CountersReport) -> String {
    let inside = |counter: Counter| {
        let mut all = counters.counters.iter();
        let found = all.find(|report| report.name == counter.as_str());
        found.map(|report| report.inside)
    };
    match (
        inside(Counter::ContextSwitches),
        inside(Counter::CpuMigrations),
    ) {
        (Some(0), None | Some(0)) => "No pause was interrupted by a context switch.".to_owned(),
        _ => String::new(),
    }
}

/// Counters that the machine does not have, one sentence for all traces.
fn missing(report: &Report) -> Option<String> {
    let all: BTreeMap<&str, &str> = report
        .traces
        .iter()
        .flat_map(|trace| &trace.counters_missing)
        .map(|(name, why)| (name.as_str(), why.as_str()))
        .collect();
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, why) in all {
        by_reason.entry(why).or_default().push(name);
    }
    let parts: Vec<String> = by_reason
        .into_iter()
        .map(|(why, names)| printable(&format!("{} ({why})", names.join(", "))))
        .collect();
    (!parts.is_empty()).then(|| format!("Not counted: {}.", parts.join("; ")))
}
