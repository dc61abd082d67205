//! The command line of `gctrace apply`.

use super::choices::OutputFormat;
use super::{usage_error, values};
use crate::files::is_stdout;
use clap::Args;
use clap::error::ErrorKind;
use gctrace_settings::GcSetting;
use std::ffi::OsString;
use std::path::PathBuf;

pub(super) const USAGE: &str = "gctrace apply --gc SETTING [OPTIONS] -- COMMAND...\n       \
                                gctrace apply --from TRACE... [--advice N] [OPTIONS] -- COMMAND...\n       \
                                gctrace apply --undo -p PID";

pub(super) const EXAMPLES: &str = "\
Examples:
  gctrace apply --gc threshold=7000,10,10 -- python train.py
  gctrace apply --gc freeze@step:2 -- torchrun --nproc-per-node 8 train.py
  gctrace apply --gc plan:100,gen2:1000 --step-function train_step -- python train.py
  gctrace apply --from trace.json -- python train.py
  gctrace apply --undo -p 4242               take it back in a running program

Settings, joined by commas; @step:N applies one after step N [default: 2], @start at the start:
  threshold=T0[,T1[,T2]]   gc.set_threshold(), at the start
  freeze                   gc.collect(), then gc.freeze()
  disable                  gc.disable()
  plan:N[,gen2:M]          gc.disable(); collect generation 1 every N steps, generation 2 every M
                           [default: 10 N; 0: never, which leaks]

A step is a call of the function of --step-function, else of an optimizer of PyTorch, a backward
pass or a batch of a DataLoader. The exit code is the command's own. For launchers that start
programs elsewhere: GCTRACE_APPLY=SETTING LD_PRELOAD=/path/to/libgctrace_inject.so";

#[derive(Args, Debug)]
pub(super) struct ApplyArgs {
    /// Command to start, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
    /// Settings to apply, see below
    #[arg(long, value_name = "SETTING", conflicts_with = "from")]
    gc: Option<GcSetting>,
    /// Apply the settings of an advice of the report on these traces
    #[arg(long, value_name = "TRACE", num_args = 1..)]
    from: Vec<PathBuf>,
    /// Number of the advice, as `gctrace analyze` numbers them [default: the first that changes
    /// only settings]
    #[arg(long, value_name = "N", requires = "from")]
    advice: Option<usize>,
    /// Count calls of this function as steps: train_step, Trainer.step or train.py:train_step
    #[arg(long, value_name = "NAME")]
    step_function: Option<String>,
    /// Take the settings back in a running program that `gctrace apply` started
    #[arg(long, requires = "pid", conflicts_with_all = ["gc", "from", "command", "output"])]
    undo: bool,
    /// With --undo: a process of that program
    #[arg(short, long, value_name = "PID", requires = "undo", value_parser = values::pid)]
    pid: Option<u32>,
    /// Under sudo: run the command as root instead of the invoking user
    #[arg(long)]
    as_root: bool,
    /// Report format; JSON has the schema gctrace.apply/1 [default: json if FILE ends in .json,
    /// otherwise text]
    #[arg(long, value_enum)]
    format: Option<OutputFormat>,
    /// File for the report; `-` is standard output, and the command's goes to standard error
    /// [default: standard error for text, standard output for JSON]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(short = 'f', long, requires = "output")]
    force: bool,
}

/// What `gctrace apply` is to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ApplyConfig {
    /// Start a command with settings.
    Start(ApplyStart),
    /// Take the settings back in the program of this process.
    Undo(u32),
}

/// A command and the settings to apply in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApplyStart {
    /// Program and arguments, never empty.
    pub command: Vec<OsString>,
    /// Where the settings come from.
    pub settings: SettingSource,
    /// The function whose calls are steps.
    pub step_function: Option<String>,
    /// Run the command as root, with root's environment.
    pub as_root: bool,
    /// Format of the report.
    pub format: OutputFormat,
    /// Where the report is written; `None`: standard error for text, standard output for JSON.
    pub output: Option<PathBuf>,
    /// Replace an existing `output`.
    pub force: bool,
}

/// Where the settings to apply come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SettingSource {
    /// The command line.
    Given(GcSetting),
    /// The advice of this number, from 1, in the report on these traces, at least one; `None`: the
    /// first that changes only settings.
    Advice(Vec<PathBuf>, Option<usize>),
}

pub(super) fn config(args: ApplyArgs) -> Result<ApplyConfig, clap::Error> {
    if let Some(pid) = args.pid {
        return Ok(ApplyConfig::Undo(pid));
    }
    let missing = |what: &str| usage_error(ErrorKind::MissingRequiredArgument, what);
    let settings = match args.gc {
        Some(setting) => SettingSource::Given(setting),
        None if !args.from.is_empty() => SettingSource::Advice(args.from, args.advice),
        None => {
            return Err(missing(
                "nothing to apply: give settings with --gc (--gc freeze@step:2) \
                 or a trace whose advice is to be followed (--from trace.json)",
            ));
        }
    };
    if args.command.is_empty() {
        return Err(missing(
            "nothing to start: give a command after `--` (gctrace apply --gc freeze -- python train.py)",
        ));
    }
    let is_json = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
    let format = match (args.format, &args.output) {
        (Some(format), _) => format,
        (None, Some(path)) if is_json(path) => OutputFormat::Json,
        (None, _) => OutputFormat::Text,
    };
    Ok(ApplyConfig::Start(ApplyStart {
        command: args.command,
        settings,
        step_function: args.step_function.filter(|name| !name.is_empty()),
        as_root: args.as_root,
        format,
        output: args.output,
        force: args.force,
    }))
}

impl ApplyStart {
    /// Whether the report goes to standard output.
    pub(crate) fn prints_to_stdout(&self) -> bool {
        match &self.output {
            Some(path) => is_stdout(path),
            None => self.format == OutputFormat::Json,
        }
    }
}
