//! The command line of gctrace: clap's types are the configuration.
//!
//! Owns every option, its help and its validation. Executes nothing. No other module depends on clap, except
//! `manual.rs`: it renders this description.
#![expect(
    missing_docs,
    reason = "the comments of clap's types are the help of gctrace, which says what it needs"
)]

mod analyze;
mod apply;
mod auto;
mod choices;
mod command;
mod compare;
#[cfg(target_os = "linux")]
mod configured;
mod demo;
mod dump;
mod export;
mod groups;
mod heap;
mod keep;
mod limits;
mod output;
mod record;
mod setup;
mod sources;
mod summarize;
mod take_heap;
mod top;
mod tune;
mod values;

pub use analyze::{AdviceArgs, AnalyzeArgs, ReportArgs};
pub use apply::ApplyArgs;
pub use auto::AutoArgs;
pub use choices::{CounterChoice, CudaMode, OutputFormat, RecordMode, ReportFormat};
pub use compare::CompareArgs;
#[cfg(target_os = "linux")]
pub use configured::ConfiguredOptions;
pub use demo::DemoConfig;
pub use dump::DumpArgs;
pub use export::{ExportArgs, ExportFormat, StackWeight};
pub use heap::{HeapArgs, HeapQuestion, HeapTarget};
pub use keep::{DailyLimit, KeepConfig, KeepLimit};
pub use limits::{ChangeLimit, Increase, ReportLimit};
pub use output::OutputArgs;
pub use record::{RecordConfig, RecordTarget};
pub use setup::SetupConfig;
pub use summarize::{Shard, SummarizeArgs};
pub use take_heap::{HeapProgram, TakeHeapArgs};
pub use top::TopArgs;
pub use tune::TuneArgs;
pub use values::is_trace_name;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use gctrace_base::print::clean;
use gctrace_base::text::chain;
use gctrace_base::{files, print, variables};
#[cfg(target_os = "linux")]
use gctrace_base::{invoker, platform, trust};
use std::ffi::OsString;
use std::path::PathBuf;

/// Hidden subcommand: runs gctrace as the guardian.
pub const GUARDIAN: &str = "__guardian";
/// Hidden subcommand: runs gctrace as the guardian of the terminal.
pub const TERMINAL_GUARDIAN: &str = "__guardian-of-terminal";
/// Hidden subcommand: loads the injected library once, as the command's user (`launch/trial.rs`).
pub const LOAD_LIBRARY: &str = "__load-library";

/// The group of the options that `gctrace.toml` and `GCTRACE_ARGS` may have: `group = CONFIGURABLE` in the option's
/// definition. All other options must be typed: they write files, listen, name processes or other programs' settings,
/// or give rights.
const CONFIGURABLE: &str = "configurable";

/// An option that has another name now, and the new spelling.
type OldSpelling = (&'static str, &'static str);

/// Hidden options that scripts may use.
const OLD_SPELLINGS: [OldSpelling; 2] = [("json", "--format json"), ("plain", "--format text")];

/// Exit code of a usage error.
const USAGE: u8 = 2;

const EXAMPLES: &str = "\
Examples:
  sudo gctrace -- python train.py            record a program from its first instruction
  gctrace -- python train.py                 the same without root, in-process
  sudo gctrace -o run.json.gz -- torchrun --nproc-per-node 8 train.py
  sudo gctrace record -p 4242 -d 30s         record a running process for 30 seconds
  sudo gctrace top -- python train.py        live view
  gctrace analyze trace.json                 report what the collector cost, and why
  gctrace report trace.json                  the same as a page for the browser, to zoom and to send
  gctrace advice trace.json 1                the code of a change, its risk, how to check it
  gctrace apply --from trace.json -- python train.py     run with the change, without editing code
  gctrace compare before.json after.json     what changed, and whether it helped
  gctrace tune -- python train.py            measure which settings are the fastest
  gctrace heap why Trainer train.gcheap      why objects are alive, and what retains memory
  gctrace export trace.json -o gc.svg        flame graph of the Python lines that trigger it
  gctrace doctor                             check what works on this machine

