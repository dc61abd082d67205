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
    /// Trace to write: compressed if it ends in .gz; a trace that is there becomes FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "demo.json", value_parser = values::file_name())]
    output: PathBuf,
    /// Steps of training, of a few milliseconds each
    #[arg(long, value_name = "NUMBER", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
}

/// One demonstration, as asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DemoConfig {
    /// Trace.
    pub output: PathBuf,
    /// Steps of training.
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
