//! The command line of `gctrace compare`.

use super::choices::ReportFormat;
use super::limits::ChangeLimit;
use super::output::FormatArgs;
use super::{CONFIGURABLE, limits, usage_error, values};
use clap::Args;
use clap::error::ErrorKind;
use gctrace_settings::GcSetting;
use std::ffi::OsString;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  gctrace compare before.json after.json
  gctrace compare a1.json a2.json a3.json -- b1.json b2.json b3.json     several runs each
  gctrace compare before.json -- python train.py                         record it now
  gctrace compare before.json --gc threshold=7000,10,10 -- python train.py
  gctrace compare a?.json --fail-if 'step_time>2%' --log perf-log.md -- b?.json

With one run on a side, the noise between runs is unknown: the figures are shown without a verdict.
Exit code: 3 if a limit of --fail-if is exceeded, 2 if it was given with one run on a side, 1 if a
trace could not be read completely.";

pub(super) const USAGE: &str = "gctrace compare [OPTIONS] BEFORE AFTER\n       \
                                gctrace compare [OPTIONS] BEFORE... -- AFTER...\n       \
                                gctrace compare [OPTIONS] BEFORE... -- COMMAND...";

/// Options of `gctrace compare`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct CompareArgs {
    /// Traces of the runs before the change; without `--`, the second is of the run after it
    #[arg(required = true, value_name = "BEFORE")]
    pub before: Vec<PathBuf>,
    /// Traces of the runs after the change; or a command, if the first word is no trace: it is
    /// recorded with the options of the first trace
    #[arg(last = true, value_name = "AFTER")]
    pub after: Vec<OsString>,
    /// Record the command with these settings of the collector, as gctrace apply has them
    #[arg(long, value_name = "SETTING", conflicts_with = "from")]
    pub gc: Option<GcSetting>,
    /// Record the command with the settings of the first advice of the report on these traces that
    /// changes only settings
    #[arg(long, value_name = "TRACE")]
    pub from: Vec<PathBuf>,
    /// Exit with 3 if a figure got worse by more, beyond its 95 % interval: step_time>PERCENT,
    /// step_cpu_time>PERCENT, gc_share>+POINTS%, gpu_cost>+POINTS%, longest>PERCENT or +TIME,
    /// of a loop p99 and longest_turn likewise; repeatable; needs several runs on each side
    #[arg(long, group = CONFIGURABLE, value_name = "LIMIT", value_parser = limits::change_limit)]
    pub fail_if: Vec<ChangeLimit>,
    /// Write the limits that are exceeded as GitLab's Code Quality report; an existing one is replaced
    #[arg(long, value_name = "FILE", requires = "fail_if", value_parser = values::file_name())]
    pub code_quality: Option<PathBuf>,
    /// Add a row to this change log, a table in Markdown; created if it does not exist
    #[arg(long, value_name = "FILE", value_parser = values::file_name())]
    pub log: Option<PathBuf>,
    #[command(flatten)]
    pub form: FormatArgs<ReportFormat>,
    /// Trace to write if a command is recorded [default: the name of the first trace with `-after`]; of
    /// traces a page that ends in .html, with before and after
    #[arg(short, long, value_name = "FILE", value_parser = values::file_name())]
    pub output: Option<PathBuf>,
    /// Overwrite the page if it exists
    #[arg(short, long, requires = "output")]
    pub force: bool,
}

impl CompareArgs {
    /// With the traces, or the command, on their sides.
    ///
    /// # Errors
    /// Without `--`, other than two traces.
    pub(super) fn check(&mut self) -> Result<(), clap::Error> {
        if self.after.is_empty() {
            if self.before.len() != 2 {
                return Err(usage_error(
                    ErrorKind::WrongNumberOfValues,
                    "name two traces, or put -- between those before and those after the change: \
                     gctrace compare a1.json a2.json -- b1.json b2.json",
                ));
            }
            self.after = self.before.split_off(1).into_iter().map(Into::into).collect();
        }
        Ok(())
    }
}
