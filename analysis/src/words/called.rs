//! Code of the program that collections call: finalizers and callbacks.

use crate::advice::facts::Facts;
use crate::paths::place;
use crate::report::{CalledReport, ProcessReport, Report};
use crate::units::{duration, percent};
use gctrace_event::{CalledKind, RecordingMode};

/// From this share of the observed time of a process on it is worth a sentence.
const WORTH: f64 = 0.01;
/// A young collection that takes this long for an object does other work than traverse it, in ns. In 35 programs
/// without such work they take 8 to 610, in one with finalizers 22,000 to 27,000 (CPython 3.12 and 3.13,
/// tests/verdict).
const LONG_NS: u64 = 5_000;

/// The time of finalizers and of functions in `gc.callbacks`, each of the process that lost most to
/// them, with the function that took most of it: ` Finalizers took ...`; empty if they took little.
pub(super) fn sentence(report: &Report) -> String {
    let each = [CalledKind::Finalizer, CalledKind::Callback].map(|kind| of(report, kind));
    each.concat() + &sampled(report).unwrap_or_else(|| unseen(report))
}

/// Finalizers that probes see by samples.
fn sampled(report: &Report) -> Option<String> {
    let called = Facts::of(report)?.finalizer()?;
    let (share, place) = (percent(called.ratio), place(&called.line));
    Some(format!(
        " {share} of it is Python code that collections call, by samples, most of it in {place}: work of the \
         program, which no setting of the collector saves."
    ))
}

/// The causes that probes cannot distinguish, for the process with the longest pause time.
fn unseen(report: &Report) -> String {
    let most = report.processes.iter().max_by_key(|process| process.paused_ns);
    let Some(process) = most else { return String::new() };
    let Some(each_ns) = young_ns_each(report, process) else { return String::new() };
    format!(
        " Young collections took {} for each object that they traversed, which takes less than 1 µs: most \
         of the time is of what they free (large buffers), of finalizers that they call (`__del__`, callbacks of weak \
         references), or of very large lists. Probes cannot distinguish these: gctrace --mode inject -- COMMAND does.",
        duration(each_ns)
    )
}

/// Time per object of young collections, of a process recorded with probes, if they take most of its paused time and
/// more than traversing objects takes.
fn young_ns_each(report: &Report, process: &ProcessReport) -> Option<u64> {
    let recorded = report.traces.get(process.trace)?.recorded.as_ref()?;
    let [young, ..] = process.by_generation;
    let each_ns = young.time_ns.checked_div(process.pressure.as_ref()?.net_containers)?;
    let are_most = young.time_ns > process.paused_ns / 2;
    if recorded.mode != RecordingMode::Ebpf || !are_most || each_ns < LONG_NS {
        return None;
    }
    Some(each_ns)
}

fn of(report: &Report, kind: CalledKind) -> String {
    let each = report.processes.iter().filter_map(|process| {
        let called = || process.called.iter().filter(|called| called.kind == kind);
        let time_ns = crate::time::sum(called().map(|called| called.time_ns));
        let share = time_ns as f64 / process.observed_ns.max(1) as f64;
        if share >= WORTH { Some((time_ns, share, called().next()?)) } else { None }
    });
    let Some((time_ns, share, most)) = each.max_by_key(|(time_ns, ..)| *time_ns) else {
        return String::new();
    };
    let what = match kind {
        CalledKind::Finalizer => {
            "Finalizers that it called (`__del__`, callbacks of weak references)"
        }
        CalledKind::Callback => "Functions in gc.callbacks",
    };
    let all = if most.time_ns == time_ns { "all" } else { "most" };
    let function = function(most).map_or(String::new(), |name| format!(", {all} of it in {name}"));
    let end = match kind {
        CalledKind::Finalizer => {
            "That is work of the program: no setting of the collector saves it."
        }
        CalledKind::Callback => "That is work of the program, at each collection.",
    };
    let (time, share) = (duration(time_ns), percent(share));
    let longest = duration(most.longest_ns);
    format!(" {what} took {time} more ({share}), up to {longest} at a time{function}. {end}")
}

fn function(called: &CalledReport) -> Option<String> {
    called.function.as_ref().map(place)
}
