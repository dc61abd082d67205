//! The sections on individual pauses, the heap, explicit calls, CPU time and overhead.

use crate::document::{Block, Section, Table, paragraph};
use crate::text::{OrDash as _, mark};
use crate::units::{count, counted, duration, percent, short_count, three_digits};
use gctrace_analysis::report::{
    GrowthPoint, GrowthReport, Location, OverheadReport, PauseTotal, ProbeReport, ProcessReport,
    Report, WorstPause,
};
use gctrace_event::{GcReason, ProbeCost};
use std::time::{Duration, SystemTime};

/// Maximum number of processes with growth shown; the others are in the JSON.
const GROWTHS_SHOWN: usize = 3;

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
    let legend = with_trace.then(|| paragraph("#N: trace N, in the order above"));
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
    let file = location.file.rsplit('/').next().unwrap_or_default();
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
    ratio.map_or_else(String::new, |ratio| format!(", {} of the observed time", percent(ratio)))
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

pub(crate) fn growth(report: &Report) -> Section {
    let growing =
        report.processes.iter().filter_map(|process| Some((process, process.growth.as_ref()?)));
    Section::new(
        "Full collections and heap size",
        growing
            .take(GROWTHS_SHOWN)
            .flat_map(|(process, growth)| growth_lines(process, growth))
            .collect(),
    )
}

fn growth_lines(process: &ProcessReport, growth: &GrowthReport) -> [Block; 2] {
    let mut points: Vec<GrowthPoint> =
        [0.0, 0.25, 0.5, 0.75, 1.0].map(|ratio| growth.at(ratio)).to_vec();
    points.dedup();
    let table = Table::of(&points)
        .right("after start", |point| after_start(0, point.after_start_ns))
        .right("objects", |point| count(point.objects))
        .right("pause", |point| duration(point.duration_ns));
    [table.into(), paragraph(growth_sentence(process, growth))]
}

