//! The sections of a page that compares runs.

use super::data::RunDrawings;
use super::sections;
use crate::document::{Badge, Section, WIDEST, paragraph};
use crate::render::comparison as words;
use gctrace_analysis::compare::{Comparison, Outcome};
use gctrace_analysis::report::Report;

/// The changes, and whether they helped.
pub(super) fn sections(comparison: &Comparison) -> Vec<Section> {
    let (class, name) = match comparison.verdict.outcome {
        Outcome::Better => ("good", "better"),
        Outcome::Worse => ("bad", "worse"),
        Outcome::NoDifference => ("warn", "no difference"),
        Outcome::Unknown => ("warn", "unknown"),
    };
    let mut figures = words::figures(comparison);
    figures.push(words::remarks(comparison));
    let sections = [
        Section {
            badge: Some(Badge { name, class }),
            ..Section::new(&comparison.verdict.sentence, figures).id("verdict")
        },
        Section::new("What changed", words::changes(comparison, WIDEST)).id("changed"),
        Section::new("Lines that trigger collections in training", words::lines(comparison))
            .id("lines"),
        Section::new("Why the GPU was idle", words::idle(comparison))
            .id("idle")
            .about("share of its time, time per step (inferred)"),
    ];
    sections.into_iter().filter(|section| !section.is_empty()).collect()
}

/// A side: its own verdict, figures and pauses.
pub(super) fn side(report: &Report, drawings: &RunDrawings) -> Section {
    let (id, heading) = if drawings.run == 0 { ("before", "Before") } else { ("after", "After") };
    let own = sections::verdict(report);
    let mut all = vec![paragraph(own.heading)];
    all.extend(own.blocks);
    let kinds = ["timeline", "flame", "heap", "memory"];
    all.extend(kinds.into_iter().filter_map(|kind| drawings.of_kind(kind)));
    let files: Vec<&str> = report.traces.iter().map(|trace| trace.file.as_str()).collect();
    Section::new(heading, all).id(id).about(files.join(" "))
}
