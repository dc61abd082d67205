//! The command line of a recording: of `gctrace record`, and of `gctrace` without a subcommand.

use super::keep::{KeepArgs, KeepConfig};
use super::sources::SourceArgs;
use super::{CONFIGURABLE, Verbosity, keep, usage_error, values};
use crate::files::is_stdout;
use clap::Args;
use clap::builder::ArgPredicate;
use clap::error::ErrorKind;
use gctrace_settings::GcSetting;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
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

#[derive(Args, Debug)]
pub(super) struct RecordArgs {
    /// Command to record, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
    /// Trace file; `.zst` and `.gz` compress, `-` is standard output, %h, %r and %p expand to host, rank and
    /// pid. An existing trace is renamed to FILE.old; no other file is overwritten. With --keep a directory
    /// [default: recording]
    #[arg(short, long, value_name = "FILE", default_value = "trace.json",
        default_value_if("keep", ArgPredicate::IsPresent, "recording"), value_parser = values::trace_name())]
    output: PathBuf,
    /// Record a running process instead of a command
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = values::pid)]
    pub(super) pid: Option<u32>,
    /// Stop recording after this time (10, 2.5, 30s, 2m); the process or command keeps running
    #[arg(short, long, group = CONFIGURABLE, value_name = "SECONDS", value_parser = values::seconds)]
    duration: Option<Duration>,
    /// Count pauses shorter than this (50us, 1ms) without writing them
    #[arg(long, group = CONFIGURABLE, value_name = "TIME", default_value = "0", value_parser = values::time)]
    min_pause: Duration,
    /// Then also write a summary of the trace into this directory, as `gctrace summarize`
    #[arg(long, value_name = "DIR")]
    summary: Option<PathBuf>,
    /// With --layers: have PyTorch keep the history of its device memory, and write it as a snapshot for its
    /// memory viewer: at the end, when memory runs out, and at the next measured step where FILE is not there; %r
    /// and %p expand to rank and pid of the program
    #[arg(long, value_name = "FILE")]
    memory_history: Option<PathBuf>,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    sources: SourceArgs,
}

/// Subject, sources and output of a recording, also of the one behind `gctrace top`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordConfig {
    /// The command to start, the running process, or all Python processes.
    pub target: RecordTarget,
    /// Trace to write; `None` for `top` without `--record`.
    pub output: Option<PathBuf>,
    /// Pauses shorter than this are counted but not written.
    pub min_pause: Duration,
    /// Which processes and events to record, and how.
    pub sources: SourceArgs,
    /// A setting of the collector that the injected library applies in the command.
    pub apply: Option<GcSetting>,
    /// How much gctrace itself prints on standard error, and whether it prints a summary.
    pub verbosity: Verbosity,
    /// Time after which the recording stops; the program keeps running.
    pub duration: Option<Duration>,
    /// Directory for a summary of the trace when it is complete; `None`: no summary.
    pub summary: Option<PathBuf>,
    /// What to keep of the recording, in a directory of segments; `None`: all of it, in one file.
    pub keep: Option<KeepConfig>,
    /// File for snapshots of PyTorch's device memory, as named; `None`: none are written.
    pub memory_history: Option<Box<Path>>,
}

/// Samples a second unless others are named: 0.07 % of each busy CPU (docs/measurements/cost.md); not 100,
/// which periods of programs meet.
const SAMPLES: u32 = 99;

impl RecordConfig {
    /// Samples a second; `None`: none. The live view shows none: without a trace they are only taken if
    /// they are asked for.
    pub(crate) fn sample_rate(&self) -> Option<u32> {
        let usual = if self.output.is_some() { SAMPLES } else { 0 };
        Some(self.sources.sample.unwrap_or(usual)).filter(|hertz| *hertz > 0)
    }
}

/// Which processes to record; [`SourceArgs::follow`] adds their descendants.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RecordTarget {
    /// A command to start: never empty.
    Command(Vec<OsString>),
    /// A running process, by pid.
    Process(u32),
    /// Every Python process that this user may trace.
    Everything,
}

pub(super) fn config(args: RecordArgs, verbosity: Verbosity) -> Result<RecordConfig, clap::Error> {
    let keep = keep::config(args.keep);
    let target = match (&keep, args.command.is_empty(), args.pid, args.duration) {
        (Some(_), true, None, None) => RecordTarget::Everything,
        _ => target(args.command, args.pid)?,
    };
    if keep.is_some() && (args.summary.is_some() || is_stdout(&args.output)) {
        return Err(usage_error(
            ErrorKind::ArgumentConflict,
            "--keep writes a directory of segments: no summary of it, and not to standard output",
        ));
    }
    if args.summary.is_some() && is_stdout(&args.output) {
        return Err(usage_error(
            ErrorKind::ArgumentConflict,
            "a trace on standard output cannot be summarized: name a file with -o",
        ));
    }
    Ok(RecordConfig {
        apply: None,
        target,
        output: Some(args.output),
        min_pause: args.min_pause,
        sources: args.sources.measuring_layers(args.memory_history.is_some()),
        verbosity,
        duration: args.duration,
        summary: args.summary,
        keep,
        memory_history: args.memory_history.map(PathBuf::into_boxed_path),
    })
}

fn target(command: Vec<OsString>, pid: Option<u32>) -> Result<RecordTarget, clap::Error> {
    match (command.is_empty(), pid) {
        (true, Some(pid)) => Ok(RecordTarget::Process(pid)),
        (true, None) => Err(usage_error(
            ErrorKind::MissingRequiredArgument,
            "nothing to record: give a command after `--` (gctrace -- python train.py) \
             or a running process with -p PID",
        )),
        (false, Some(_)) => Err(usage_error(
            ErrorKind::ArgumentConflict,
            "-p PID records a running process, a command starts a new one: give only one of them",
        )),
        (false, None) => Ok(RecordTarget::Command(command)),
    }
}