fn growth_sentence(process: &ProcessReport, growth: &GrowthReport) -> String {
    let mut text =
        format!("Process {}, {}: ", process.pid, counted(growth.collections, "full collection"),);
    text += &match (growth.ns_per_million_objects, growth.r_squared) {
        (Some(slope), Some(r_squared)) if slope > 0.0 => format!(
            "{} per million objects{}, r² = {}.",
            duration(slope as u64),
            mark(growth.basis),
            three_digits(r_squared),
        ),
        (Some(_), _) => "the pause did not grow with the heap.".to_owned(),
        (None, _) => "the heap hardly changed.".to_owned(),
    };
    if let Some(prediction) = &growth.at_twice_the_heap {
        text += &format!(
            " With twice the largest heap: {}{}.",
            duration(prediction.duration_ns),
            mark(prediction.basis)
        );
    }
    text
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

/// From this share of the pauses off CPU on, the machine is named as a cause.
const BUSY_MACHINE: f64 = 0.2;

pub(crate) fn processor(report: &Report) -> Section {
    let all = &report.totals.pauses;
    let mut sentences = Vec::new();
    if let Some(cpu) = &all.cpu {
        let of = if cpu.pauses == all.count {
            String::new()
        } else {
            format!(" (of {} of {} pauses)", count(cpu.pauses), count(all.count))
        };
        sentences.push(format!(
            "The collecting thread was on a CPU for {} of {} of pauses{of}, and preempted or \
             waiting for {}.",
            duration(cpu.on_cpu_ns),
            duration(cpu.pause_ns),
            percent(cpu.off_cpu_ratio),
        ));
        if cpu.off_cpu_ratio >= BUSY_MACHINE {
            sentences.push(
                "The machine has too few CPUs for its load, or memory was paged in: on an idle \
                 one the pauses would be shorter; or finalizers of the program waited."
                    .to_owned(),
            );
        }
    }
    if let Some(world) = &all.stop_the_world {
        sentences.push(format!(
            "Free-threaded Python: {} took {}; other threads were stopped for {} of that.",
            counted(world.runs, "collector run"),
            duration(world.run_ns),
            duration(world.stopped_ns),
        ));
    }
    Section::of_sentences("CPU time", &sentences)
}

/// What the probes cost processes that were not recorded, if they hit any.
pub(crate) fn cost_elsewhere(report: &Report) -> Option<String> {
    let probes = report.overhead.probes.iter().filter(|probe| probe.elsewhere);
    let costs: Vec<String> = probes
        .map(|probe| {
            let what = match probe.probe.as_str() {
                ProbeCost::CUDA_ELSEWHERE => "CUDA call",
                ProbeCost::CODE_ELSEWHERE => "time they free the code of a function",
                _ => "collection",
            };
            match probe.ns_per_hit {
                Some(ns) => format!("{} each {what}", duration(ns as u64)),
                None => format!("an unknown time each {what} ({})", count(probe.hits)),
            }
        })
        .collect();
    if costs.is_empty() {
        return None;
    }
    let total = report.overhead.elsewhere_ns;
    let total =
        total.map(|ns| format!(" {}{} in total:", duration(ns), mark(report.overhead.basis)));
    Some(format!(
        "Other processes of the same Python, which were not recorded, ran longer for the probes,{} {}.",
        total.unwrap_or_default(),
        costs.join(" and "),
    ))
}

fn hits(probe: &ProbeReport) -> String {
    let price = match probe.ns_per_hit {
        Some(ns) => format!("{} each", duration(ns as u64)),
        None => "cost unknown".to_owned(),
    };
    format!("{}: {}, {price}", probe.probe, counted(probe.hits, "hit"))
}

/// By how much recording slowed the program, in a sentence without its end; how much CPU time it took where the
/// program's is unknown.
pub(crate) fn slowed(cost: &OverheadReport) -> Option<String> {
    let basis = mark(cost.basis);
    match slowed_by(cost) {
        Some(share) => Some(format!("gctrace slowed the program by {share}{basis}")),
        None => Some(format!("gctrace took {} of its CPU time{basis}", cpu_time(cost)?)),
    }
}

/// CPU time that recording took, as a range.
fn cpu_time(cost: &OverheadReport) -> Option<String> {
    Some(range(&duration(cost.time_at_least_ns?), &duration(cost.time_at_most_ns?)))
}

/// By how much recording slowed the program, as a range.
pub(crate) fn slowed_by(cost: &OverheadReport) -> Option<String> {
    Some(range(&percent(cost.cpu_ratio_at_least?), &percent(cost.cpu_ratio_at_most?)))
}

/// A unit that both have is printed once.
fn range(least: &str, most: &str) -> String {
    let unit = |figure: &str| figure.rsplit_once(' ').map(|(_, unit)| unit.to_owned());
    match least.rsplit_once(' ') {
        _ if least == most => most.to_owned(),
        Some((number, own)) if Some(own) == unit(most).as_deref() => format!("{number} - {most}"),
        _ => format!("{least} - {most}"),
    }
}

pub(crate) fn own_cost(report: &Report) -> Section {
    let cost = &report.overhead;
    let mut sentences = Vec::new();
    if let Some(slowed) = slowed(cost) {
        let time = cpu_time(cost).filter(|_| cost.cpu_ratio.is_some());
        let time = time.map_or(String::new(), |time| format!(": {time} of CPU time"));
        sentences.push(format!("{slowed}{time}."));
    }
    if let Some(stopped_ns) = cost.stopped_ns {
        sentences.push(format!("It was stopped for {}, for its probes.", duration(stopped_ns)));
    }
    let probes: Vec<String> =
        cost.probes.iter().filter(|probe| !probe.elsewhere).map(hits).collect();
    if !probes.is_empty() {
        sentences.push(probes.join("; ") + ".");
    }
    sentences.extend(cost_elsewhere(report));
    if cost.traces_without_overhead > 0 && report.totals.pauses.count > 0 {
        let traces = counted(cost.traces_without_overhead, "trace");
        sentences.push(format!("{traces} without recorded overhead."));
    }
    Section::of_sentences("Recording overhead", &sentences)
}
