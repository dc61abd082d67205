//! Renders reports as text and JSON.
//!
//! Owns the layout of a report and its sentences (`render/words/`); its content comes from
//! `gctrace_analysis`, which has no prose. Neither reads files nor decides where output goes.

mod allocations;
mod cause;
mod clocks;
mod comparison;
mod counters;
mod cuda;
mod evidence;
mod first_screen;
mod garbage;
mod gpu_bounds;
mod gpu_devices;
mod gpu_gaps;
mod gpus;
mod launching;
mod lines;
mod overview;
mod pressure;
mod ranks;
mod steps;
mod style;
mod table;
mod text;
mod what_if;
mod words;

pub(crate) use comparison::{comparison, fact_name, word_comparison};
pub(crate) use first_screen::{first_screen, verdict_lines};
pub(crate) use style::Style;
pub(crate) use table::{TextTable, cut, fit, wrap};
pub(crate) use text::text;
pub(crate) use words::cycles;

use gctrace_analysis::Analysis;
use gctrace_analysis::report::Report;
use serde::Serialize;
use std::io;
use std::io::Write;

/// The report on all traces so far, with its sentences.
pub(crate) fn report(analysis: &mut Analysis) -> Report {
    analysis.settle();
    let mut report = analysis.report();
    words::put_into_words(&mut report);
    report
}

/// Writes a report or a comparison as JSON (schemas in docs/report-schema.md), followed by a newline.
pub(crate) fn json(report: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

#[cfg(test)]
mod tests;
