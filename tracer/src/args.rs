//! The command line: clap types, turned into plain configuration at the door.
//!
//! Owns every option, its help and its checks. Does nothing with them, and no other module knows
//! clap (but `manual.rs`, which prints what is described here).

mod analyze;
mod choices;
mod demo;
mod export;
mod sources;
mod top;
mod values;

pub(crate) use analyze::AnalyzeConfig;
pub(crate) use choices::CudaMode;
pub(crate) use choices::OutputFormat;
pub(crate) use choices::RecordMode;
pub(crate) use demo::DemoConfig;
pub(crate) use export::ExportConfig;
pub(crate) use export::ExportFormat;
pub(crate) use export::StackWeight;
pub(crate) use top::DisplayChoice;
pub(crate) use top::TopConfig;

use crate::print;
use crate::print::clean;
use clap::Args;
use clap::CommandFactory;
use clap::FromArgMatches;
use clap::Parser;
use clap::Subcommand;
use clap::error::ErrorKind;
use gctrace_event::Counter;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The hidden subcommand that gctrace starts as its guardian.
pub(crate) const GUARDIAN: &str = "__guardian";
/// The one that guards the terminal.
pub(crate) const TERMINAL_GUARDIAN: &str = "__guardian-of-terminal";
/// The hidden subcommand that loads the injected library once, as the command's user (`launch/trial.rs`).
pub(crate) const LOAD_LIBRARY: &str = "__load-library";

/// Exit code of a usage error.
const USAGE: u8 = 2;

const EXAMPLES: &str = "\
Examples:
  sudo gctrace -- python train.py            record a program from its first instruction
  gctrace -- python train.py                 the same without root, from within the program
  sudo gctrace -o run.json.gz -- torchrun --nproc-per-node 8 train.py
  sudo gctrace record -p 4242 -d 30s         record a running process for 30 seconds
  sudo gctrace top -- python train.py        show live what it does
  gctrace analyze trace.json                 say what the collector cost, and why
  gctrace export trace.json -o gc.svg        flame graph: which Python lines trigger it
  gctrace doctor                             say what works on this machine

Without privileges gctrace records commands from within (--mode inject): the same pauses, but not why
they came. Under sudo the command runs as the user who typed it, with that user's environment. The exit code of a recording is the command's own; otherwise 2 is a usage
error, 1 a failure of gctrace, 130 an interrupted recording.";

const RECORD_EXAMPLES: &str = "\
Examples:
  sudo gctrace record -- python train.py
  sudo gctrace record -o run.json.gz --min-pause 50us -- ./train.py --epochs 3
  sudo gctrace record -p 4242 -d 2m
  gctrace record --mode inject -- python train.py
  srun gctrace record -o 'gc-%h-%r.json.gz' -- python train.py     one trace for each rank
  gctrace record -o - -- python train.py | gctrace analyze -       its own output goes to standard error

The first Ctrl-C reaches the command as it would without gctrace, and recording goes on until the
command ends. A second Ctrl-C ends the recording and leaves the command alone.";

const ANALYZE_EXAMPLES: &str = "\
Examples:
  gctrace analyze trace.json
  gctrace analyze --format json rank*.json.gz > report.json";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  gctrace doctor
  gctrace doctor --python .venv/bin/python
  sudo gctrace doctor --python 4242          a running process, by its pid

Exit code: 0 if recording a command will work, one way or another; 1 if not.";

/// Finds what Python's garbage collector costs a training process.
///
/// Records every pause of CPython's cyclic garbage collector in unmodified programs, and explains
/// it.
#[derive(Debug, Parser)]
#[command(
    name = "gctrace",
    version,
    propagate_version = true,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    override_usage = "gctrace [record] [OPTIONS] -- COMMAND...\n       \
                      gctrace record [OPTIONS] -p PID\n       \
                      gctrace top [OPTIONS] [-p PID | -- COMMAND...]\n       \
                      gctrace analyze TRACE...\n       \
                      gctrace export TRACE... -o FILE\n       \
                      gctrace doctor\n       \
                      gctrace demo"
)]
struct Cli {
    #[command(subcommand)]
    subcommand: Option<Subcommands>,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    voice: VerbosityArgs,
}

