//! Reports and comparisons as documents.
//!
//! A file per feature, named as in `gctrace_analysis`: its figures to show, in order, in text and on a page.
//!
//! Owns the layout of a report, and the sentences of the text form alone; its content and all other
//! sentences come from `gctrace_analysis`. Neither reads files nor decides where output goes.

mod allocations;
mod cause;
mod cleanup;
mod clocks;
mod comparison;
mod counters;
mod cpu;
mod cuda;
mod first_screen;
mod garbage;
mod gpu_bounds;
mod gpu_devices;
mod gpu_samples;
mod growth;
mod idle;
mod launching;
mod layers;
mod leak_watch;
mod missing;
mod next;
mod overhead;
mod overview;
mod page;
mod pauses;
mod pressure;
mod ranks;
mod stacks;
mod steps;
mod text;
mod turns;

pub use comparison::{comparison, fact_name};
pub use first_screen::{first_screen, verdict_lines};
pub use page::{PAUSES_DRAWN, comparison_page, page};
pub use text::full;

use gctrace_analysis::Analysis;
use gctrace_analysis::report::Report;

/// The report on all traces so far.
pub fn report(analysis: &mut Analysis) -> Report {
    analysis.settle();
    analysis.report()
}

#[cfg(test)]
mod tests;
