//! Whether processes keep more and more memory.

use crate::document::{Block, Section, Table, paragraph};
use crate::text::mark;
use crate::units::{bytes, counted, duration, short_count, three_digits};
use gctrace_analysis::paths;
use gctrace_analysis::report::{HeapTrend, ProcessReport, Report, Trend};

/// Processes in the section at most; the others are in the JSON.
const SHOWN: usize = 3;
/// Shortest time of a stated trend, in ns: less shows set-up rather than a leak.
const SHORTEST_NS: u64 = 30_000_000_000;

/// A quantity that may rise: its name, and the form of its numbers.
struct Kept {
    name: &'static str,
    of: fn(&HeapTrend) -> Option<Trend>,
    shown: fn(u64) -> String,
}

const KEPT: [Kept; 3] = [
    Kept { name: "objects", of: |trend| trend.objects, shown: short_count },
    Kept { name: "resident memory", of: |trend| trend.resident, shown: bytes },
    Kept { name: "device memory", of: |trend| trend.device, shown: bytes },
];

/// The trends of each process, rising ones first.
pub(crate) fn section(report: &Report) -> Section {
    let mut known: Vec<(&ProcessReport, &HeapTrend)> = report
        .processes
        .iter()
        .filter_map(|process| Some((process, process.trend.as_ref()?)))
        .filter(|(_, trend)| trend.duration_ns() >= SHORTEST_NS)
        .collect();
    known.sort_by_key(|(_, trend)| !trend.rises());
    let blocks =
        known.into_iter().take(SHOWN).flat_map(|(process, trend)| of_process(process, trend));
    Section::new("Does memory grow?", blocks.collect())
}

fn of_process(process: &ProcessReport, trend: &HeapTrend) -> Vec<Block> {
    let (seconds, per) = per(trend);
    let rows = KEPT.iter().filter_map(|kept| Some((kept, (kept.of)(trend)?)));
    let rows: Vec<(&Kept, Trend)> = rows.collect();
    let rate = |kept: &Kept, per_s: f64| {
        let sign = if per_s < 0.0 { "-" } else { "+" };
        format!("{sign}{}", (kept.shown)((per_s.abs() * seconds) as u64))
    };
    let mut blocks = vec![paragraph(format!(
        "Process {}, per {per}, without its warm-up{}:",
        process.pid,
        mark(trend.basis)
    ))];
    let table = Table::of(&rows)
        .left("", |(kept, trend)| {
            let grows = match (trend.rises, trend.slows) {
                (true, _) => " (grows)",
                (false, true) => " (slows)",
                (false, false) => "",
            };
            // In 80 columns there is no room for more.
            format!("{}{grows}", kept.name.trim_end_matches(" memory"))
        })
        .right(per, |(kept, trend)| rate(kept, trend.per_s))
        .left("95 %", |(kept, trend)| {
            let [low, high] =
                [trend.at_least_per_s, trend.at_most_per_s].map(|end| rate(kept, end));
            format!("{low} to {high}")
        })
        .right("p", |(_, trend)| match trend.p_value {
            p if p < 0.001 => "< 0.001".to_owned(),
            p => three_digits(p),
        })
        .right("over", |(_, trend)| duration(trend.duration_ns))
        .right("after", |(_, trend)| duration(trend.since_ns));
    blocks.push(table.into());
    let mut sentences = Vec::new();
    let slowing = rows.iter().filter(|(_, trend)| trend.slows).map(|(kept, _)| kept.name);
    let slowing: Vec<&str> = slowing.collect();
    if !slowing.is_empty() {
        sentences.push(format!(
            "What grows ever slower ({}), by more than chance, is a cache that fills or a leak that slows \
             down: a longer recording shows which.",
            slowing.join(", ")
        ));
    } else if rows.iter().any(|(_, trend)| trend.is_unclear) && !trend.rises() {
        sentences.push("Whether it grows is unclear: there are too few readings.".to_owned());
    } else if !trend.rises() {
        sentences.push("Nothing grows by more than chance, and to the end.".to_owned());
    }
    sentences.extend(cause(trend));
    if trend.rises() && trend.may_be_set_up() {
        sentences.push(NO_LEAK_YET.to_owned());
    }
    if let (Some(reaches), Some(limit)) = (trend.reaches_limit, trend.memory_limit_bytes) {
        sentences.push(format!(
            "At this rate it reaches {} in {} (predicted; {} to {}).",
            bytes(limit),
            long_duration(reaches.likely_ns),
            long_duration(reaches.at_least_ns),
            long_duration(reaches.at_most_ns),
        ));
    }
    sentences.extend(born(trend));
    if matches!(trend.objects, Some(objects) if objects.rises) || !trend.lines.is_empty() {
        sentences.push(format!(
            "Which objects, and what holds them: gctrace heap -p {} three times, then gctrace heap diff.",
            process.pid
        ));
        if trend.lines.is_empty() && process.allocations.is_none() {
            sentences
                .push("The lines that allocate them: gctrace --mode inject --alloc.".to_owned());
        }
    }
    if !sentences.is_empty() {
        blocks.push(paragraph(sentences.join(" ")));
    }
    blocks
}

