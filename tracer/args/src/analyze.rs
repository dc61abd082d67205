//! The command lines of `gctrace analyze`, `gctrace report` and `gctrace advice`.

use super::choices::ReportFormat;
use super::limits::ReportLimit;
use super::output::OutputArgs;
use super::{CONFIGURABLE, limits, values};
use clap::Args;
use std::num::NonZeroUsize;
use std::path::PathBuf;

#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct AnalyzeArgs {
    /// Traces of gctrace or the PyTorch profiler, their summaries, or directories of summaries; several
    /// give one report
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Print all sections instead of the first screen
    #[arg(long, group = CONFIGURABLE)]
    pub full: bool,
    /// Exit with 3 if a limit is exceeded in training: gc_share>PERCENT, longest>TIME, or of a
    /// loop: p99>TIME (what requests wait), longest_turn>TIME; repeatable
    #[arg(long, group = CONFIGURABLE, value_name = "LIMIT", value_parser = limits::limit)]
    pub fail_if: Vec<ReportLimit>,
    /// Write the limits that are exceeded as GitLab's Code Quality report; an existing one is replaced
    #[arg(long, value_name = "FILE", requires = "fail_if", value_parser = values::file_name())]
    pub code_quality: Option<PathBuf>,
    /// Most traces read at the same time [default: the number of processors]
    #[arg(long, hide = true, group = CONFIGURABLE, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    #[command(flatten)]
    pub report: OutputArgs<ReportFormat>,
}

pub(super) const REPORT_EXAMPLES: &str = "\
Examples:
  gctrace report trace.json                  writes trace.html, and opens it
  gctrace report rank*.json.gz -o job.html   to send: one file, which loads nothing
  gctrace compare before.json after.json -o change.html        before and after on one page";

#[derive(Args, Clone, Debug, PartialEq)]
pub struct ReportArgs {
    /// Traces of gctrace or the PyTorch profiler, their summaries, or directories of summaries; several
    /// give one page
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// File to write [default: the name of the first trace with .html, opened in a browser where there is a display].
    /// An existing file is not overwritten
    #[arg(short, long, value_name = "FILE", value_parser = values::file_name())]
    pub output: Option<PathBuf>,
    /// Open a timeline at ui.perfetto.dev instead; it stays in the browser. Its file has the name of the first trace
    /// with .pftrace
    #[arg(long)]
    pub perfetto: bool,
    /// Overwrite FILE if it exists
    #[arg(short, long)]
    pub force: bool,
    /// Most traces read at the same time [default: the number of processors]
    #[arg(long, hide = true, group = CONFIGURABLE, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  gctrace advice trace.json 1
  gctrace advice rank*.json.gz 2 > change.py

The output is Python: the code to paste, with the risk and the check as comments.";

#[derive(Args, Clone, Debug, PartialEq)]
pub struct AdviceArgs {
    /// Traces written by `gctrace record`
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Number of the change, as `gctrace analyze` numbers them
    #[arg(required = true, value_name = "N", value_parser = advice_number)]
    pub number: usize,
}

fn advice_number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| {
        "the number of an advice comes last, as in gctrace advice trace.json 1".to_owned()
    })
}
