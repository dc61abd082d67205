//! The command line of `gctrace export`.

use clap::Args;
use clap::ValueEnum;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  gctrace export trace.json -o gc.svg        a flame graph for the browser
  gctrace export trace.json --format speedscope -o gc.json     for www.speedscope.app
  gctrace export rank*.json --format collapsed --generation 2 | flamegraph.pl > full.svg

Of several processes each is a frame of its own, or with speedscope a profile.";

#[derive(Args, Debug)]
pub(super) struct ExportArgs {
    /// Traces written by `gctrace record`; several give one file
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// File format
    #[arg(long, value_enum, default_value = "svg")]
    format: ExportFormat,
    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What a stack weighs
    #[arg(long, value_enum, default_value = "time")]
    by: Weight,
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
pub(crate) enum Weight {
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
    /// Weight of a stack.
    pub by: Weight,
    /// Only this generation.
    pub generation: Option<u8>,
}

impl From<ExportArgs> for ExportConfig {
    fn from(args: ExportArgs) -> Self {
        Self {
            traces: args.traces,
            format: args.format,
            output: args.output,
            by: args.by,
            generation: args.generation,
        }
    }
}
