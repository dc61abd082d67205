//! The command line of `gctrace demo`.

use super::values;
use clap::Args;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo gctrace demo
  gctrace demo --auto
  sudo gctrace demo --steps 400 -o demo.json.gz";

/// Options of `gctrace demo`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct DemoConfig {
    /// Trace file; `.zst` and `.gz` compress. An existing trace is renamed to FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "demo.json", value_parser = values::file_name())]
    pub output: PathBuf,
    /// Number of training steps, a few milliseconds each
    #[arg(long, hide = true, value_name = "NUMBER", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Then run it longer under `gctrace auto`: it finds, proves and holds a setting of the collector
    #[arg(long)]
    pub auto: bool,
}
