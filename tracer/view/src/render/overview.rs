//! The overview sections: recording and its sources, pauses, processes, and missing data.

use crate::document::{Block, Cell, Section, Table, WIDTH, cut, paragraph};
use crate::text::{OrDash as _, mark};
use crate::units::{count, counted, duration, percent, short_count};
use crate::unseen::unseen_places;
use gctrace_analysis::report::{ProcessReport, RecordedReport, Report, TraceReport};
use gctrace_event::{CollectorKind, RecordingMode};
use std::collections::BTreeSet;

/// Maximum number of processes listed; the others are in the JSON.
const PROCESSES_SHOWN: usize = 10;
/// Maximum number of traces listed.
const TRACES_SHOWN: usize = 64;
/// Maximum number of notes and of anomalies listed per trace.
const REMARKS_SHOWN: usize = 5;
/// Head of the column with a process's host, for traces of several hosts.
const HOST: &str = "host";
/// Characters of a line that are reserved for the text beside a command.
const BESIDE_COMMAND: usize = 20;

/// A command line without the program's directory, cut to fit into a line of `width` characters.
pub(super) fn command(words: &[String], width: usize) -> String {
    let mut words = words.iter();
    let program = if let Some(program) = words.next() { program.as_str() } else { "" };
    let program = program.rsplit('/').next().unwrap_or(program).to_owned();
    let line = words.fold(program, |line, word| format!("{line} {word}"));
    cut(&line, width - BESIDE_COMMAND)
}

pub(crate) fn recording(report: &Report) -> Section {
    let mut blocks = match report.traces.as_slice() {
        [trace] => vec![one_trace(trace)],
        _ => many_traces(report),
    };
    blocks.extend(sources(report));
    Section::new("Recording", blocks)
}

fn one_trace(trace: &TraceReport) -> Block {
    let mut sentence = trace.file.clone();
    sentence += ": ";
    sentence += &match (trace.command.as_slice(), trace.attached_pid) {
        (_, Some(pid)) => format!("attached to process {pid}"),
        ([], None) => "recorded by another tool".to_owned(),
        (words, None) => command(words, WIDTH),
    };
    if let Some(host) = trace.host.as_deref()
        && !host.is_empty()
    {
        sentence += &format!(", on {}", host);
    }
    sentence += &format!(", {}{}", duration(trace.duration_ns), mark(trace.basis));
    if let Some(why) = &trace.ended {
        sentence += &format!("; {}", why);
    }
    if let Some(code) = trace.exit_code
        && code != 0
    {
        sentence += &format!(" (exit code {code})");
    }
    paragraph(sentence + ".")
}

fn many_traces(report: &Report) -> Vec<Block> {
    let traces = &report.traces;
    let hosts = several_hosts(traces);
    let table = Table::of(traces.iter().enumerate().take(TRACES_SHOWN))
        .right("recorded", |(_, trace)| duration(trace.duration_ns))
        .right("processes", |(_, trace)| count(trace.processes))
        .right("pauses", |(_, trace)| short_count(trace.pauses.count))
        .right("paused", |(_, trace)| duration(trace.stopped_ns))
        .right("of time", |(_, trace)| trace.stopped_ratio.map(percent).or_dash())
        .right("longest", |(_, trace)| trace.max_ns.map(duration).or_dash())
        .left("trace", |(number, trace)| trace_name(report, number, trace, hosts));
    let mut blocks = vec![table.into()];
    if let Some(more) = traces.len().checked_sub(TRACES_SHOWN)
        && more > 0
    {
        blocks.push(paragraph(format!("and {more} more (--format json lists more)")));
    }
    blocks
}

/// The file of a trace, with its ranks and its host if there are several.
fn trace_name(report: &Report, number: usize, trace: &TraceReport, hosts: bool) -> String {
    let partly = if trace.cut_at.is_some() || trace.damage.is_some() { "(partly) " } else { "" };
    let name = format!("{partly}{}", trace.file);
    // Names made with %h contain the host already.
    let host = match &trace.host {
        Some(host) if hosts && !name.contains(host.as_str()) => Some(format!("on {host}")),
        _ => None,
    };
    let origin: Vec<String> = ranks(report, number).into_iter().chain(host).collect();
    if origin.is_empty() { name } else { format!("{}: {name}", origin.join(" ")) }
}

/// Whether traces are of several hosts, as far as they are known.
fn several_hosts(traces: &[TraceReport]) -> bool {
    let mut hosts = traces.iter().filter_map(|trace| trace.host.as_ref());
    let first = hosts.next();
    hosts.any(|host| Some(host) != first)
}

