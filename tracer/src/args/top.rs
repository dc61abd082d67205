//! The command line of `gctrace top`.

use super::OutputFormat;
use super::RecordConfig;
use super::RecordTarget;
use super::Verbosity;
use super::sources::SourceArgs;
use super::usage_error;
use super::values;
use crate::files::is_stdout;
use clap::Args;
use clap::error::ErrorKind;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const USAGE: &str = "gctrace top [OPTIONS] -- COMMAND...\n       \
                                gctrace top [OPTIONS] -p PID\n       \
                                gctrace top [OPTIONS]";

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo gctrace top -- python train.py        a program and its children, from the first instruction
  sudo gctrace top -p 4242                   a running process and its descendants
  sudo gctrace top                           every Python process of this machine
  sudo gctrace top --record t.json.gz -- torchrun --nproc-per-node 8 train.py
  sudo gctrace top --plain -i 5 -p 4242      a line every five seconds
  sudo gctrace top --format json -n 60 -p 4242 > minute.jsonl
  sudo gctrace top --listen 9464             served at http://127.0.0.1:9464/metrics as well

In the view, ? tells the keys. Ctrl-C is for the command, a second one leaves; q leaves at once. A
command that was left goes on without gctrace. Without a command and without -p, processes are
looked for once a second: one that lives shorter and was not started by a process already shown may
be missed.
Exit code: the command's own if it has ended; 0 if it was left with q, 130 with a second Ctrl-C;
otherwise 2 is a usage error, 1 a failure of gctrace.";

/// Bounds of the interval: the shortest is also the grain of what is kept, the longest all of it.
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);

#[derive(Args, Debug)]
pub(super) struct TopArgs {
    /// The command to start and watch, with its arguments; without one, and without -p: all Python processes
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Watch a running process and its descendants
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = values::pid)]
    pid: Option<u32>,
    /// Time between two pictures, lines or objects: 0.1 to 60 seconds, in steps of 0.1
    #[arg(short = 'i', long, short_alias = 'd', value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// End after this many pictures, lines or objects; a command goes on
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = iterations)]
    iterations: Option<u64>,
    /// From which length on a pause is in the log of long ones (10ms, 500us)
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = values::time)]
    long_pause: Duration,
    /// Print a line per interval instead of the view, as it is done without a terminal
    #[arg(long, conflicts_with = "format")]
    plain: bool,
    /// Print instead of the view: lines for people (text) or one JSON object per interval (json)
    #[arg(long, value_enum, hide_possible_values = true)]
    format: Option<OutputFormat>,
    /// Write a trace at the same time, named as with `record -o`
    #[arg(long, value_name = "FILE", value_parser = values::trace_name())]
    record: Option<PathBuf>,
    /// File that the command's output is appended to [default: with the view a temporary one, shown in it; otherwise the output goes to
    /// standard error]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Serve the figures to Prometheus at this address: a port of this machine alone (9464), or ADDRESS:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = listen)]
    listen: Option<SocketAddr>,
    /// With --listen: show command lines with their arguments, which may hold what is secret
    #[arg(long, requires = "listen")]
    listen_arguments: bool,
    #[command(flatten)]
    sources: SourceArgs,
}

/// How figures are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DisplayChoice {
    /// On the whole screen, if there is one.
    View,
    /// A line per interval.
    Lines,
    /// An object per interval.
    Json,
}

/// One live view, as asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TopConfig {
    /// What is recorded, and how. Its trace is written only where one was asked for.
    pub recording: RecordConfig,
    /// Between two pictures.
    pub interval: Duration,
    /// From which length on a pause is in the log of long ones.
    pub long_pause: Duration,
    /// Where the command's output goes; `None`: into a temporary file with the view, otherwise to standard error.
    pub command_output: Option<PathBuf>,
    /// How.
    pub show: DisplayChoice,
    /// Pictures after which it ends.
    pub iterations: Option<u64>,
    /// Where the figures are served.
    pub listen: Option<SocketAddr>,
    /// Whether command lines are served with their arguments.
    pub listen_arguments: bool,
}

/// Checks what the parts of a command line mean together.
pub(super) fn config(args: TopArgs, verbosity: Verbosity) -> Result<TopConfig, clap::Error> {
    let target = target(args.command, args.pid)?;
    if args.output.is_some() && !matches!(target, RecordTarget::Command(_)) {
        return Err(usage_error(
            ErrorKind::ArgumentConflict,
            "--output is the file for the output of a command that gctrace starts (a trace is written with --record)",
        ));
    }
    if args.record.as_deref().is_some_and(is_stdout) {
        return Err(usage_error(
            ErrorKind::ArgumentConflict,
            "--record - would mix the trace with what is shown; `gctrace record -o -` writes it to standard output",
        ));
    }
    if args.record.is_some() && args.record == args.output {
        return Err(usage_error(
            ErrorKind::ArgumentConflict,
            "--record and --output name the same file: the trace and the command's output need one each",
        ));
    }
    let show = match (args.plain, args.format) {
        (false, None) => DisplayChoice::View,
        (true, _) | (_, Some(OutputFormat::Text)) => DisplayChoice::Lines,
        (_, Some(OutputFormat::Json)) => DisplayChoice::Json,
    };
    Ok(TopConfig {
        recording: args
            .sources
            .recording(target, args.record, Duration::ZERO, verbosity),
        interval: args.interval,
        long_pause: args.long_pause,
        command_output: args.output,
        show,
        iterations: args.iterations,
        listen: args.listen,
        listen_arguments: args.listen_arguments,
    })
}

fn target(command: Vec<OsString>, pid: Option<u32>) -> Result<RecordTarget, clap::Error> {
    match (command.is_empty(), pid) {
        (true, None) => Ok(RecordTarget::Everything),
        (false, None) => Ok(RecordTarget::Command(command)),
        (true, Some(pid)) => Ok(RecordTarget::Process {
            pid,
            duration: None,
        }),
        (false, Some(_)) => Err(usage_error(
            ErrorKind::ArgumentConflict,
            "-p PID watches a running process and a command starts a new one: give only one of them",
        )),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = values::seconds(text)?;
    let whole_steps = interval.as_nanos() % INTERVALS.start().as_nanos() == 0;
    if INTERVALS.contains(&interval) && whole_steps {
        Ok(interval)
    } else {
        Err("must be from 0.1 to 60 seconds, in steps of 0.1".to_owned())
    }
}

fn iterations(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "write a whole number from 1 on".to_owned())
}

/// `9464` and `:9464` are of this machine alone; what others may see is said in full.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let port = text
        .strip_prefix(':')
        .or_else(|| text.strip_prefix("localhost:"))
        .unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse()
        .map_err(|_| "write a port (9464), or an address and a port (127.0.0.1:9464, [::1]:9464, 0.0.0.0:9464)".to_owned())
}
