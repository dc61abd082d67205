//! The section on performance counters. Counters without a value are left out.

use crate::document::{Block, Section, Table, paragraph};
use crate::text::OrDash as _;
use crate::units::{count, counted, duration, percent, short_count, three_digits};
use gctrace_analysis::report::{CounterReport, CountersReport, Report};
use gctrace_event::Counter;
use std::collections::BTreeMap;

pub(crate) fn counters(report: &Report) -> Section {
    let mut blocks = Vec::new();
    let mut sentences = Vec::new();
    if let Some(counters) = &report.counters {
        blocks.push(table(counters));
        sentences.extend(remarks(counters, report.totals.pauses.count));
    }
    sentences.extend(missing(report));
    blocks.extend(sentences.iter().map(paragraph));
    Section::new("Counters inside and outside pauses", blocks)
}

fn table(counters: &CountersReport) -> Block {
    let all = &counters.counters;
    // CPU time is counted on every machine, instructions only with a PMU.
    let rates: Option<(&str, Rates)> = if all.iter().any(|c| c.inside_per_cpu_s.is_some()) {
        Some(("per CPU ms", |c| {
            [c.inside_per_cpu_s, c.outside_per_cpu_s].map(|rate| Some(rate? / 1e3))
        }))
    } else if all.iter().any(|c| c.inside_per_1000_instructions.is_some()) {
        Some(("per 1000 instructions", |c| {
            [c.inside_per_1000_instructions, c.outside_per_1000_instructions]
        }))
    } else {
        None
    };
    let objects = all.iter().any(|counter| counter.per_1000_objects.is_some());
    // The rate of a clock is meaningless.
    let cell = |counter: &CounterReport, rate: Option<f64>| {
        let rate = if is_clock(counter) { None } else { rate };
        rate.map(figure).or_dash()
    };
    let rate = |counter, side: usize| {
        cell(counter, rates.and_then(|(_, rates)| rates(counter).get(side).copied().flatten()))
    };
    let name = if let Some((name, _)) = rates { name } else { "" };
    Table::of(all)
        .left("", |counter| counter.name.as_ref().to_owned())
        .right("in pauses", value)
        .right("of all", |counter| counter.inside_ratio.map(percent).or_dash())
        .right_if(rates.is_some(), name, |counter| rate(counter, 0))
        .right_if(rates.is_some(), "outside", |counter| rate(counter, 1))
        .right_if(objects, "per 1000 objects", |counter| cell(counter, counter.per_1000_objects))
        .into()
}

/// Rates of a counter inside and outside pauses.
type Rates = fn(&CounterReport) -> [Option<f64>; 2];

/// The value inside pauses.
fn value(counter: &CounterReport) -> String {
    if is_clock(counter) { duration(counter.inside) } else { short_count(counter.inside) }
}

fn is_clock(counter: &CounterReport) -> bool {
    matches!(counter.name, Counter::TaskClock | Counter::CpuClock)
}

fn figure(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value >= 999.5 => short_count(value as u64),
        value if value < 1e-3 => "<0.001".to_owned(),
        value => three_digits(value),
    }
}

fn remarks(counters: &CountersReport, pauses: u64) -> Vec<String> {
    let mut text = Vec::new();
    if let Some(inside) = counters.inside_ipc {
        let outside = match counters.outside_ipc {
            Some(outside) => format!(", outside {}", three_digits(outside)),
            None => String::new(),
        };
        text.push(format!("Instructions per cycle: in pauses {}{outside}.", three_digits(inside)));
    }
    let major = counters.major_fault_pauses;
    if major.count > 0 {
        text.push(format!(
            "{} ({}) waited for disk I/O (major faults).",
            counted(major.count, "pause"),
            duration(major.time_ns)
        ));
    }
    let examined = counters.counters.iter().any(|c| c.per_1000_objects.is_some());
    if examined {
        text.push(format!(
            "Per 1000 objects: {} with a known heap size, {} objects traversed (inferred).",
            counted(counters.traversed_pauses, "full collection"),
            short_count(counters.traversed_objects),
        ));
    }
    if counters.counters.iter().any(|c| c.outside.is_some()) {
        text.push("Outside: the whole process minus its pauses (inferred).".to_owned());
    }
    if counters.migrated_pauses > 0 {
        text.push(format!(
            "In {} of {} per-CPU values were dropped: the thread migrated unseen.",
            count(counters.migrated_pauses),
            counted(pauses, "pause"),
        ));
    }
    if counters.migrated_processes > 0 {
        text.push(format!(
            "The totals of {} are too low for the same reason.",
            counted(counters.migrated_processes, "process"),
        ));
    }
    if counters.scaled_pauses > 0 || counters.scaled_processes > 0 {
        let some = |count: u64, of: &str| if count > 0 { Some(counted(count, of)) } else { None };
        let scaled = [
            some(counters.scaled_pauses, "pause").map(|all| format!("the values of {all}")),
            some(counters.scaled_processes, "process").map(|all| format!("the totals of {all}")),
        ];
        let scaled: Vec<String> = scaled.into_iter().flatten().collect();
        text.push(format!("Counters were multiplexed; {} are scaled.", scaled.join(" and ")));
    }
    text
}

/// Counters that the machine lacks, as one sentence for all traces.
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
    let parts: Vec<String> =
        by_reason.into_iter().map(|(why, names)| format!("{}: {why}", names.join(", "))).collect();
    if parts.is_empty() { None } else { Some(format!("Not counted: {}.", parts.join("; "))) }
}
