//! The command line of `gctrace top`.

use super::sources::SourceArgs;
use super::{
    CONFIGURABLE, OutputFormat, RecordConfig, RecordTarget, Verbosity, usage_error, values,
};
use crate::files::is_stdout;
use clap::Args;
use clap::error::ErrorKind;
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
  sudo gctrace top                           every Python process on this machine
  sudo gctrace top --record t.json.gz -- torchrun --nproc-per-node 8 train.py
  sudo gctrace top --format text -i 5 -p 4242      a line every five seconds
  sudo gctrace top --format json -n 60 -p 4242 > minute.jsonl
  sudo gctrace top --listen 9464             also serve http://127.0.0.1:9464/metrics

In the view, ? lists the keys. The first Ctrl-C goes to the command, a second one quits; q quits at
once. After quitting, the command keeps running, unrecorded. Without a command and -p, /proc is
scanned once a second: a process that lives for less than a second may be missed, unless its parent
is already shown.
Exit code: the command's own if it has ended; 0 after q, 130 after a second Ctrl-C; otherwise 2 is a
usage error, 1 a failure of gctrace.";

/// Bounds of the interval: the minimum is the resolution of the kept history, the maximum its
/// length.
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);

/// Options of `gctrace top`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct TopArgs {
    #[command(flatten)]
    target: RecordTarget,
    /// Refresh interval: 0.1 to 60 seconds, in steps of 0.1
    #[arg(short = 'i', long, group = CONFIGURABLE, short_alias = 'd', value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Duration,
    /// Quit after this number of intervals; the command keeps running
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = iterations)]
    pub iterations: Option<u64>,
    /// Log pauses at least this long (10ms, 500us)
    #[arg(long, group = CONFIGURABLE, value_name = "TIME", default_value = "10ms", value_parser = values::time)]
    pub long_pause: Duration,
    /// Old spelling of --format text
    #[arg(long, hide = true, conflicts_with = "format")]
    plain: bool,
    /// Print one line (`text`, the default without a terminal) or one JSON object (`json`) per interval instead of
    /// the view
    #[arg(long, group = CONFIGURABLE, value_enum, hide_possible_values = true)]
    format: Option<OutputFormat>,
    /// Also write a trace; FILE as with `record -o`
    #[arg(long, value_name = "FILE", value_parser = values::trace_name())]
    record: Option<PathBuf>,
    /// Append the command's output to this file [default: in the view a temporary file, shown with
    /// `o`; otherwise standard error]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Serve Prometheus metrics at this address: a port on localhost (9464), or ADDRESS:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = listen)]
    pub listen: Option<SocketAddr>,
    /// With --listen: include the arguments of command lines; they may contain secrets
    #[arg(long, hide = true, requires = "listen")]
    pub listen_arguments: bool,
    #[command(flatten)]
    sources: SourceArgs,
}

impl TopArgs {
    /// The form of the output per interval; `None`: the view, if the terminal can show it.
    pub fn printed(&self) -> Option<OutputFormat> {
        if self.format.is_none() && self.plain { Some(OutputFormat::Text) } else { self.format }
    }

    /// The recording behind the view; `output` is the trace of `--record`.
    pub fn recording(&self, verbosity: Verbosity) -> RecordConfig {
        RecordConfig {
            apply: None,
            target: self.target.clone(),
            output: self.record.clone(),
            min_pause: Duration::ZERO,
            sources: self.sources.clone(),
            verbosity,
            duration: None,
            summary: None,
            keep: None,
            memory_history: None,
        }
    }

    /// # Errors
    /// Options contradict each other.
    pub(super) fn check(&self) -> Result<(), clap::Error> {
        let problem = if self.output.is_some() && !matches!(self.target, RecordTarget::Command(_)) {
            "--output is the file for the output of a command that gctrace starts (to write a trace, use --record)"
        } else if self.record.as_deref().is_some_and(is_stdout) {
            "--record - would mix the trace with the display; `gctrace record -o -` writes a trace to standard output"
        } else if self.record.is_some() && self.record == self.output {
            "--record and --output name the same file: the trace and the command's output need separate files"
        } else {
            return Ok(());
        };
        Err(usage_error(ErrorKind::ArgumentConflict, problem))
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
    match text.parse() {
        Ok(number @ 1..) => Ok(number),
        _ => Err("must be an integer of at least 1".to_owned()),
    }
}

/// `9464` and `:9464` mean localhost; any other address must be explicit.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').or_else(|| text.strip_prefix("localhost:")).unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| {
        "must be a port (9464) or ADDRESS:PORT (127.0.0.1:9464, [::1]:9464, 0.0.0.0:9464)"
            .to_owned()
    })
}
