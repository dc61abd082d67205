//! The command line of `gctrace export`.

use super::usage_error;
use crate::files::is_stdout;
use clap::Args;
use clap::ValueEnum;
use clap::error::ErrorKind;
use std::ffi::OsStr;
use std::path::Path;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  gctrace export trace.json -o gc.svg        a flame graph for the browser
  gctrace export trace.json -o gc.json       for www.speedscope.app
  gctrace export rank*.json --format collapsed --generation 2 | flamegraph.pl > full.svg

Of several processes each is a frame of its own, or with speedscope a profile.";

#[derive(Args, Debug)]
pub(super) struct ExportArgs {
    /// Traces written by `gctrace record`; several give one file
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// File format [default: from the name of FILE: .svg, .json (speedscope), .txt or .collapsed; otherwise svg]
    #[arg(long, value_enum)]
    format: Option<ExportFormat>,
    /// File to write; - or nothing is standard output. A file that is there is left alone
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace FILE if it is there
    #[arg(short, long, requires = "output")]
    force: bool,
    /// What a stack weighs
    #[arg(long, value_enum, default_value = "time")]
    by: StackWeight,
    /// Only collections of this generation
    #[arg(long, value_name = "GENERATION", value_parser = clap::value_parser!(u8).range(0..=2))]
    generation: Option<u8>,
}

/// A format of flame graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Brendan Gregg's: one line per stack, weights in nanoseconds or pauses
    Collapsed,
    /// JSON for www.speedscope.app
    Speedscope,
    /// A picture to open in a browser
    Svg,
}

/// What a stack weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StackWeight {
    /// The time of its pauses
    Time,
    /// The number of its pauses
    Count,
}

/// One export, as asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExportConfig {
    /// Traces: at least one.
    pub traces: Vec<PathBuf>,
    /// How to write.
    pub format: ExportFormat,
    /// Where; `None` is standard output.
    pub output: Option<PathBuf>,
    /// Replace what is there.
    pub force: bool,
    /// Weight of a stack.
    pub by: StackWeight,
    /// Only this generation.
    pub generation: Option<u8>,
}

/// Checks what the options mean together.
pub(super) fn config(args: ExportArgs) -> Result<ExportConfig, clap::Error> {
    let output = args.output.filter(|path| !is_stdout(path));
    let format = match (args.format, &output) {
        (Some(format), _) => format,
        (None, Some(path)) => by_name(path)?,
        (None, None) => ExportFormat::Svg,
    };
    if format == ExportFormat::Svg && output.is_none() && crate::print::on_terminal() {
        return Err(usage_error(
            ErrorKind::MissingRequiredArgument,
            "an SVG is a picture, standard output a terminal: write it to a file (-o gc.svg), or see \
             the stacks as text (--format collapsed)",
        ));
    }
    Ok(ExportConfig {
        traces: args.traces,
        format,
        output,
        force: args.force,
        by: args.by,
        generation: args.generation,
    })
}

fn by_name(path: &Path) -> Result<ExportFormat, clap::Error> {
    match path.extension().and_then(OsStr::to_str) {
        None | Some("svg") => Ok(ExportFormat::Svg),
        Some("json") => Ok(ExportFormat::Speedscope),
        Some("txt" | "collapsed" | "folded") => Ok(ExportFormat::Collapsed),
        Some(unknown) => Err(usage_error(
            ErrorKind::InvalidValue,
            &format!(
                "no format has names that end in .{unknown}: name it .svg, .json (speedscope), .txt \
                 or .collapsed, or choose with --format"
            ),
        )),
    }
}