Without privileges, gctrace records commands in-process (--mode inject): the same pauses, but not
the reason of each. Under sudo, the command runs as the invoking user, with that user's environment.
A recording exits with the command's own exit code; otherwise 2 is a usage error, 1 a failure of
gctrace, and 130 an interrupted recording.";

const ANALYZE_EXAMPLES: &str = "\
Examples:
  gctrace analyze trace.json
  gctrace analyze --format json rank*.json.gz > report.json";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  gctrace doctor
  gctrace doctor --python .venv/bin/python
  sudo gctrace doctor --python 4242          a running process, by pid

Exit code: 0 if a command can be recorded in any mode; 1 if not.";

/// Measures what Python's garbage collector costs a training process.
///
/// Records every pause of CPython's cyclic garbage collector in unmodified programs, and explains
/// its cost and cause.
#[derive(Debug, Parser)]
#[command(
    name = "gctrace",
    version,
    propagate_version = true,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    override_usage = "gctrace [OPTIONS] -- COMMAND...\n       gctrace SUBCOMMAND [OPTIONS]..."
)]
struct Cli {
    #[command(subcommand)]
    subcommand: Option<Invocation>,
    #[command(flatten)]
    record: Box<RecordConfig>,
    #[command(flatten)]
    voice: VerbosityArgs,
}

/// Options of every subcommand.
#[derive(Args, Clone, Copy, Debug)]
struct VerbosityArgs {
    /// Print only errors
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Messages")]
    quiet: bool,
    /// Print more messages; twice for debug messages
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

/// The requested subcommand with its options.
#[derive(Debug, PartialEq, Subcommand)]
pub enum Invocation {
    /// Record a command or a running process (the default subcommand)
    #[command(
        after_help = record::EXAMPLES,
        override_usage = "gctrace [record] [OPTIONS] -- COMMAND...\n       \
                          gctrace record [OPTIONS] -p PID"
    )]
    Record(Box<RecordConfig>),
    /// Live view of a command, a process or every Python process
    #[command(after_help = top::EXAMPLES, override_usage = top::USAGE)]
    Top(Box<TopArgs>),
    /// Report on traces: what the collector cost, why, what to do next
    #[command(after_help = ANALYZE_EXAMPLES)]
    Analyze(AnalyzeArgs),
    /// Write the report as one page for the browser, to zoom and to send
    #[command(after_help = analyze::REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Reduce traces to summaries for one report on all: on many machines, resumed after failures
    #[command(after_help = summarize::EXAMPLES)]
    Summarize(SummarizeArgs),
    /// Print the code of one advice, its risk and how to check it
    #[command(after_help = analyze::EXAMPLES)]
    Advice(AdviceArgs),
    /// Start a command with other settings of the collector
    #[command(after_help = apply::EXAMPLES, override_usage = apply::USAGE)]
    Apply(ApplyArgs),
    /// Find a setting of the collector while a command runs, and hold it
    #[command(after_help = auto::EXAMPLES, override_usage = auto::USAGE)]
    Auto(AutoArgs),
    /// Compare runs before and after a change: whether it helped
    #[command(after_help = compare::EXAMPLES, override_usage = compare::USAGE)]
    Compare(CompareArgs),
    /// Find the fastest settings of the collector by measurement
    #[command(after_help = tune::EXAMPLES)]
    Tune(TuneArgs),
    /// Take a heap; why objects are alive, what retains memory
    #[command(after_help = heap::EXAMPLES, override_usage = heap::USAGE)]
    Heap(HeapArgs),
    /// What a program does now: stacks of its threads, collector, memory
    #[command(after_help = dump::EXAMPLES)]
    Dump(DumpArgs),
    /// Flame graphs, timelines and tables of traces; pictures of heaps
    #[command(after_help = export::EXAMPLES)]
    Export(ExportArgs),
    /// Try gctrace on any machine: record and explain a training program on a simulated GPU
    #[command(after_help = demo::EXAMPLES)]
    Demo(DemoConfig),
    /// Check what works on this machine, what does not, and the command that fixes it
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Install this gctrace for all users, with its libraries, manual pages and completions
    #[command(after_help = setup::EXAMPLES)]
    Setup(SetupConfig),
    /// Print a shell completion script
    Completions {
        /// Shell to generate the script for
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    Man {
        /// Directory for one page per subcommand; without it, gctrace(1) goes to standard output
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// Resume stopped processes if gctrace is killed (internal)
    #[command(name = GUARDIAN, hide = true)]
    Guardian,
    /// Restore the terminal if gctrace is killed (internal)
    #[command(name = TERMINAL_GUARDIAN, hide = true)]
    TerminalGuardian,
    /// Test whether the loader accepts the injected library (internal)
    #[command(name = LOAD_LIBRARY, hide = true)]
    LoadLibrary {
        /// Path of the library
        path: PathBuf,
    },
}

/// Options of `gctrace doctor`: examines the machine, unless interpreters are named.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct DoctorArgs {
    /// Explain how the collector is found in these interpreters (executables or pids)
    #[arg(long, value_name = "PATH|PID", num_args = 1.., value_parser = OsStringValueParser::new().map(python))]
    pub python: Vec<InterpreterArg>,
    /// Show the options that come from gctrace.toml and GCTRACE_ARGS, and the ignored ones
    #[arg(long, conflicts_with = "python")]
    pub config: bool,
}