/// A possible reason for a rise of few minutes without steps.
const NO_LEAK_YET: &str = "It may be set-up still: a recording of ten minutes or more shows that.";

/// The owner of rising resident memory.
fn cause(trend: &HeapTrend) -> Option<String> {
    if !trend.resident?.rises {
        return None;
    }
    match trend.outside_python {
        Some(false) => None,
        Some(true) => Some(
            "Resident memory grows and the objects do not: it is outside Python (native code, the \
             allocator or a device's driver), or in few large objects."
                .to_owned(),
        ),
        None => Some(
            "Whether it is Python's is unknown: there were too few full collections to compare."
                .to_owned(),
        ),
    }
}

/// The lines with ever more objects that stay.
fn born(trend: &HeapTrend) -> Option<String> {
    let (seconds, per) = per(trend);
    let lines = trend.lines.iter().map(|line| {
        let rate = |per_s: f64| (per_s * seconds) as u64;
        let memory =
            line.bytes.map_or(String::new(), |trend| format!(" and {}", bytes(rate(trend.per_s))));
        format!(
            "{} (+{} objects{memory})",
            paths::place(&line.location),
            short_count(rate(line.objects.per_s)),
        )
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        return None;
    }
    let lines = lines.join(", ");
    Some(format!("Born and alive, per {per}, of a sample of all allocations: {lines}."))
}

/// The unit of time of a trend, in s with its name: at most ten times the trend's duration.
fn per(trend: &HeapTrend) -> (f64, &'static str) {
    const SIX_MINUTES_NS: u64 = 360_000_000_000;
    if trend.duration_ns() >= SIX_MINUTES_NS { (3_600.0, "hour") } else { (60.0, "minute") }
}

/// `9.1 h`, `3.2 days`; shorter ones as any other duration.
fn long_duration(ns: u64) -> String {
    const HOUR_NS: f64 = 3.6e12;
    match ns as f64 / HOUR_NS {
        hours if hours >= 8_760.0 => "more than a year".to_owned(),
        hours if hours >= 48.0 => format!("{} days", three_digits(hours / 24.0)),
        hours if hours >= 1.0 => format!("{} h", three_digits(hours)),
        _ => duration(ns),
    }
}

/// A sentence that a process keeps more and more; `None` if none does.
pub(super) fn in_short(report: &Report) -> Option<String> {
    let growing = report.processes.iter().filter_map(|process| {
        let trend = process.trend.as_ref()?;
        if !trend.rises() {
            return None;
        }
        Some((process, trend))
    });
    let (process, trend) = growing.clone().min_by_key(|(_, trend)| trend.may_be_set_up())?;
    let others = growing.count() as u64 - 1;
    let (seconds, per) = per(trend);
    let rates = KEPT.iter().filter_map(|kept| {
        let trend = (kept.of)(trend)?;
        if !trend.rises {
            return None;
        }
        let rate = (kept.shown)((trend.per_s * seconds) as u64);
        let unit = if kept.name == "objects" { " objects" } else { "" };
        Some((kept.name, format!("{rate}{unit}")))
    });
    let rates: Vec<(&str, String)> = rates.collect();
    let what = match rates.as_slice() {
        [(name, _)] if *name != "objects" => name,
        _ => "heap",
    };
    let whose = match report.processes.len() {
        1 => format!("Its {what}"),
        _ => format!("The {what} of process {}", process.pid),
    };
    let rates: Vec<String> = rates.into_iter().map(|(_, rate)| rate).collect();
    let rates = rates.join(" and ");
    let inferred = mark(trend.basis);
    let others = match others {
        0 => String::new(),
        others => format!(" So does that of {}.", counted(others, "other process")),
    };
    if trend.may_be_set_up() {
        return Some(format!(
            "{whose} grew for {}: {rates} per {per}{inferred}. {NO_LEAK_YET}{others}",
            duration(trend.duration_ns()),
        ));
    }
    let ends = (trend.reaches_limit, trend.memory_limit_bytes);
    let ends = if let (Some(reaches), Some(limit)) = ends {
        let when = long_duration(reaches.likely_ns);
        format!(", {} in {when} (predicted)", bytes(limit))
    } else {
        String::new()
    };
    let cause = if let Some(cause) = cause(trend) { format!(" {cause}") } else { String::new() };
    let born = if let Some(line) = trend.lines.first() {
        format!(" Its fastest line of birth: {}.", paths::place(&line.location))
    } else {
        String::new()
    };
    Some(format!("{whose} keeps growing: {rates} per {per}{inferred}{ends}.{born}{cause}{others}"))
}
