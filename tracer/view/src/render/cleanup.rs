//! The value of explicit cleanup.

use crate::document::Section;
use gctrace_analysis::report::{ProcessReport, Report};
use gctrace_analysis::words;

/// Processes in the section at most; the others are in the JSON.
const SHOWN: usize = 3;

/// The lines that clean up, the slowest first.
pub(crate) fn section(report: &Report) -> Section {
    let known =
        report.processes.iter().filter_map(|process| Some((process, process.cleanup.as_ref()?)));
    let sentences = known.take(SHOWN).flat_map(|(process, cleanup)| {
        let name = (report.processes.len() > 1).then(|| format!("Process {}:", process.pid));
        name.into_iter().chain(words::cleanup::sentences(cleanup))
    });
    Section::of_sentences("What explicit cleanup is worth", sentences)
}

/// The line with the largest saving if removed; `None` if none is worth a word.
pub(super) fn in_short(report: &Report) -> Option<String> {
    let short = |process: &ProcessReport| {
        words::cleanup::cleanup_in_short(process.cleanup.as_ref()?, process.observed_ns)
    };
    report.processes.iter().find_map(short)
}
