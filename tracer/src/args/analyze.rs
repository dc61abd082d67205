//! The command line of `gctrace analyze`.

use super::choices::OutputFormat;
use crate::files::is_stdout;
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(super) struct AnalyzeArgs {
    /// Traces written by `gctrace record`; several give one report
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
    /// File to write; `-` is standard output, the default. An existing file is not overwritten
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(short, long, requires = "output")]
    force: bool,
}

/// What `gctrace analyze` is to do: validated, with defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AnalyzeConfig {
    /// Traces to read, at least one, all covered by one report; `-` is standard input.
    pub traces: Vec<PathBuf>,
    /// Format as requested, else JSON if `output` ends in `.json`, else text.
    pub format: OutputFormat,
    /// Whether the text report has all sections.
    pub full: bool,
    /// File to write; `None` is standard output.
    pub output: Option<PathBuf>,
    /// Replace an existing `output`; without it, one with content is an error.
    pub force: bool,
}

impl From<AnalyzeArgs> for AnalyzeConfig {
    fn from(args: AnalyzeArgs) -> Self {
        let output = args.output.filter(|path| !is_stdout(path));
        let is_named_json = output
            .as_ref()
            .is_some_and(|path| path.extension().is_some_and(|end| end == "json"));
        let format = match args.format {
            Some(format) => format,
            None if args.json || is_named_json => OutputFormat::Json,
            None => OutputFormat::Text,
        };
        Self {
            traces: args.traces,
            format,
            full: args.full,
            output,
            force: args.force,
        }
    }
}