/// `rank 3`, or `ranks 8-15`: the ranks of a trace's processes, otherwise the recording's.
fn ranks(report: &Report, trace: usize) -> Option<String> {
    let its = |of: &ProcessReport| if of.trace == trace { of.rank } else { None };
    let ranks: BTreeSet<u32> = report.processes.iter().filter_map(its).collect();
    let first = match ranks.first() {
        Some(first) => *first,
        None => report.traces.get(trace)?.rank?,
    };
    let last = ranks.last().copied().unwrap_or(first);
    Some(match last - first {
        0 => format!("rank {first}"),
        apart if ranks.len() as u64 == u64::from(apart) + 1 => format!("ranks {first}-{last}"),
        _ => {
            let list: Vec<String> = ranks.iter().map(u32::to_string).collect();
            format!("ranks {}", list.join(","))
        }
    })
}

pub(crate) fn processes(report: &Report) -> Section {
    let mut blocks = process_table(report);
    let more = report.processes.iter().skip(PROCESSES_SHOWN).count();
    if more > 0 {
        let rest = report.processes.iter().skip(PROCESSES_SHOWN);
        let stopped = rest.map(|process| process.stopped_ns).sum();
        blocks.push(paragraph(format!(
            "and {}, paused for {} in total (--format json lists more)",
            counted(more as u64, "other process"),
            duration(stopped)
        )));
    }
    let not_listed = report.totals.processes_not_listed;
    if not_listed > 0 {
        blocks.push(paragraph(format!(
            "and {} that are in the totals only: 10,000 are listed per trace",
            counted(not_listed, "process")
        )));
    }
    let quiet = report.totals.processes_without_pauses;
    if quiet > 0 {
        blocks
            .push(paragraph(format!("{} without a collection", counted(quiet, "Python process"))));
    }
    let other = report.totals.processes_without_python;
    if other > 0 {
        blocks.push(paragraph(format!("{} without Python", counted(other, "process"))));
    }
    Section::new("Processes", blocks)
}

/// The table of processes, with properties common to all of them in a sentence below.
fn process_table(report: &Report) -> Vec<Block> {
    let processes = report.processes.as_slice();
    let Some(first) = processes.first() else { return Vec::new() };
    let traces = report.traces.as_slice();
    let same = |of: CellOf| {
        let first = of(first, traces);
        processes.iter().all(|process| of(process, traces) == first)
    };
    let optional: [OptionalColumn; 5] = [
        (HOST, |process, traces| traces.get(process.trace)?.host.clone()),
        ("rank", |process, _| process.rank.map(|rank| rank.to_string())),
        ("Python", |process, _| python(process)),
        ("thresholds", |process, _| thresholds(process)),
        ("not recorded", |process, _| process.unseen.and_then(unseen_places)),
    ];
    let differs = |(name, of): &OptionalColumn| match *name {
        HOST => several_hosts(traces),
        _ => !same(*of),
    };
    let shown: Vec<OptionalColumn> = optional.into_iter().filter(differs).collect();
    let mut head: Vec<&str> = shown.iter().map(|(name, _)| *name).collect();
    head.extend(["pid", "pauses", "paused", "of time", "longest", "command"]);
    let mut table = Table::new(&head, &[head.len() - 1]);
    for process in processes.iter().take(PROCESSES_SHOWN) {
        let cell = |(_, of): &OptionalColumn| of(process, traces).or_dash();
        let mut row: Vec<Cell> = shown.iter().map(|of| cell(of).into()).collect();
        row.extend(process_row(process));
        table.row(row);
    }
    let mut blocks = vec![table.into()];
    let common: Vec<String> = optional
        .into_iter()
        .filter(|(name, of)| *name != HOST && same(*of))
        .filter_map(|(name, of)| Some(format!("{name} {}", of(first, traces)?)))
        .collect();
    if !common.is_empty() {
        let all = if processes.len() > 1 { "All: " } else { "" };
        let sentence = format!("{all}{}.", common.join(", "));
        blocks.push(paragraph(sentence));
    }
    blocks
}

/// The text of a cell in the table of processes; `None` if unknown.
type CellOf = fn(&ProcessReport, &[TraceReport]) -> Option<String>;

