//! Lines on the sources of the traces and their limits, in the section on the recording.

use super::section::paragraph;
use crate::units::{counted, duration};
use gctrace_analysis::report::{RecordedReport, Report};
use gctrace_event::RecordingMode;

/// Empty if all traces were recorded by probes only, which has no such limits.
pub(super) fn lines(report: &Report) -> Vec<String> {
    let of = |mode: RecordingMode| -> Vec<&RecordedReport> {
        let all = report.traces.iter();
        all.filter_map(|trace| trace.recorded.as_ref())
            .filter(|recorded| recorded.mode == mode)
            .collect()
    };
    let sentences = [
        in_process(&of(RecordingMode::Inject), report.traces.len()),
        by_both(&of(RecordingMode::Both), report.traces.len()),
    ];
    let wrapped = sentences.into_iter().flatten();
    wrapped.flat_map(|sentence| paragraph(&sentence)).collect()
}

/// The start of the sentence: `Recorded`, or with the number of traces.
fn subject(some: usize, all: usize) -> String {
    match (some, all) {
        (1, 1) => "Recorded".to_owned(),
        (some, all) if some == all => format!("All {all} recorded"),
        (some, all) => format!("{some} of {all} traces recorded"),
    }
}

fn in_process(traces: &[&RecordedReport], all: usize) -> Option<String> {
    (!traces.is_empty()).then(|| {
        format!(
            "{} in-process (--mode inject): the reasons of collections are unknown, and collections \
             in the first milliseconds of a program and at its end are not in the trace.",
            subject(traces.len(), all)
        )
    })
}

fn by_both(traces: &[&RecordedReport], all: usize) -> Option<String> {
    if traces.is_empty() {
        return None;
    }
    let sum = |of: fn(&RecordedReport) -> u64| traces.iter().map(|trace| of(trace)).sum::<u64>();
    let largest =
        |of: fn(&RecordedReport) -> Option<u64>| traces.iter().filter_map(|trace| of(trace)).max();
    let half = largest(|trace| trace.sources.both_apart_p50_ns);
    let apart = half.zip(largest(|trace| trace.sources.both_apart_p99_ns));
    Some(format!(
        "{} by kernel probes and in-process (--mode both): {} seen by both{}, {} by probes only, {} \
         in-process only.",
        subject(traces.len(), all),
        counted(sum(|trace| trace.sources.both), "pause"),
        apart.map_or_else(String::new, |(half, most)| format!(
            " (p50 {} apart, p99 {})",
            duration(half),
            duration(most)
        )),
        sum(|trace| trace.sources.probes),
        sum(|trace| trace.sources.injected),
    ))
}