/// Understood by every subcommand.
#[derive(Args, Clone, Copy, Debug)]
struct VerbosityArgs {
    /// Print nothing but errors
    #[arg(
        short,
        long,
        global = true,
        conflicts_with = "verbose",
        help_heading = "Messages"
    )]
    quiet: bool,
    /// Say more about what is being done; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Messages")]
    verbose: u8,
}

impl VerbosityArgs {
    fn verbosity(self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, 0) => Verbosity::Normal,
            (false, 1) => Verbosity::Verbose,
            (false, _) => Verbosity::Debug,
        }
    }
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Record a command, or a running process (the word may be left out before a command)
    #[command(
        after_help = RECORD_EXAMPLES,
        override_usage = "gctrace [record] [OPTIONS] -- COMMAND...\n       \
                          gctrace record [OPTIONS] -p PID"
    )]
    Record(RecordArgs),
    /// Show live what the collector does: of a command, a running process, or every Python process
    #[command(after_help = top::EXAMPLES, override_usage = top::USAGE)]
    Top(top::TopArgs),
    /// Explain traces: what the collector cost, why it ran, what to do next
    #[command(after_help = ANALYZE_EXAMPLES)]
    Analyze(analyze::AnalyzeArgs),
    /// Write flame graphs of the collector's time by the Python stack that triggered it
    #[command(after_help = export::EXAMPLES)]
    Export(export::ExportArgs),
    /// Record and explain a training program on a simulated GPU: what gctrace is like, on any machine
    #[command(after_help = demo::EXAMPLES)]
    Demo(demo::DemoArgs),
    /// Say what works on this machine, what does not, and the command that mends it
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    Man {
        /// Directory for one page per subcommand; without it, the page of gctrace is printed
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// Continue held processes should gctrace be killed (started by gctrace itself)
    #[command(name = GUARDIAN, hide = true)]
    Guardian,
    /// Give the terminal back should gctrace be killed (started by gctrace itself)
    #[command(name = TERMINAL_GUARDIAN, hide = true)]
    TerminalGuardian,
    /// Load the injected library, to see whether the loader accepts it (started by gctrace itself)
    #[command(name = LOAD_LIBRARY, hide = true)]
    LoadLibrary {
        /// The library
        path: PathBuf,
    },
}

#[derive(Args, Debug)]
struct RecordArgs {
    /// The command to record, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Trace to write: compressed if it ends in .gz; %h, %r and %p are the host, the rank and the process id; - is
    /// standard output. A trace that is there becomes FILE.old, any other file is left alone
    #[arg(short, long, value_name = "FILE", default_value = "trace.json", value_parser = values::trace_name())]
    output: PathBuf,
    /// Record a running process instead of a command
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = values::pid)]
    pid: Option<u32>,
    /// Record for this time at most (10, 2.5, 30s, 2m); the process, or the command, goes on
    #[arg(short, long, value_name = "SECONDS", value_parser = values::seconds)]
    duration: Option<Duration>,
    /// Count pauses shorter than this (50us, 1ms) but do not write them
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = values::time)]
    min_pause: Duration,
    #[command(flatten)]
    sources: sources::SourceArgs,
}

#[derive(Args, Debug)]
struct DoctorArgs {
    /// Explain how the collector was found in these interpreters: files, or pids of running ones
    #[arg(long, value_name = "PATH|PID", num_args = 1..)]
    python: Vec<OsString>,
}

/// What was asked for.
#[derive(Debug, PartialEq)]
pub(crate) enum Invocation {
    /// Record a command or a process.
    Record(RecordConfig),
    /// Show live.
    Top(TopConfig),
    /// Report on traces.
    Analyze(AnalyzeConfig),
    /// Write flame graphs.
    Export(ExportConfig),
    /// Record and explain the example on a simulated GPU.
    Demo(DemoConfig),
    /// Examine this machine.
    Doctor(DoctorConfig),
    /// Print a completion script.
    Completions(clap_complete::Shell),
    /// Print the manual page, or write all of them into the directory.
    Man(Option<PathBuf>),
    /// Be the guardian process (`guardian.rs`).
    Guardian,
    /// Be the guardian of the terminal.
    TerminalGuardian,
    /// Load the injected library once, without rights.
    LoadLibrary(PathBuf),
}

