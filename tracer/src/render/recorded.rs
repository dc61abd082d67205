//! How the traces were recorded, and what that cannot show: the lines below the recording's first.

use super::table::wrap;
use gctrace_analysis::report::RecordedReport;
use gctrace_analysis::report::Report;
use gctrace_analysis::units::counted;
use gctrace_analysis::units::duration;

const INDENT: &str = "  ";

/// Nothing where all was recorded by probes: then nothing is missing for it.
pub(super) fn lines(report: &Report) -> Vec<String> {
    let of = |mode: &str| -> Vec<&RecordedReport> {
        let all = report.traces.iter();
        all.filter_map(|trace| trace.recorded.as_ref())
            .filter(|recorded| recorded.mode == mode)
            .collect()
    };
    let sentences = [
        in_process(&of("inject"), report.traces.len()),
        by_both(&of("both"), report.traces.len()),
    ];
    let wrapped = sentences.into_iter().flatten();
    wrapped
        .flat_map(|sentence| wrap(&sentence, INDENT, INDENT))
        .collect()
}

/// `Recorded`, or how many of the traces were.
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
            "{} from within the programs (--mode inject): the reason of a collection is not known, and those of a \
             program's first milliseconds and of its end are not in the trace.",
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
        "{} from the kernel and from within (--mode both): {} seen by both{}, {} by probes alone, {} from within \
         alone.",
        subject(traces.len(), all),
        counted(sum(|trace| trace.sources.both), "pause"),
        apart.map_or_else(String::new, |(half, most)| format!(
            " (half of them at most {} apart, 99 % {})",
            duration(half),
            duration(most)
        )),
        sum(|trace| trace.sources.probes),
        sum(|trace| trace.sources.injected),
    ))
}
