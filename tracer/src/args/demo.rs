//! The command line of `gctrace demo`.

use super::values;
use clap::Args;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo gctrace demo
  sudo gctrace demo --steps 400 -o demo.json.gz";

#[derive(Args, Debug)]
pub(super) struct DemoArgs {
    /// Trace file; `.gz` compresses. An existing trace is renamed to FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "demo.json", value_parser = values::file_name())]
    output: PathBuf,
    /// Number of training steps, a few milliseconds each
    #[arg(long, value_name = "NUMBER", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
}

/// Options of `gctrace demo`, validated, with defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DemoConfig {
    /// Trace to write, gzip-compressed if it ends in `.gz`; an existing trace is renamed to
    /// `FILE.old`.
    pub output: PathBuf,
    /// Training steps of the demo program, at least 1, a few milliseconds each.
    pub steps: u32,
}

impl From<DemoArgs> for DemoConfig {
    fn from(args: DemoArgs) -> Self {
        Self {
            output: args.output,
            steps: args.steps,
        }
    }
}
