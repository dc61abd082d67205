//! Reports as one self-contained page (`gctrace report`).
//!
//! Owns its layout: sections of blocks, made of the sentences and figures of the text report, and of data that
//! its script draws. Foreign text is escaped by the template, or is JSON without `<`.

mod comparison;
mod data;
mod heat;
mod html;
mod pack;
mod sections;
mod stacks;

pub use data::PAUSES_DRAWN;

use self::data::{RunData, RunDrawings};
use self::html::BlockHtml;
use crate::document::{Section, WIDEST};
use crate::print::clean;
use crate::text::shell_line;
use askama::Template;
use gctrace_analysis::Analysis;
use gctrace_analysis::compare::Comparison;
use gctrace_analysis::report::Report;
use std::io;
use std::path::PathBuf;

/// A page, complete except for its data.
#[derive(Template)]
#[template(path = "page.html")]
struct Page {
    title: String,
    sections: Vec<Section>,
    data: String,
    css: &'static str,
    script: String,
    version: &'static str,
}

impl Page {
    /// Its text.
    fn text(title: &str, sections: Vec<Section>, data: &[RunData]) -> io::Result<String> {
        let script = [
            include_str!("page/page.js"),
            include_str!("page/timeline.js"),
            include_str!("page/flame.js"),
            include_str!("page/heat.js"),
            include_str!("page/layers.js"),
            include_str!("page/start.js"),
        ];
        let page = Self {
            title: clean::line(title).into_owned(),
            sections,
            data: data::json(data)?,
            css: include_str!("page/page.css"),
            script: script.join("\n"),
            version: env!("CARGO_PKG_VERSION"),
        };
        page.render().map_err(io::Error::other)
    }
}

/// The page on one report and its analysis with pauses kept. `traces` are named in commands.
///
/// # Errors
/// None in practice: only errors of the template.
pub fn page(analysis: &mut Analysis, report: &Report, traces: &[PathBuf]) -> io::Result<String> {
    let drawings = RunDrawings::of(analysis, report, 0);
    let sections = sections::of_run(report, &shell_line(traces), &drawings);
    Page::text(&title(report), sections, &[drawings.data])
}

/// The page on runs before and after a change: the comparison, and of each side the first run.
///
/// # Errors
/// As of [`page`].
pub fn comparison_page(
    comparison: &Comparison,
    sides: [(&mut Analysis, &Report); 2],
) -> io::Result<String> {
    let mut sections = comparison::sections(comparison);
    let mut data = Vec::new();
    for (run, (analysis, report)) in sides.into_iter().enumerate() {
        let drawings = RunDrawings::of(analysis, report, run);
        sections.push(comparison::side(report, &drawings));
        data.push(drawings.data);
    }
    Page::text("before and after", sections, &data)
}

/// The command, or the number of traces.
fn title(report: &Report) -> String {
    match (report.traces.len() as u64 + report.traces_left_out, report.traces.first()) {
        (0 | 1, Some(trace)) if trace.command.is_empty() => trace.file.clone(),
        (0 | 1, Some(trace)) => super::overview::command(&trace.command, WIDEST),
        (0 | 1, None) => String::new(),
        (many, _) => crate::units::counted(many, "trace"),
    }
}
