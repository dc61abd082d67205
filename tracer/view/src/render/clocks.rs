//! Lines on merged traces of one process, and on records that were left out of the figures.

use crate::document::{Block, paragraph};
use crate::text::mark;
use crate::units::{count, counted, duration};
use gctrace_analysis::report::{
    AlignedBy, ClockReport, GpuWorkReport, IgnoredWork, NotMerged, RecognizedBy, TraceReport,
};

/// Maximum number of pairs listed; the others are in the JSON.
const SHOWN: usize = 8;
/// Minimum difference of wall clocks to report: below it, the difference is the tools' own error.
const MIN_REPORTED_NS: u64 = 100_000;

/// One paragraph per pair, and one on records left out of the figures.
pub(crate) fn clocks(work: &GpuWorkReport, traces: &[TraceReport]) -> Vec<Block> {
    let pairs = work.clocks.iter().map(|clock| pair(clock, traces));
    let apart = work.not_merged.iter().map(|one| not_merged(one, traces));
    let all: Vec<String> = pairs.chain(apart).collect();
    let mut paragraphs: Vec<String> = all.iter().take(SHOWN).cloned().collect();
    if all.len() > SHOWN {
        let more = (all.len() - SHOWN) as u64;
        paragraphs.push(format!("And {}.", counted(more, "more pair")));
    }
    paragraphs.extend(ignored(&work.ignored));
    paragraphs.iter().map(paragraph).collect()
}

fn file(traces: &[TraceReport], index: usize) -> String {
    let trace = traces.get(index);
    if let Some(trace) = trace { trace.file.clone() } else { String::new() }
}

fn pair(clock: &ClockReport, traces: &[TraceReport]) -> String {
    let process = if clock.pid == clock.profiler_pid {
        format!("process {}", clock.pid)
    } else {
        format!("process {} ({} in the former)", clock.pid, clock.profiler_pid)
    };
    let how = match clock.recognized_by {
        RecognizedBy::ProcessId => "",
        RecognizedBy::NamespaceProcessId => ", matched by pid in its namespace",
        RecognizedBy::Rank => ", matched by rank",
        RecognizedBy::Time => ", the only ones at this time",
    };
    let mut text = format!(
        "{} and {} are merged: {process}{how}. {}",
        file(traces, clock.trace),
        file(traces, clock.gc_trace),
        aligned(clock)
    );
    let beyond_ns = clock.beyond_wall_clock_ns.unsigned_abs();
    if beyond_ns >= MIN_REPORTED_NS {
        text +=
            &format!(" The wall clocks of the traces differ from that by {}.", duration(beyond_ns));
    }
    text += &pauses(clock);
    for note in &clock.notes {
        text += &format!(" {}", note);
    }
    text
}

fn aligned(clock: &ClockReport) -> String {
    let matches = |what| counted(clock.matches, what);
    let by = match clock.aligned_by {
        AlignedBy::Calls => matches("CUDA call") + " in both",
        AlignedBy::Pauses => matches("collection") + " in both",
        AlignedBy::WallClock => "wall clock only".to_owned(),
    };
    let error = match clock.error_ns {
        Some(error_ns) => format!("remaining error {}, ", duration(error_ns)),
        None => String::new(),
    };
    format!("Their clocks were aligned by {by}{}: {error}{}.", mark(clock.basis), clock.error_basis)
}

fn pauses(clock: &ClockReport) -> String {
    let mut text = format!(
        " gctrace recorded {} while the profiler ran, {} at other times.",
        counted(clock.pauses, "pause"),
        count(clock.pauses_outside)
    );
    if clock.pauses_in_both > 0 {
        text += &format!(" {} are in both traces and count once.", count(clock.pauses_in_both));
    }
    if clock.pauses_of_profiler_only > 0 {
        text +=
            &format!(" {} are in the profiler's trace only.", count(clock.pauses_of_profiler_only));
    }
    text
}

fn not_merged(apart: &NotMerged, traces: &[TraceReport]) -> String {
    format!("{} (process {}) is not merged: {}.", file(traces, apart.trace), apart.pid, apart.why)
}

fn ignored(ignored: &IgnoredWork) -> Option<String> {
    let parts = [
        (ignored.duplicates, "duplicates"),
        (ignored.operations_before_call, "that started before their call"),
        (ignored.operations_without_process, "of unknown processes"),
    ];
    let reported = parts.iter().filter(|(number, _)| *number > 0);
    let reported: Vec<String> =
        reported.map(|(number, what)| format!("{} {what}", count(*number))).collect();
    if reported.is_empty() {
        return None;
    }
    Some(format!("Operations left out: {}.", reported.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_analysis::report::{Basis, MergeNote};

    fn clock(
        aligned_by: AlignedBy,
        error_ns: Option<u64>,
        beyond_wall_clock_ns: i64,
    ) -> ClockReport {
        ClockReport {
            basis: match error_ns {
                Some(_) => Basis::Measured,
                None => Basis::Inferred,
            },
            trace: 1,
            gc_trace: 0,
            pid: 4000,
            profiler_pid: 31,
            recognized_by: RecognizedBy::NamespaceProcessId,
            aligned_by,
            offset_ns: 5,
            beyond_wall_clock_ns,
            error_ns,
            error_basis: "why".to_owned(),
            matches: 512,
            pauses: 96,
            pauses_outside: 204,
            pauses_in_both: 95,
            pauses_of_profiler_only: 0,
            notes: vec![MergeNote::NoCollection],
        }
    }

    #[test]
    fn a_pair_by_calls_and_one_by_wall_clock() {
        let text = pair(&clock(AlignedBy::Calls, Some(400), -3_000_000), &[]);
        for part in [
            "process 4000 (31 in the former), matched by pid in its namespace.",
            "aligned by 512 CUDA calls in both: remaining error 400 ns, why.",
            "differ from that by 3.00 ms.",
            "gctrace recorded 96 pauses while the profiler ran, 204 at other times.",
            "95 are in both traces and count once. gctrace recorded no collection while",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = pair(&clock(AlignedBy::WallClock, None, 0), &[]);
        assert!(text.contains("by wall clock only (inferred): why."), "{text}");
        assert!(!text.contains("remaining error") && !text.contains("differ"), "{text}");
    }

    #[test]
    fn ignored_work_is_reported_only_if_any() {
        assert_eq!(ignored(&IgnoredWork::default()), None);
        let some =
            IgnoredWork { duplicates: 1_200, operations_before_call: 3, ..IgnoredWork::default() };
        assert_eq!(
            ignored(&some).as_deref(),
            Some("Operations left out: 1,200 duplicates, 3 that started before their call.")
        );
    }
}