/// A column of the table of processes: head and cell.
type OptionalColumn = (&'static str, CellOf);

fn python(process: &ProcessReport) -> Option<String> {
    let interpreter = process.interpreter.as_ref()?;
    let collector = match &interpreter.collector {
        CollectorKind::Generational => String::new(),
        CollectorKind::Other(word) if word.is_empty() => String::new(),
        collector => format!(" ({})", collector.as_ref()),
    };
    Some(format!("{}{collector}", interpreter.version))
}

fn thresholds(process: &ProcessReport) -> Option<String> {
    let settings = process.settings.as_ref()?;
    let [young, middle, old] = settings.thresholds;
    Some(match settings.enabled {
        Some(false) => format!("{young}/{middle}/{old} (disabled)"),
        _ => format!("{young}/{middle}/{old}"),
    })
}

fn process_row(process: &ProcessReport) -> [Cell; 6] {
    let words = process.command.clone();
    [
        process.pid.to_string().into(),
        short_count(process.pauses.count).into(),
        duration(process.stopped_ns).into(),
        process.stopped_ratio.map(percent).or_dash().into(),
        process.pauses.max_ns.map(duration).or_dash().into(),
        Cell::fitted(move |width| command(&words, width)),
    ]
}

/// Remarks on one trace: damage, anomalies and notes.
pub(super) fn remarks(trace: &TraceReport) -> Vec<String> {
    let mut list = Vec::new();
    match (&trace.damage, trace.writer, &trace.cut_at, &trace.ended) {
        (Some(damage), ..) => list.push(format!("Read up to the damage: {}", damage)),
        (None, Some(writer), ..) => {
            let by = match writer.pid {
                Some(pid) => format!("process {pid}"),
                None => "in another container or on another machine".to_owned(),
            };
            list.push(format!("Still recording ({by}): later events and losses are unknown."));
        }
        (None, None, Some(place), _) => {
            list.push(format!("The trace is cut off at {place}; later events are missing."))
        }
        (None, None, None, None) if trace.recorded_by.is_some() => list.push(
            "The trace has no final record: gctrace was killed, or this is a copy from before the end. Losses are \
             unknown."
                .to_owned(),
        ),
        _ => {}
    }
    let mut some = |remarks: &[String], more: u64| {
        list.extend(remarks.iter().take(REMARKS_SHOWN).cloned());
        let more = more + remarks.iter().skip(REMARKS_SHOWN).count() as u64;
        if more > 0 {
            list.push(format!("and {} of this kind", counted(more, "more remark")));
        }
    };
    some(&trace.anomalies, 0);
    some(&trace.notes, trace.notes_left_out);
    list
}

/// How the traces were recorded; empty if there is nothing to report.
fn sources(report: &Report) -> Vec<Block> {
    let of = |mode: RecordingMode| -> Vec<&RecordedReport> {
        let all = report.traces.iter();
        all.filter_map(|trace| trace.recorded.as_ref())
            .filter(|recorded| recorded.mode == mode)
            .collect()
    };
    let sentences = [
        by_probes(&of(RecordingMode::Ebpf), report.traces.len()),
        in_process(&of(RecordingMode::Inject), report.traces.len()),
        by_both(&of(RecordingMode::Both), report.traces.len()),
    ];
    let wrapped = sentences.into_iter().flatten();
    wrapped.map(paragraph).collect()
}

/// The start of the sentence: `Recorded`, or with the number of traces.
fn subject(some: usize, all: usize) -> String {
    match (some, all) {
        (1, 1) => "Recorded".to_owned(),
        (some, all) if some == all => format!("All {all} recorded"),
        (some, all) => format!("{some} of {all} traces recorded"),
    }
}

fn by_probes(traces: &[&RecordedReport], all: usize) -> Option<String> {
    let some = traces.iter().any(|trace| trace.sources.probes > 0);
    if !some {
        return None;
    }
    Some(format!(
        "{} by kernel probes: the time of finalizers (`__del__`) is in the pauses, and that of \
             functions in gc.callbacks from CPython 3.13 on; until 3.12 it is not recorded. \
             In-process (--mode inject) both are apart and named.",
        subject(traces.len(), all)
    ))
}

fn in_process(traces: &[&RecordedReport], all: usize) -> Option<String> {
    if traces.is_empty() {
        return None;
    }
    Some(format!(
        "{} in-process (--mode inject): collections in the first milliseconds of a program and at \
             its end are not in the trace.",
        subject(traces.len(), all)
    ))
}

fn by_both(traces: &[&RecordedReport], all: usize) -> Option<String> {
    if traces.is_empty() {
        return None;
    }
    let sum = |of: fn(&RecordedReport) -> u64| traces.iter().map(|trace| of(trace)).sum::<u64>();
    let largest =
        |of: fn(&RecordedReport) -> Option<u64>| traces.iter().filter_map(|trace| of(trace)).max();
    let half = largest(|trace| trace.sources.both_apart_p50_ns);
    let apart = match (half, largest(|trace| trace.sources.both_apart_p99_ns)) {
        (Some(half), Some(most)) => {
            format!(" (p50 {} apart, p99 {})", duration(half), duration(most))
        }
        _ => String::new(),
    };
    Some(format!(
        "{} by kernel probes and in-process (--mode both): {} seen by both{}, {} by probes only, {} \
         in-process only.",
        subject(traces.len(), all),
        counted(sum(|trace| trace.sources.both), "pause"),
        apart,
        sum(|trace| trace.sources.probes),
        sum(|trace| trace.sources.injected),
    ))
}
