//! The command lines of `gctrace analyze` and `gctrace advice`.

use super::choices::OutputFormat;
use super::limits::ReportLimit;
use super::{limits, values};
use crate::files::is_stdout;
use clap::Args;
use std::num::NonZeroUsize;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(super) struct AnalyzeArgs {
    /// Traces of gctrace or the PyTorch profiler, their summaries, or directories of summaries; several
    /// give one report
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Report format; JSON has the schema gctrace.report/2 [default: json if FILE ends in .json,
    /// otherwise text]
    #[arg(long, value_enum)]
    format: Option<OutputFormat>,
    /// Same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Print all sections instead of the first screen
    #[arg(long)]
    full: bool,
    /// Exit with 3 if a limit is exceeded in training: gc_share>PERCENT, longest>TIME; repeatable
    #[arg(long, value_name = "LIMIT", value_parser = limits::limit)]
    fail_if: Vec<ReportLimit>,
    /// Price of a GPU per hour, to show what the collector costs in money
    #[arg(long, value_name = "PRICE", value_parser = values::price)]
    gpu_hour: Option<f64>,
    /// GPUs that wait for the program [default: the GPUs in the traces, at least 1]
    #[arg(long, value_name = "N", requires = "gpu_hour", value_parser = clap::value_parser!(u32).range(1..))]
    gpus: Option<u32>,
    /// Most traces read at the same time [default: the number of processors]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// File to write; `-` is standard output, the default. An existing file is not overwritten
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(short, long, requires = "output")]
    force: bool,
}

/// Options of `gctrace analyze`, validated, with defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AnalyzeConfig {
    /// Traces to read, at least one, all covered by one report; `-` is standard input.
    pub traces: Vec<PathBuf>,
    /// Format as requested, else JSON if `output` ends in `.json`, else text.
    pub format: OutputFormat,
    /// Whether the text report has all sections.
    pub full: bool,
    /// Limits that make the exit code 3.
    pub fail_if: Vec<ReportLimit>,
    /// Price of a GPU per hour; a positive number.
    pub gpu_hour: Option<f64>,
    /// Number of GPUs that cost `gpu_hour`; `None`: those in the traces.
    pub gpus: Option<u32>,
    /// Most traces read at the same time; `None`: the processors that gctrace may use.
    pub jobs: Option<NonZeroUsize>,
    /// File to write; `None` is standard output.
    pub output: Option<PathBuf>,
    /// Replace an existing `output`; without it, one with content is an error.
    pub force: bool,
}

impl From<AnalyzeArgs> for AnalyzeConfig {
    fn from(args: AnalyzeArgs) -> Self {
        let output = args.output.filter(|path| !is_stdout(path));
        let is_named_json =
            output.as_ref().is_some_and(|path| path.extension().is_some_and(|end| end == "json"));
        let format = match args.format {
            Some(format) => format,
            None if args.json || is_named_json => OutputFormat::Json,
            None => OutputFormat::Text,
        };
        Self {
            traces: args.traces,
            format,
            full: args.full,
            fail_if: args.fail_if,
            gpu_hour: args.gpu_hour,
            gpus: args.gpus,
            jobs: args.jobs,
            output,
            force: args.force,
        }
    }
}

pub(super) const EXAMPLES: &str = "\
Examples:
  gctrace advice trace.json 1
  gctrace advice rank*.json.gz 2 > change.py

The output is Python: the code to paste, with the risk and the check as comments.";

#[derive(Args, Debug)]
pub(super) struct AdviceArgs {
    /// Traces written by `gctrace record`
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Number of the change, as `gctrace analyze` numbers them
    #[arg(required = true, value_name = "N")]
    number: usize,
}

/// Which advice `gctrace advice` is to print.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AdviceConfig {
    /// Traces to read, at least one; `-` is standard input.
    pub traces: Vec<PathBuf>,
    /// Number of the advice in the report, from 1.
    pub number: usize,
}

impl From<AdviceArgs> for AdviceConfig {
    fn from(args: AdviceArgs) -> Self {
        Self { traces: args.traces, number: args.number }
    }
}
