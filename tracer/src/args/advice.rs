//! The command line of `gctrace advice`.

use clap::Args;
use std::path::PathBuf;

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
