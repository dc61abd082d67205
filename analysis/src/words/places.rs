//! Where in the program an advice applies: the words for Python lines.

use crate::paths::place;
use crate::report::{
    LineReport, LineTotal, LinesReport, Location, PauseTotal, Report, TrainingLibrary,
};
use crate::units::{counted, duration, percent};

/// Lines named in one sentence.
const NAMED: usize = 3;
/// From this share of the time on one line is worth a sentence.
const MOST: f64 = 0.3;

/// The lines that the advice is about: training's, where the phases are known.
pub(super) fn lines(report: &Report) -> Option<&LinesReport> {
    match &report.phases {
        Some(phases) => phases.lines.as_ref(),
        None => report.lines.as_ref(),
    }
}

/// The line of the program, or else of a library, with the most time of explicit calls. Where no pause has a reason
/// (traces of other tools): the line of most full collections; these come in regular order.
pub(super) fn explicit_line(report: &Report) -> Option<&Location> {
    const FULL: usize = 2;
    const UNKNOWN: usize = 3;
    let lines = lines(report)?;
    let named = lines.explicit.iter().find(|line| !line.location.library);
    let named = named.or_else(|| lines.explicit.first()).map(|line| &line.location);
    let all_ns = report.judged_causes().manual.time_ns;
    let is_most = |line: &&LineReport| {
        let full_ns = line.by_generation[FULL].time_ns.min(line.by_reason[UNKNOWN].time_ns);
        full_ns > all_ns / 2
    };
    named.or_else(|| Some(&lines.own.iter().find(is_most)?.location))
}

/// The training library that the stacks show, if its loop runs the program.
pub(super) fn library(report: &Report) -> Option<TrainingLibrary> {
    Some(lines(report)?.libraries.first()?.library)
}

/// The switch of the training library that the stacks show, if its loop runs the program:
/// `torchtitan has its own switch: --training.gc_freq N.`
pub fn library_switch(report: &Report) -> Option<String> {
    let library = library(report)?;
    let name = library.name();
    Some(match library.switch() {
        Some(switch) => {
            let leak = if library.skips_full_collections() {
                " (it collects generation 1 only: what survives two collections is never freed)"
            } else {
                ""
            };
            format!("{name} has its own switch: {switch}{leak}.")
        }
        None => format!("{name} has no switch of its own: a callback collects."),
    })
}

/// The switch for the calls of `gc.collect()` in a file of a library; `None` if it has none.
///
/// IPython 8 and 9 (`flush` of its display hook), pytest 8.4. Calls of joblib's loky and of celery have none.
pub(super) fn caller_switch(file: &str) -> Option<&'static str> {
    const SWITCHES: [(&str, &str); 2] = [
        ("IPython/core/displayhook.py", "c.InteractiveShell.cache_size = 0"),
        ("_pytest/unraisableexception.py", "pytest -p no:unraisableexception"),
    ];
    SWITCHES.iter().find(|(part, _)| file.contains(part)).map(|(_, switch)| *switch)
}

/// The lines that call `gc.collect()`; nothing where they are unknown.
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
    let more = if lines.len() > NAMED { ", and others" } else { "" };
    if named.is_empty() {
        return None;
    }
    Some(format!(" The calls come from {}{more}.", named.join("; ")))
}

/// The line that triggers the most time of automatic full collections, if one stands out.
pub(super) fn automatic_full(report: &Report) -> String {
    let of_kind = |lines: &'_ LinesReport| lines.automatic_full_total;
    match dominant_line(report, |lines| &lines.automatic_full, of_kind) {
        Some(sentence) => format!(" {sentence}."),
        None => String::new(),
    }
}

/// The line that triggers the most time of automatic partial collections, if one stands out.
pub(super) fn automatic_partial(report: &Report) -> String {
    let of_kind = |lines: &'_ LinesReport| lines.automatic_partial_total;
    let sentence = dominant_line(report, |lines| &lines.automatic_partial, of_kind);
    if let Some(sentence) = sentence {
        format!(" {sentence}: allocating fewer containers there means fewer collections.")
    } else {
        String::new()
    }
}

/// The first line's share of the collections of a kind, in training if that is known.
fn dominant_line(
    report: &Report,
    of_kind: fn(&LinesReport) -> &Vec<LineTotal>,
    all: fn(&LinesReport) -> PauseTotal,
) -> Option<String> {
    let lines = lines(report)?;
    let line = of_kind(lines).first()?;
    let all_ns = all(lines).time_ns;
    let share = line.pauses.time_ns as f64 / all_ns as f64;
    let when = match &report.phases {
        Some(_) => " in training",
        None => "",
    };
    if all_ns == 0 || share < MOST {
        return None;
    }
    Some(format!(
        "{} of the time of these collections{when} was triggered by {}",
        percent(share),
        place(&line.location)
    ))
}
