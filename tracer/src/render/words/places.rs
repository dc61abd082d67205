//! Where in the program an advice applies: the words for Python lines.

use crate::units::counted;
use crate::units::duration;
use crate::units::percent;
use gctrace_analysis::paths;
use gctrace_analysis::report::LineTotal;
use gctrace_analysis::report::LinesReport;
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

/// The lines that the advice is about: those of training, where the phases are known.
fn lines(report: &Report) -> Option<&LinesReport> {
    match &report.phases {
        Some(phases) => phases.lines.as_ref(),
        None => report.lines.as_ref(),
    }
}

/// Which lines call `gc.collect()`; nothing where that is unknown.
pub(super) fn explicit(report: &Report) -> Option<String> {
    let lines = &lines(report)?.explicit;
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

/// The line that triggers the most time of automatic full collections, if one stands out. `all`:
/// these collections in the whole run.
pub(super) fn automatic_full(report: &Report, all: PauseTotal) -> String {
    dominant_line(report, all, |lines| &lines.automatic_full)
        .map_or_else(String::new, |sentence| format!(" {sentence}."))
}

/// The line that triggers the most time of automatic partial collections, if one stands out.
pub(super) fn automatic_partial(report: &Report, all: PauseTotal) -> String {
    dominant_line(report, all, |lines| &lines.automatic_partial).map_or_else(
        String::new,
        |sentence| {
            format!(" {sentence}: allocating fewer containers there means fewer collections.")
        },
    )
}

/// What a line triggers: of the pause time of training, where that is known, otherwise of `all`.
fn dominant_line(
    report: &Report,
    all: PauseTotal,
    of_kind: fn(&LinesReport) -> &Vec<LineTotal>,
) -> Option<String> {
    let line = of_kind(lines(report)?).first()?;
    let (all_ns, what) = match &report.phases {
        Some(phases) => (phases.training.pauses.time_ns, "the pause time of training"),
        None => (all.time_ns, "the time of these collections"),
    };
    let share = line.pauses.time_ns as f64 / all_ns as f64;
    (all_ns > 0 && share >= MOST).then(|| {
        format!(
            "{} of {what} was triggered by {}",
            percent(share.min(1.0)),
            place(&line.location)
        )
    })
}
