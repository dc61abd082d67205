//! Renders reports as text and JSON.
//!
//! Owns the layout of a report; its content comes from `gctrace_analysis`. Neither reads files nor
//! decides where output goes.

mod allocations;
mod cause;
mod clocks;
mod counters;
mod cuda;
mod evidence;
mod gpu_bounds;
mod gpu_devices;
mod gpu_gaps;
mod gpu_work;
mod gpus;
mod launching;
mod lines;
mod overview;
mod pressure;
mod ranks;
mod recorded;
mod steps;
mod style;
mod table;
mod text;
mod what_if;

pub(crate) use style::Style;
pub(crate) use text::text;

use gctrace_analysis::report::Report;
use std::io;
use std::io::Write;

/// Writes the report as JSON (schema `gctrace.report/2`), followed by a newline.
pub(crate) fn json(report: &Report, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

#[cfg(test)]
mod tests;
