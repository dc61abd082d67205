//! The command line of a recording: of `gctrace record`, and of `gctrace` without a subcommand.

use super::keep::KeepConfig;
use super::sources::SourceArgs;
use super::{CONFIGURABLE, Verbosity, usage_error, values};
use crate::files::is_stdout;
use clap::builder::ArgPredicate;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use gctrace_settings::{GcSetting, LAYERS_BY_BUDGET};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo gctrace record -- python train.py
  sudo gctrace record -o run.json.gz --min-pause 50us -- ./train.py --epochs 3
  sudo gctrace record -p 4242 -d 2m
  gctrace record --mode inject -- python train.py
  srun gctrace record -o 'gc-%h-%r.json.gz' -- python train.py     one trace per rank
  sudo gctrace record --keep 10m --on-pause 500ms -o /var/tmp/gc -- python train.py
  gctrace record -o - -- python train.py | gctrace analyze -       output of train.py goes to stderr

The first Ctrl-C goes to the command, as it would without gctrace, and recording continues until the
command ends. A second Ctrl-C ends the recording and leaves the command running.";

/// Subject, sources and output of a recording, also of the one behind `gctrace top`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct RecordConfig {
    #[command(flatten)]
    pub target: RecordTarget,
    /// Trace file; `.zst` and `.gz` compress, `-` is standard output, %h, %r and %p expand to host, rank and
    /// pid. An existing trace is renamed to FILE.old; no other file is overwritten. With --keep a directory
    /// [default: recording]
    // `None` for `top` without `--record`.
    #[arg(short, long, value_name = "FILE", default_value = "trace.json",
        default_value_if("keep", ArgPredicate::IsPresent, "recording"), value_parser = values::trace_name())]
    pub output: Option<PathBuf>,
    /// Stop recording after this time (10, 2.5, 30s, 2m); the process or command keeps running
    #[arg(short, long, group = CONFIGURABLE, value_name = "SECONDS", value_parser = values::seconds)]
    pub duration: Option<Duration>,
    /// Count pauses shorter than this (50us, 1ms) without writing them
    #[arg(long, group = CONFIGURABLE, value_name = "TIME", default_value = "0", value_parser = values::time)]
    pub min_pause: Duration,
    /// Then also write a summary of the trace into this directory, as `gctrace summarize`
    #[arg(long, value_name = "DIR")]
    pub summary: Option<PathBuf>,
    /// With --layers: have PyTorch keep the history of its device memory, and write it as a snapshot for its
    /// memory viewer: at the end, when memory runs out, and at the next measured step where FILE is not there; %r
    /// and %p expand to rank and pid of the program
    #[arg(long, value_name = "FILE")]
    pub memory_history: Option<PathBuf>,
    #[command(flatten)]
    pub keep: Option<KeepConfig>,
    #[command(flatten)]
    pub sources: SourceArgs,
    /// A setting of the collector that the injected library applies in the command.
    #[arg(skip)]
    pub apply: Option<GcSetting>,
    /// How much gctrace itself prints on standard error, and whether it prints a summary.
    #[arg(skip)]
    pub verbosity: Verbosity,
}

/// Samples a second unless others are named: 0.07 % of each busy CPU (docs/evidence.md). Not 100: programs have periods
/// that meet it.
const SAMPLES: u32 = 99;

impl RecordConfig {
    /// Completes it.
    ///
    /// # Errors
    /// There is nothing to record, or the output does not allow a requested option.
    pub(super) fn check(&mut self, verbosity: Verbosity) -> Result<(), clap::Error> {
        self.verbosity = verbosity;
        if self.memory_history.is_some() {
            self.sources.layers.get_or_insert(LAYERS_BY_BUDGET);
        }
        let to_stdout = self.output.as_deref().is_some_and(is_stdout);
        let records_all = self.keep.is_some() && self.duration.is_none();
        let (kind, problem) = if self.target == RecordTarget::Everything && !records_all {
            (
                ErrorKind::MissingRequiredArgument,
                "nothing to record: give a command after `--` (gctrace -- python train.py) \
                 or a running process with -p PID",
            )
        } else if self.keep.is_some() && (self.summary.is_some() || to_stdout) {
            (
                ErrorKind::ArgumentConflict,
                "--keep writes a directory of segments: no summary of it, and not to standard output",
            )
        } else if self.summary.is_some() && to_stdout {
            (
                ErrorKind::ArgumentConflict,
                "a trace on standard output cannot be summarized: name a file with -o",
            )
        } else {
            return Ok(());
        };
        Err(usage_error(kind, problem))
    }

    /// Samples a second; `None`: none. The live view shows none, but turns of loops, which come with them: without a
    /// trace, as few as possible are taken.
    pub fn sample_rate(&self) -> Option<u32> {
        let usual = if self.output.is_some() { SAMPLES } else { 1 };
        let hertz = self.sources.sample.unwrap_or(usual);
        if hertz > 0 { Some(hertz) } else { None }
    }
}

/// Processes to record; `SourceArgs::follow` adds their descendants.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordTarget {
    /// A command to start: never empty.
    Command(Vec<OsString>),
    /// A running process, by pid.
    Process(u32),
    /// Every Python process that this user may trace.
    Everything,
}

/// A [`RecordTarget`] as it is typed.
#[derive(Args)]
struct TargetArgs {
    /// Command to start and record, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Record a running process and its descendants instead of a command
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = values::pid)]
    pid: Option<u32>,
}

impl Args for RecordTarget {
    fn augment_args(command: Command) -> Command {
        TargetArgs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        TargetArgs::augment_args_for_update(command)
    }
}

impl FromArgMatches for RecordTarget {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let TargetArgs { command, pid } = TargetArgs::from_arg_matches(matches)?;
        match (command.is_empty(), pid) {
            (true, None) => Ok(Self::Everything),
            (true, Some(pid)) => Ok(Self::Process(pid)),
            (false, None) => Ok(Self::Command(command)),
            (false, Some(_)) => Err(usage_error(
                ErrorKind::ArgumentConflict,
                "-p PID records a running process, a command starts a new one: give only one of them",
            )),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
