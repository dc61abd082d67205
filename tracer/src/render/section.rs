//! Shared by all sections of the report.

use super::table::wrap;
use gctrace_analysis::report::Basis;

/// The indent of a section's lines.
pub(crate) const INDENT: &str = "  ";

/// A section of the report: a heading and its lines. Without lines it is omitted.
pub(crate) struct ReportSection {
    pub(crate) heading: &'static str,
    pub(crate) lines: Vec<String>,
}

impl ReportSection {
    pub(crate) fn new(heading: &'static str, lines: Vec<String>) -> Self {
        Self { heading, lines }
    }
}

/// A paragraph of a section.
pub(crate) fn paragraph(sentence: &str) -> Vec<String> {
    wrap(sentence, INDENT, INDENT)
}

/// The mark after a figure: ` (inferred)` or ` (predicted)`, empty if it was measured.
pub(crate) fn mark(basis: Basis) -> &'static str {
    match basis {
        Basis::Measured => "",
        Basis::Inferred => " (inferred)",
        Basis::Predicted => " (predicted)",
    }
}
