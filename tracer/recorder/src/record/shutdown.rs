//! The end of a recording: ends the sources, closes the trace, sums up.

use crate::clock;
use crate::record::examination::unexamined_words;
use crate::record::output::OutputTotals;
use crate::record::sources::RecordingSources;
use crate::record::trace::RecordingTrace;
use crate::record::{EndReason, losses, merge};
use crate::units::counted;
use crate::unseen::unseen_words;
use gctrace_analysis::report::UnseenReport;
use gctrace_event::{ExaminedProcesses, TraceEnd};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Summary of a recording that could be closed.
pub struct RecordingSummary {
    /// Lines for the user: totals and losses.
    pub sentences: Vec<String>,
    /// The trace file; `None` for a pipe and for `top` without `--record`.
    pub trace: Option<PathBuf>,
    /// Whether at least one examined process contained Python.
    pub has_python: bool,
}

/// Ends a recording of programs that used `cpu_ns` of CPU time.
///
/// # Errors
/// Why the trace is incomplete.
pub(crate) fn finish(
    mut trace: RecordingTrace,
    sources: RecordingSources,
    why: EndReason,
    cpu_ns: Option<u64>,
) -> anyhow::Result<RecordingSummary> {
    let ended = match why {
        EndReason::CommandEnded(ended) => Some(ended),
        _ => None,
    };
    let mut end = TraceEnd {
        ended_ns: clock::monotonic_ns(),
        why: words(why).to_owned(),
        exit_code: ended.map(|ended| i32::from(ended.exit_code())),
        cpu_ns,
        ..TraceEnd::default()
    };
    let alive = sources.finish(&mut trace, &mut end, ended)?;
    if alive > 0 && ended.is_some() {
        let (are, keep) = match alive {
            1 => ("process was", "it keeps"),
            _ => ("processes were", "they keep"),
        };
        let message = format!(
            "{alive} {are} still running when the command ended; {keep} running unrecorded"
        );
        trace.output.note(None, end.ended_ns, message);
    }
    let (totals, path) = (trace.output.totals(), trace.output.path().map(Path::to_owned));
    let (reason, unwritten) = trace.output.settle();
    end.lost.extend(unwritten);
    if let Some(reason) = reason {
        cut_short(&mut end, &reason, alive);
    }
    let first = summary(totals, trace.sources(), &end);
    let has_python = end.processes.as_ref().is_none_or(|examined| examined.python > 0);
    if let Err(error) = trace.output.finish(end) {
        tracing::warn!("{first}");
        return Err(error.into());
    }
    Ok(RecordingSummary { sentences: vec![first], trace: path, has_python })
}

/// Marks the trace as cut short. `alive`: processes that were still running.
fn cut_short(end: &mut TraceEnd, reason: &str, alive: usize) {
    end.why = format!("{}: {reason}", words(EndReason::CannotWrite));
    if alive > 0 {
        let processes = end.processes.get_or_insert_default();
        let count = alive as u64;
        processes
            .unexamined
            .insert("still ran when the trace could not be written any more".to_owned(), count);
    }
}

fn words(why: EndReason) -> &'static str {
    match why {
        EndReason::CommandEnded(_) => TraceEnd::COMMAND_ENDED,
        EndReason::ProcessEnded => "the process ended",
        EndReason::TimeOver => "the duration given with -d elapsed",
        EndReason::Interrupted => "interrupted",
        EndReason::Left => "the user quit the live view",
        EndReason::CannotWrite => "the trace could not be written any more",
    }
}

fn summary(totals: OutputTotals, sources: Option<merge::SourceTotals>, end: &TraceEnd) -> String {
    let omitted = match totals.omitted.count.0 {
        0 => String::new(),
        count => format!(", {count} shorter ones counted"),
    };
    let examined = end.processes.clone().unwrap_or_default();
    let lost = missing(&end.lost, &examined);
    let unseen = end.unseen.map(UnseenReport::from).and_then(unseen_words);
    let lost = if let Some(unseen) = unseen { format!("{unseen}; {lost}") } else { lost.clone() };
    if totals.pauses == 0 && totals.omitted.count.0 == 0 {
        let why = why_none(&examined);
        // A library that is in no program has no events to lose.
        let says_all = (examined.python, examined.other) == (0, None)
            && end.lost.is_empty()
            && examined.unexamined() == 0;
        return if says_all {
            format!("0 pauses: {why}")
        } else {
            format!("0 pauses: {why}; {lost}")
        };
    }
    let sources = if let Some(counts) = sources {
        let late = match counts.late {
            0 => String::new(),
            late => format!("; of {late}, the other source's record came too late to be joined"),
        };
        let late = match counts.other_clock {
            0 => late,
            count => format!("{late}; {count} in-process on another clock left out"),
        };
        format!(
            " ({} seen by both sources, {} by probes alone, {} in-process alone{late})",
            counts.both, counts.only_probes, counts.only_injected
        )
    } else {
        String::new()
    };
    format!(
        "{}{sources}, {} ms in total, longest {} ms{omitted}; {lost}",
        counted(totals.pauses, "pause"),
        milliseconds(totals.pause_ns),
        milliseconds(totals.longest_ns),
    )
}

/// Why there is no pause in the trace.
fn why_none(examined: &ExaminedProcesses) -> String {
    match (examined.python, examined.other) {
        (0, Some(_)) if examined.is_complete() => "no Python ran".to_owned(),
        (0, Some(_)) => "no CPython was seen".to_owned(),
        (0, None) => "the library saw no CPython".to_owned(),
        (1, _) => "no collection was seen in the Python process".to_owned(),
        (count, _) => format!("no collection was seen in {count} Python processes"),
    }
}

/// The losses: "nothing" only if every process was examined.
fn missing(lost: &BTreeMap<String, u64>, examined: &ExaminedProcesses) -> String {
    let lost = match losses::lost_events(lost) {
        0 if examined.is_complete() => "nothing lost".to_owned(),
        0 => "no event lost since the library was loaded".to_owned(),
        count if lost.keys().any(|place| place.contains("--ring-size")) => {
            format!("{} LOST; a larger --ring-size keeps more", counted(count, "event"))
        }
        count => format!("{} LOST", counted(count, "event")),
    };
    match examined.unexamined() {
        0 => lost,
        _ => format!("{lost}, but {}", unexamined_words(&examined.unexamined)),
    }
}

fn milliseconds(ns: u64) -> String {
    let time = Duration::from_nanos(ns);
    format!("{:.3}", time.as_secs_f64() * 1e3)
}
