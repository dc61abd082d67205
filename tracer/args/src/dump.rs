//! The command line of `gctrace dump`.

use super::choices::OutputFormat;
use super::output::FormatArgs;
use super::values;
use clap::Args;
use std::num::NonZeroU16;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo gctrace dump -p 4242                     what every thread executes, and the collector's state
  gctrace dump -p 4242 --format json            one's own process, for programs
  gctrace dump --keep /var/tmp/gc               the last minutes of `gctrace record --keep` into that directory

The program is stopped for some milliseconds, as by a debugger: some system calls that wait return
EINTR then, which Python repeats.";

/// Options of `gctrace dump`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct DumpArgs {
    /// The process: a running CPython
    #[arg(short, long, value_name = "PID", value_parser = values::pid, required_unless_present = "keep")]
    pub pid: Option<u32>,
    /// Instead: have the recorder of this directory (`gctrace record --keep`) keep its segments for good; prints
    /// the folder they are in
    #[arg(long, value_name = "DIR", conflicts_with_all = ["pid", "format", "stack_depth"])]
    pub keep: Option<PathBuf>,
    /// Most frames of each stack, the innermost ones
    #[arg(long, value_name = "N", default_value = "64")]
    pub stack_depth: NonZeroU16,
    #[command(flatten)]
    pub form: FormatArgs<OutputFormat>,
}
