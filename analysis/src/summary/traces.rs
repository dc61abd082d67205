//! The entry of each trace in a report.

use super::{basis, stopped_ratio};
use crate::accumulate::trace_state::TraceState;
use crate::report::{ProcessReport, TraceReport};
use crate::time::{duration_ns, sum};
use gctrace_event::{Note, TraceHeader};

/// The host that a trace was recorded on; `None` if the trace does not contain it.
pub(super) fn host(trace: &TraceState) -> Option<String> {
    match &trace.header {
        Some(header) => Some(header.host.clone()),
        None => trace.profiler.host.clone(),
    }
}

/// `listed`: its processes that are listed.
pub(super) fn trace_report(trace: &TraceState, listed: &[&ProcessReport]) -> TraceReport {
    let listed = || listed.iter().copied();
    let unlisted = &trace.unlisted;
    let header = trace.header.as_ref();
    let no_header = TraceHeader::default();
    let known = header.unwrap_or(&no_header);
    let end = trace.end.as_ref();
    let omitted_ns = if let Some(end) = end { end.omitted.total_ns.0 } else { 0 };
    let observed = listed().map(|process| process.observed_ns);
    let observed_ns = sum(observed.chain([unlisted.observed_ns]));
    let stopped = listed().map(|process| process.stopped_ns);
    let stopped_ns = sum(stopped.chain([omitted_ns, unlisted.paused_ns]));
    TraceReport {
        file: trace.file.clone(),
        command: known.command.clone(),
        attached_pid: known.attached_pid,
        host: host(trace),
        kernel: header.map(|header| header.kernel.clone()),
        recorded_by: header.map(|header| header.gctrace.clone()),
        recorded: crate::accumulate::trace_state::report(trace),
        cpus: known.cpus,
        git_commit: known.git_commit.clone(),
        git_modified: known.git_modified,
        rank: trace.rank(),
        started_ns: trace.started_ns(),
        started_unix_ns: trace.started_unix_ns(),
        duration_ns: duration_ns(trace.started_ns(), trace.last_ns()),
        basis: basis(header.is_some() && end.is_some()),
        pauses: trace.effort,
        max_ns: trace.max_ns,
        observed_ns,
        stopped_ns,
        stopped_ratio: stopped_ratio(
            listed(),
            unlisted.observed_ns,
            sum([omitted_ns, unlisted.paused_of_observed_ns]),
        ),
        processes: listed().count() as u64 + unlisted.collecting,
        ended: end.map(|end| end.why.clone()),
        exit_code: end.and_then(|end| end.exit_code),
        cut_at: trace.ending.cut.map(|position| position.to_string()),
        damage: trace.damage.clone(),
        lost: end.map(|end| sum(end.lost.values().copied())),
        anomalies: trace
            .ending
            .anomalies
            .first
            .iter()
            .map(|anomaly| format!("{}: {}", anomaly.position, anomaly.problem))
            .collect(),
        stack_depth: header.map(|header| header.stack_depth),
        counters_missing: header.map(|header| header.counters_missing.clone()).unwrap_or_default(),
        notes: trace.notes.iter().map(note).chain(trace.repeats.as_ref().map(repeated)).collect(),
        notes_left_out: trace.notes_left_out,
        repeats: trace.repeats.clone(),
        writer: if end.is_none() { trace.writer } else { None },
    }
}

fn repeated(file: &String) -> String {
    format!("it is the same trace as {file}: its events are counted twice")
}

fn note(note: &Note) -> String {
    match note.pid {
        Some(pid) => format!("process {pid}: {}", note.message),
        None => note.message.clone(),
    }
}
