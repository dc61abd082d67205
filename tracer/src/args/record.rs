//! The command line of a recording: of `gctrace record`, and of `gctrace` without a subcommand.

use super::sources::SourceArgs;
use super::{CounterChoice, CudaMode, RecordMode, Verbosity, usage_error, values};
use crate::files::is_stdout;
use clap::Args;
use clap::error::ErrorKind;
use gctrace_settings::{GarbageDetail, GcSetting};
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
  gctrace record -o - -- python train.py | gctrace analyze -       output of train.py goes to stderr

The first Ctrl-C goes to the command, as it would without gctrace, and recording continues until the
command ends. A second Ctrl-C ends the recording and leaves the command running.";

#[derive(Args, Debug)]
pub(super) struct RecordArgs {
    /// Command to record, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
    /// Trace file; `.gz` compresses, `-` is standard output, %h, %r and %p expand to host, rank and
    /// pid. An existing trace is renamed to FILE.old; no other file is overwritten
    #[arg(short, long, value_name = "FILE", default_value = "trace.json", value_parser = values::trace_name())]
    output: PathBuf,
    /// Record a running process instead of a command
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = values::pid)]
    pub(super) pid: Option<u32>,
    /// Stop recording after this time (10, 2.5, 30s, 2m); the process or command keeps running
    #[arg(short, long, value_name = "SECONDS", value_parser = values::seconds)]
    duration: Option<Duration>,
    /// Count pauses shorter than this (50us, 1ms) without writing them
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = values::time)]
    min_pause: Duration,
    /// Then also write a summary of the trace into this directory, as `gctrace summarize`
    #[arg(long, value_name = "DIR")]
    summary: Option<PathBuf>,
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
    /// Also record the child processes of recorded processes, and their children.
    pub follow: bool,
    /// Pauses shorter than this are counted but not written.
    pub min_pause: Duration,
    /// Run the command as root, with root's environment.
    pub as_root: bool,
    /// Size of the BPF ring buffer in bytes: a power of two, at least one page.
    pub ring_size: u32,
    /// Python frames recorded per pause; 0 for none.
    pub stack_depth: u32,
    /// Requested performance counters; the recording checks which of them this machine has.
    pub counters: CounterChoice,
    /// Share of CPU time (0 to 1) that allocation windows may cost; `None`: no windows.
    pub alloc_budget: Option<f64>,
    /// What to record of the objects that collections free.
    pub garbage: GarbageDetail,
    /// Share of CPU time (0 to 1) that examining garbage may cost.
    pub garbage_budget: f64,
    /// NVML polling rate in Hz; `None`: NVML is not used.
    pub nvml_hz: Option<f64>,
    /// CUDA and NCCL calls to record.
    pub cuda: CudaMode,
    /// Requested source of collections and GPU work; `record/mode.rs` decides what `auto` means.
    pub mode: RecordMode,
    /// The Python function whose calls mark training steps, never empty; `None`: only the marks of
    /// PyTorch.
    pub step_function: Option<String>,
    /// Leave CUPTI to the program's own profiler.
    pub gpu_yield: bool,
    /// A setting of the collector that the injected library applies in the command.
    pub apply: Option<GcSetting>,
    /// How much gctrace itself prints on standard error, and whether it prints a summary.
    pub verbosity: Verbosity,
    /// Time after which the recording of a command stops; the command keeps running.
    pub duration: Option<Duration>,
    /// Directory for a summary of the trace when it is complete; `None`: no summary.
    pub summary: Option<PathBuf>,
}

/// Which processes to record; [`RecordConfig::follow`] adds their descendants.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RecordTarget {
    /// A command to start: never empty.
    Command(Vec<OsString>),
    /// A running process.
    Process {
        /// Process id.
        pid: u32,
        /// Time after which to stop recording.
        duration: Option<Duration>,
    },
    /// Every Python process that this user may trace.
    Everything,
}

pub(super) fn config(args: RecordArgs, verbosity: Verbosity) -> Result<RecordConfig, clap::Error> {
    let target = target(args.command, args.pid, args.duration)?;
    if args.summary.is_some() && is_stdout(&args.output) {
        return Err(usage_error(
            ErrorKind::ArgumentConflict,
            "a trace on standard output cannot be summarized: name a file with -o",
        ));
    }
    let output = Some(args.output);
    let config = args.sources.recording(target, output, args.min_pause, verbosity);
    Ok(RecordConfig { duration: args.duration, summary: args.summary, ..config })
}

pub(super) fn target(
    command: Vec<OsString>,
    pid: Option<u32>,
    duration: Option<Duration>,
) -> Result<RecordTarget, clap::Error> {
    match (command.is_empty(), pid) {
        (true, Some(pid)) => Ok(RecordTarget::Process { pid, duration }),
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
