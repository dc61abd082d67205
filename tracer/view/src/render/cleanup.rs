//! What explicit cleanup is worth.

use crate::document::Section;
use gctrace_analysis::report::{CleanupReport, ProcessReport, Report};
use gctrace_analysis::words;

/// Processes in the section at most, and lines of each; the others are in the JSON.
const SHOWN: usize = 3;
const LINES_SHOWN: usize = 5;

/// The lines that clean up, those that take the most time first.
pub(crate) fn section(report: &Report) -> Section {
    let known =
        report.processes.iter().filter_map(|process| Some((process, process.cleanup.as_ref()?)));
    let sentences = known.take(SHOWN).flat_map(|(process, cleanup)| {
        let name = (report.processes.len() > 1).then(|| format!("Process {}:", process.pid));
        name.into_iter().chain(of_process(cleanup))
    });
    Section::of_sentences("What explicit cleanup is worth", sentences)
}

fn of_process(cleanup: &CleanupReport) -> impl Iterator<Item = String> {
    let sites = cleanup.sites.iter().take(LINES_SHOWN).map(words::cleanup::cleanup_verdict);
    let failed = cleanup.out_of_memory.iter().take(LINES_SHOWN).map(words::cleanup::out_of_memory);
    let own = words::cleanup::emptied_by_allocator(cleanup);
    let worth = cleanup.total.as_ref().and_then(words::cleanup::cleanup_worth);
    worth.into_iter().chain(sites).chain(failed).chain(Some(own).filter(|own| !own.is_empty()))
}

/// The line whose removal saves the most; `None` if none is worth a word.
pub(super) fn in_short(report: &Report) -> Option<String> {
    let short = |process: &ProcessReport| {
        words::cleanup::cleanup_in_short(process.cleanup.as_ref()?, process.observed_ns)
    };
    report.processes.iter().find_map(short)
}