/// One recording, as asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordConfig {
    /// What to record.
    pub target: RecordTarget,
    /// Trace to write, if any.
    pub output: Option<PathBuf>,
    /// Record children too.
    pub follow: bool,
    /// Pauses shorter than this are counted, not written.
    pub min_pause: Duration,
    /// Keep root and its environment for the command.
    pub as_root: bool,
    /// Bytes of the ring buffer: a power of two, at least one page.
    pub ring_size: u32,
    /// Python frames recorded where a pause begins.
    pub stack_depth: u32,
    /// Performance counters.
    pub counters: CounterChoice,
    /// Part of the CPU time that windows on the allocator may cost; `None`: there are none.
    pub alloc_budget: Option<f64>,
    /// Samples of GPUs per second; `None`: none.
    pub nvml_hz: Option<f64>,
    /// Calls of CUDA.
    pub cuda: CudaMode,
    /// How to record.
    pub mode: RecordMode,
    /// CUPTI is left to the program's own profiler.
    pub gpu_yield: bool,
    /// How much to say.
    pub verbosity: Verbosity,
    /// A command is recorded for this time at most, and goes on.
    pub duration: Option<Duration>,
}

/// Which performance counters to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CounterChoice {
    /// The usual ones, as far as the machine has them.
    Default,
    /// These; may be empty.
    Named(Vec<Counter>),
}

impl CounterChoice {
    /// What is asked for without `--counters`: all but the kernel's clock, which repeats task-clock.
    const DEFAULT: [Counter; 11] = [
        Counter::Cycles,
        Counter::Instructions,
        Counter::CacheMisses,
        Counter::LlcLoadMisses,
        Counter::DtlbLoadMisses,
        Counter::BranchMisses,
        Counter::PageFaults,
        Counter::MajorFaults,
        Counter::ContextSwitches,
        Counter::CpuMigrations,
        Counter::TaskClock,
    ];

    /// The counters.
    pub(crate) fn counters(&self) -> &[Counter] {
        match self {
            Self::Default => &Self::DEFAULT,
            Self::Named(counters) => counters,
        }
    }
}

/// What a recording watches.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RecordTarget {
    /// A command to start: never empty.
    Command(Vec<OsString>),
    /// A running process.
    Process {
        /// Its pid.
        pid: u32,
        /// Stop after this time.
        duration: Option<Duration>,
    },
    /// Every Python process that this user may watch.
    Everything,
}

/// How much gctrace says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors only (`-q`).
    Quiet,
    /// What a user should know.
    #[default]
    Normal,
    /// What is being done (`-v`).
    Verbose,
    /// Everything (`-vv`).
    Debug,
}

/// One examination, as asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DoctorConfig {
    /// Interpreters to explain; empty means to examine the machine.
    pub python: Vec<InterpreterArg>,
}

/// An interpreter named on the command line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum InterpreterArg {
    /// An executable or libpython; a bare name is looked up in PATH.
    File(PathBuf),
    /// A running process.
    Process(u32),
}

/// Reads the command line of this process.
///
/// # Errors
/// Usage errors, and requests for help or the version: [`explain`] prints them.
pub(crate) fn parse() -> Result<(Invocation, Verbosity), clap::Error> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    interpret(arguments.clone()).map_err(|error| {
        // clap repeats words of the command line as they are; a line end in one could forge a line.
        let harmless = arguments.iter().map(|word| match word.to_str() {
            Some(text) => clean::line(text).into_owned().into(),
            None => word.clone(),
        });
        interpret(harmless).err().unwrap_or(error)
    })
}

/// Prints a usage error, help or the version. Returns the exit code.
pub(crate) fn explain(error: &clap::Error) -> u8 {
    let styled = error.render();
    let text = |colors: bool| match colors {
        true => styled.ansi().to_string(),
        false => styled.to_string(),
    };
    if error.use_stderr() {
        print::lines(&text(print::colors_wanted(print::errors_on_terminal())));
        return USAGE;
    }
    let written = print::answer(&text(print::colors_wanted(print::on_terminal())));
    match print::unless_closed(written) {
        Ok(()) => 0,
        Err(error) => {
            print::message(format!("cannot write to standard output: {error}"));
            1
        }
    }
}

