//! The command line of `gctrace compare`.

use super::choices::ReportFormat;
use super::limits::ChangeLimit;
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

#[derive(Args, Debug)]
pub(super) struct CompareArgs {
    /// Traces of the runs before the change; without `--`, the second is of the run after it
    #[arg(required = true, value_name = "BEFORE")]
    before: Vec<PathBuf>,
    /// Traces of the runs after the change; or a command, if the first word is no trace: it is
    /// recorded with the options of the first trace
    #[arg(last = true, value_name = "AFTER")]
    after: Vec<OsString>,
    /// Record the command with these settings of the collector, as gctrace apply has them
    #[arg(long, value_name = "SETTING", conflicts_with = "from")]
    gc: Option<GcSetting>,
    /// Record the command with the settings of the first advice of the report on these traces that
    /// changes only settings
    #[arg(long, value_name = "TRACE")]
    from: Vec<PathBuf>,
    /// Exit with 3 if a figure got worse by more, beyond its 95 % interval: step_time>PERCENT,
    /// step_cpu_time>PERCENT, gc_share>+POINTS%, gpu_cost>+POINTS%, longest>PERCENT or +TIME;
    /// repeatable; needs several runs on each side
    #[arg(long, group = CONFIGURABLE, value_name = "LIMIT", value_parser = limits::change_limit)]
    fail_if: Vec<ChangeLimit>,
    /// Write the limits that are exceeded as GitLab's Code Quality report; an existing one is replaced
    #[arg(long, value_name = "FILE", requires = "fail_if", value_parser = values::file_name())]
    code_quality: Option<PathBuf>,
    /// Add a row to this change log, a table in Markdown; created if it does not exist
    #[arg(long, value_name = "FILE", value_parser = values::file_name())]
    log: Option<PathBuf>,
    /// Format of the comparison; JSON has the schema gctrace.comparison/1
    #[arg(long, group = CONFIGURABLE, value_enum, default_value = "text")]
    format: ReportFormat,
    /// Same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Trace to write if a command is recorded [default: the name of the first trace with `-after`]; of
    /// traces a page that ends in .html, with before and after
    #[arg(short, long, value_name = "FILE", value_parser = values::file_name())]
    output: Option<PathBuf>,
    /// Overwrite the page if it exists
    #[arg(short, long, requires = "output")]
    force: bool,
}

/// Options of `gctrace compare`, validated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompareConfig {
    /// Traces of the runs before the change, at least one.
    pub before: Vec<PathBuf>,
    /// Traces of the runs after it, or a command; at least one word.
    pub after: Vec<OsString>,
    /// Settings to record a command with.
    pub gc: Option<GcSetting>,
    /// Traces whose advice has these settings, if `gc` has none; may be empty.
    pub from: Vec<PathBuf>,
    /// Limits that make the exit code 3.
    pub fail_if: Vec<ChangeLimit>,
    /// GitLab's report to write.
    pub code_quality: Option<PathBuf>,
    /// Change log to add to.
    pub log: Option<PathBuf>,
    /// Format of the comparison.
    pub format: ReportFormat,
    /// Trace to write if `after` is a command; `None`: named after the first trace. Otherwise a page.
    pub output: Option<PathBuf>,
    /// Overwrite a page if it exists.
    pub force: bool,
}

/// # Errors
/// Without `--`, other than two traces.
pub(super) fn config(args: CompareArgs) -> Result<CompareConfig, clap::Error> {
    let mut before = args.before;
    let after = match (args.after.is_empty(), before.len()) {
        (false, _) => args.after,
        (true, 2) => before.split_off(1).into_iter().map(Into::into).collect(),
        (true, _) => {
            return Err(usage_error(
                ErrorKind::WrongNumberOfValues,
                "name two traces, or put -- between those before and those after the change: \
                 gctrace compare a1.json a2.json -- b1.json b2.json",
            ));
        }
    };
    Ok(CompareConfig {
        before,
        after,
        gc: args.gc,
        from: args.from,
        fail_if: args.fail_if,
        code_quality: args.code_quality,
        log: args.log,
        format: if args.json { ReportFormat::Json } else { args.format },
        output: args.output,
        force: args.force,
    })
}