impl Invocation {
    /// Completes the options.
    ///
    /// # Errors
    /// Missing or contradictory options that clap does not find. Without the usage.
    fn check(&mut self, verbosity: Verbosity) -> Result<(), clap::Error> {
        match self {
            Self::Record(args) => args.check(verbosity),
            Self::Top(args) => args.check(),
            Self::Apply(args) => args.check(),
            Self::Auto(args) => args.check(),
            Self::Compare(args) => args.check(),
            Self::Tune(args) => args.check(),
            Self::Heap(args) if args.question.is_none() => args.take.program().map(|_| ()),
            Self::Export(args) => args.check(),
            _ => Ok(()),
        }
    }
}

/// Messages to print; each level includes the levels before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Errors only (`-q`).
    Quiet,
    /// Errors, warnings and results.
    #[default]
    Normal,
    /// Also progress (`-v`).
    Verbose,
    /// Also debug messages (`-vv`).
    Debug,
}

/// An interpreter named on the command line.
#[derive(Clone, Debug, PartialEq)]
pub enum InterpreterArg {
    /// An executable or libpython; a bare name is looked up in PATH.
    File(PathBuf),
    /// A running process, by pid.
    Process(u32),
}

/// Parses the command line of this process.
///
/// # Errors
/// Usage errors, and requests for help or the version; pass them to [`explain`].
pub fn parse() -> Result<(Invocation, Verbosity), clap::Error> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    #[cfg(target_os = "linux")]
    let arguments = configured::completed(arguments);
    let parsed = interpret(arguments.clone()).map_err(|error| {
        // clap quotes arguments verbatim; a newline in one could forge a line of output.
        let harmless = arguments.iter().map(|word| match word.to_str() {
            Some(text) => clean::line(text).into_owned().into(),
            None => word.clone(),
        });
        interpret(harmless).err().unwrap_or(error)
    });
    let (action, verbosity, old) = parsed?;
    if verbosity > Verbosity::Quiet
        && let Some((old, new)) = old
    {
        print::message(format!("--{old} is an old spelling of {new}"));
    }
    Ok((action, verbosity))
}

/// Prints a usage error, help or the version. Returns the exit code.
pub fn explain(error: &clap::Error) -> u8 {
    let styled = error.render();
    let text = |colors: bool| if colors { styled.ansi().to_string() } else { styled.to_string() };
    if error.use_stderr() {
        print::styled_lines(&text(print::colors_wanted(print::errors_on_terminal())));
        return USAGE;
    }
    match print::styled_answer(&text(print::colors_wanted(print::on_terminal()))) {
        Ok(()) => 0,
        Err(error) => {
            print::message(chain(&error));
            1
        }
    }
}

