//! The sections of a page that compares runs.

use super::blocks::{Badge, Block, Section, blocks, figures_together};
use super::data::RunDrawings;
use super::sections;
use crate::render::comparison as words;
use crate::render::table::for_page;
use gctrace_analysis::compare::{Comparison, Outcome};
use gctrace_analysis::report::Report;

/// What changed, and whether it helped.
pub(super) fn sections(comparison: &Comparison) -> Vec<Section> {
    let (class, name) = match comparison.verdict.outcome {
        Outcome::Better => ("good", "better"),
        Outcome::Worse => ("bad", "worse"),
        Outcome::NoDifference => ("warn", "no difference"),
        Outcome::Unknown => ("warn", "unknown"),
    };
    let part = |lines: fn(&Comparison) -> Vec<String>| blocks(&for_page(|| lines(comparison)));
    let mut figures = part(words::figures);
    figures.extend(part(words::remarks));
    let verdict = Section {
        badge: Some(Badge { name: name.to_owned(), class }),
        ..Section::new("verdict", &figures_together(&comparison.verdict.sentence), figures)
    };
    let others = [
        Section::new("changed", "What changed", part(words::changes)),
        Section::new("lines", "Lines that trigger collections in training", part(words::lines)),
        Section::new("idle", "Why the GPU was idle", part(words::idle))
            .about("share of its time, time per step (inferred)"),
    ];
    let others = others.into_iter().filter(|section| !section.blocks.is_empty());
    std::iter::once(verdict).chain(others).collect()
}

/// A side: its own verdict, figures and pauses.
pub(super) fn side(report: &Report, drawings: &RunDrawings, run: usize) -> Section {
    let (id, heading) = if run == 0 { ("before", "Before") } else { ("after", "After") };
    let own = sections::verdict(report);
    let mut all = vec![Block::Text(own.heading)];
    all.extend(own.blocks);
    for (kind, has) in [
        ("timeline", drawings.has_pauses || drawings.has_steps),
        ("flame", drawings.has_stacks),
        ("heap", drawings.has_heaps),
        ("memory", drawings.has_memory),
    ] {
        if has {
            all.push(Block::Drawing(kind, run));
        }
    }
    let files: Vec<&str> = report.traces.iter().map(|trace| trace.file.as_str()).collect();
    Section::new(id, heading, all).about(figures_together(&files.join(" ")))
}
