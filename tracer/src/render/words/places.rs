//! Where in the program an advice applies: the words for Python lines.

use crate::units::counted;
use crate::units::duration;
use crate::units::percent;
use gctrace_analysis::paths;
use gctrace_analysis::report::LineTotal;
use gctrace_analysis::report::Location;
use gctrace_analysis::report::PauseTotal;
use gctrace_analysis::report::Report;

/// Lines named in one sentence.
const NAMED: usize = 3;
/// From this share of the time on one line is worth a sentence.
const MOST: f64 = 0.3;

/// `train.py:57 in build_batch`, of a library `json/decoder.py:353 in raw_decode`.
fn place(location: &Location) -> String {
    let line = location
        .line
        .map_or(String::new(), |line| format!(":{line}"));
    match location.file.as_str() {
        "" => location.function.clone(),
        file => format!("{}{line} in {}", paths::short(file), location.function),
    }
}

/// Which lines call `gc.collect()`; nothing where that is unknown.
pub(super) fn explicit(report: &Report) -> Option<String> {
    let lines = &report.lines.as_ref()?.explicit;
    let named: Vec<String> = lines
        .iter()
        .take(NAMED)
        .map(|line| {
            format!(
                "{} ({}, {})",
                place(&line.location),
                counted(line.pauses.count, "call"),
                duration(line.pauses.time_ns)
            )
        })
        .collect();
    let more = match lines.len() > NAMED {
        true => ", and others",
        false => "",
    };
    (!named.is_empty()).then(|| format!(" The calls come from {}{more}.", named.join("; ")))
}

/// The line that triggers the most time of automatic full collections, if one stands out.
pub(super) fn automatic_full(report: &Report, all: PauseTotal) -> String {
    let line = report.lines.as_ref().and_then(|l| l.automatic_full.first());
    dominant_line(line, all).map_or_else(String::new, |(line, share)| {
        format!(
            " {} of the time of these collections was triggered by {}.",
            percent(share),
            place(&line.location)
        )
    })
}

/// The line that triggers the most time of automatic partial collections, if one stands out.
pub(super) fn automatic_partial(report: &Report, all: PauseTotal) -> String {
    let line = report
        .lines
        .as_ref()
        .and_then(|lines| lines.automatic_partial.first());
    dominant_line(line, all).map_or_else(String::new, |(line, share)| {
        format!(
            " {} of the time of these collections was triggered by {}: allocating fewer \
             containers there means fewer collections.",
            percent(share),
            place(&line.location)
        )
    })
}

fn dominant_line(line: Option<&LineTotal>, all: PauseTotal) -> Option<(&LineTotal, f64)> {
    let line = line.filter(|_| all.time_ns > 0)?;
    let share = line.pauses.time_ns as f64 / all.time_ns as f64;
    (share >= MOST).then_some((line, share.min(1.0)))
}