/// The same for any command line. Errors are usage errors, ready to print.
fn try_parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, clap::Error> {
    interpret(arguments).map(|(action, _)| action)
}

fn interpret(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<(Invocation, Verbosity), clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let matches = command()
        .try_get_matches_from(&arguments)
        .map_err(|error| values::explain_missing_dashes(error, &arguments))?;
    let cli = Cli::from_arg_matches(&matches)?;
    let verbosity = cli.voice.verbosity();
    let action = match cli.subcommand {
        None => Invocation::Record(record_config(cli.record, verbosity)?),
        Some(Subcommands::Record(record)) => Invocation::Record(record_config(record, verbosity)?),
        Some(Subcommands::Top(top)) => Invocation::Top(top::config(top, verbosity)?),
        Some(Subcommands::Analyze(analyze)) => Invocation::Analyze(analyze.into()),
        Some(Subcommands::Export(export)) => Invocation::Export(export::config(export)?),
        Some(Subcommands::Demo(demo)) => Invocation::Demo(demo.into()),
        Some(Subcommands::Doctor(doctor)) => Invocation::Doctor(DoctorConfig {
            python: doctor.python.into_iter().map(python).collect(),
        }),
        Some(Subcommands::Completions { shell }) => Invocation::Completions(shell),
        Some(Subcommands::Man { directory }) => Invocation::Man(directory),
        Some(Subcommands::Guardian) => Invocation::Guardian,
        Some(Subcommands::TerminalGuardian) => Invocation::TerminalGuardian,
        Some(Subcommands::LoadLibrary { path }) => Invocation::LoadLibrary(path),
    };
    Ok((action, verbosity))
}

/// What `gctrace -- COMMAND` asks for, for those who explain what it would do.
pub(crate) fn usual_recording(command: &str) -> RecordConfig {
    let line = ["gctrace", "--", command].map(OsString::from);
    match try_parse(line) {
        Ok(Invocation::Record(config)) => config,
        // Such a line is a recording; were it none, clap's own words would say why.
        Ok(_) => usage_error(ErrorKind::InvalidSubcommand, "not a recording").exit(),
        Err(error) => error.exit(),
    }
}

/// The description of the whole command line, for completions and manual pages.
pub(crate) fn command() -> clap::Command {
    // After its own options a subcommand needs no `--` before the command, as in perf and strace.
    let last = |arg: clap::Arg| arg.last(false).trailing_var_arg(true);
    Cli::command()
        .mut_subcommand("record", |record| record.mut_arg("command", last))
        .mut_subcommand("top", |top| top.mut_arg("command", last))
}

fn record_config(args: RecordArgs, verbosity: Verbosity) -> Result<RecordConfig, clap::Error> {
    let target = target(args.command, args.pid, args.duration)?;
    let output = Some(args.output);
    let config = args
        .sources
        .recording(target, output, args.min_pause, verbosity);
    Ok(RecordConfig {
        duration: args.duration,
        ..config
    })
}

fn target(
    command: Vec<OsString>,
    pid: Option<u32>,
    duration: Option<Duration>,
) -> Result<RecordTarget, clap::Error> {
    match (command.is_empty(), pid) {
        (true, Some(pid)) => Ok(RecordTarget::Process { pid, duration }),
        (true, None) => Err(usage_error(
            ErrorKind::MissingRequiredArgument,
            "nothing to record: give a command after `--` (gctrace -- python train.py), \
             or a running process with -p PID",
        )),
        (false, Some(_)) => Err(usage_error(
            ErrorKind::ArgumentConflict,
            "-p PID records a running process and a command starts a new one: give only one of them",
        )),
        (false, None) => Ok(RecordTarget::Command(command)),
    }
}

fn python(named: OsString) -> InterpreterArg {
    match named.to_str().map(str::parse::<u32>) {
        Some(Ok(pid)) if pid > 0 => InterpreterArg::Process(pid),
        _ => InterpreterArg::File(PathBuf::from(named)),
    }
}

fn usage_error(kind: ErrorKind, message: &str) -> clap::Error {
    command().error(kind, message)
}

#[cfg(test)]
mod tests;