/// Parses `arguments`, without the verbosity. Errors are usage errors, ready to print.
fn try_parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, clap::Error> {
    interpret(arguments).map(|(action, ..)| action)
}

fn interpret(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<(Invocation, Verbosity, Option<OldSpelling>), clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let matches = command()
        .try_get_matches_from(&arguments)
        .map_err(|error| values::explain_missing_dashes(error, &arguments))
        .map_err(|error| with_usage(error, "record"))?;
    let subcommand = matches.subcommand_name().unwrap_or("record");
    let checked = Cli::from_arg_matches(&matches).and_then(|cli| {
        let verbosity = cli.voice.verbosity();
        let mut action = cli.subcommand.unwrap_or(Invocation::Record(cli.record));
        action.check(verbosity).map(|()| (action, verbosity, old_spelling(&matches)))
    });
    checked.map_err(|error| with_usage(error, subcommand))
}

/// The first old spelling that was used.
fn old_spelling(mut matches: &ArgMatches) -> Option<OldSpelling> {
    while let Some((_, of_subcommand)) = matches.subcommand() {
        matches = of_subcommand;
    }
    let is_used = |name: &str| matches.try_get_one(name).is_ok_and(|used| used == Some(&true));
    OLD_SPELLINGS.into_iter().find(|(old, _)| is_used(old))
}

/// The error with the usage of its subcommand.
fn with_usage(error: clap::Error, subcommand: &str) -> clap::Error {
    let mut all = command();
    all.build();
    match all.find_subcommand_mut(subcommand) {
        Some(command) => error.format(command),
        None => error.format(&mut all),
    }
}

/// The configuration of `gctrace -- COMMAND`, for `gctrace doctor`.
pub fn usual_recording(command: &str) -> RecordConfig {
    let line = ["gctrace", "--", command].map(OsString::from);
    match try_parse(line) {
        Ok(Invocation::Record(config)) => *config,
        // Unreachable: this line always parses as a recording.
        Ok(_) => usage_error(ErrorKind::InvalidSubcommand, "not a recording").exit(),
        Err(error) => error.exit(),
    }
}

/// The configuration of `gctrace record` with these options, `-- COMMAND` included.
///
/// # Errors
/// Usage errors.
pub fn recording(options: Vec<OsString>) -> Result<RecordConfig, clap::Error> {
    let line = ["gctrace".into(), "record".into()];
    match try_parse(line.into_iter().chain(options))? {
        Invocation::Record(config) => Ok(*config),
        _ => Err(usage_error(ErrorKind::InvalidSubcommand, "not a recording")),
    }
}

/// The clap description of the command line, for completions and manual pages.
pub fn command() -> clap::Command {
    // As in perf and strace, a subcommand needs no `--` before the traced command.
    let last = |arg: clap::Arg| arg.last(false).trailing_var_arg(true);
    let configurable = || clap::ArgGroup::new(CONFIGURABLE).multiple(true);
    groups::shown_in_groups(Cli::command())
        .group(configurable())
        .mut_subcommands(|sub| sub.group(configurable()))
        .mut_subcommand("record", |record| record.mut_arg("command", last))
        .mut_subcommand("top", |top| top.mut_arg("command", last))
        .mut_subcommand("apply", |apply| apply.mut_arg("command", last))
        .mut_subcommand("tune", |tune| tune.mut_arg("command", |arg| last(arg).required(true)))
}

/// The same with clap's additions: the options of each group, and the options of every subcommand.
#[cfg(target_os = "linux")]
pub fn described() -> clap::Command {
    let mut command = command();
    command.build();
    command
}

fn python(named: OsString) -> InterpreterArg {
    match named.to_str().map(str::parse::<u32>) {
        Some(Ok(pid)) if pid > 0 => InterpreterArg::Process(pid),
        _ => InterpreterArg::File(PathBuf::from(named)),
    }
}

fn usage_error(kind: ErrorKind, message: &str) -> clap::Error {
    clap::Error::raw(kind, message)
}

#[cfg(test)]
mod tests;
