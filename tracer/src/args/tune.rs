//! The command line of `gctrace tune`.

use super::choices::OutputFormat;
use super::{usage_error, values};
use crate::files::is_stdout;
use clap::error::ErrorKind;
use clap::{Args, ValueEnum};
use gctrace_analysis::tune::TuneMeasure;
use gctrace_settings::GcSetting;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The program's own settings; ten times fewer collections of the youngest generation; collections
/// between steps only. Every 10 steps, as in NeMo's launcher: blocks stay short, and little garbage
/// waits.
const SETTINGS: &str = "none|threshold=7000,10,10|plan:10";
/// More settings than this would need too many steps.
const MOST_SETTINGS: usize = 8;

pub(super) const EXAMPLES: &str = "\
Examples:
  gctrace tune -- python train.py
  gctrace tune --settings 'none|threshold=50000' -- torchrun --nproc-per-node 8 train.py
  gctrace tune --step-function train_step --block 100 -- python train.py
  gctrace tune --settings 'none|freeze@step:2' --budget 1h -- python train.py --steps 300
  gctrace tune --runs --measure cpu -- python job.py

Settings that leave nothing behind (threshold, disable, plan) alternate in blocks of steps within one
run. The command is started again, run after run with one setting each, if it has no steps, with
freeze, and with --runs: its output files are then written by each run. gctrace never ends the
command: once the result is known, it goes on with the collector's settings of its own (--stop
interrupts it as Ctrl-C would).

The exit code is the command's own if it failed, otherwise 0.";

#[derive(Args, Debug)]
pub(super) struct TuneArgs {
    /// Command to start, with its arguments
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub(super) command: Vec<OsString>,
    /// Settings to compare with the first one, between `|`, each as in gctrace apply --gc
    #[arg(long, value_name = "SETTINGS", value_delimiter = '|', default_value = SETTINGS)]
    settings: Vec<GcSetting>,
    /// Time for the measurement (30s, 10m, 2h). A run that has begun is finished; no other is
    /// started
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = values::seconds)]
    budget: Duration,
    /// Steps per block [default: 25, and at least 3 N for plan:N]
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    block: Option<u64>,
    /// Count calls of this function as steps: train_step, Trainer.step or train.py:train_step
    #[arg(long, value_name = "NAME")]
    step_function: Option<String>,
    /// Compare whole runs of the command instead of blocks of steps
    #[arg(long, conflicts_with = "block")]
    runs: bool,
    /// Stop measuring when every interval is this narrow to either side, in percent of the first
    /// setting's mean
    #[arg(long, value_name = "PERCENT", default_value = "0.5", value_parser = precision)]
    precision: f64,
    /// Clock of the verdict: wall time, or CPU time, which a busy machine disturbs less
    #[arg(long, value_enum, default_value_t = MeasureChoice::Wall)]
    measure: MeasureChoice,
    /// Interrupt the command (SIGINT) when the result is known
    #[arg(long)]
    stop: bool,
    /// Under sudo: run the command as root instead of the invoking user
    #[arg(long)]
    as_root: bool,
    /// Report format; JSON has the schema gctrace.tune/1 [default: json if FILE ends in .json,
    /// otherwise text]
    #[arg(long, value_enum)]
    format: Option<OutputFormat>,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// File for the report; `-` is standard output, and the command's goes to standard error
    /// [default: standard error for text, standard output for JSON]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(short = 'f', long, requires = "output")]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MeasureChoice {
    /// Wall time
    Wall,
    /// CPU time of the thread that makes the steps
    Cpu,
}

/// The command and settings of `gctrace tune`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TuneConfig {
    /// Program and arguments, never empty.
    pub command: Vec<OsString>,
    /// Two to eight; the others are compared with the first.
    pub settings: Vec<GcSetting>,
    /// No run is started later than this after the first.
    pub budget: Duration,
    /// Steps per block; `None`: chosen by the settings.
    pub block: Option<u64>,
    /// The function whose calls are steps.
    pub step_function: Option<String>,
    /// Compare whole runs.
    pub runs: bool,
    /// Half the width of an interval, as a share of the first setting's mean, that is narrow
    /// enough.
    pub precision: f64,
    /// The clock that the verdict rests on.
    pub measure: TuneMeasure,
    /// Interrupt the command when the result is known.
    pub stop: bool,
    /// Run the command as root.
    pub as_root: bool,
    /// Format of the report.
    pub format: OutputFormat,
    /// Where the report is written; `None`: standard error for text, standard output for JSON.
    pub output: Option<PathBuf>,
    /// Replace an existing `output`.
    pub force: bool,
}

impl TuneConfig {
    /// Whether the report goes to standard output.
    pub(crate) fn prints_to_stdout(&self) -> bool {
        match &self.output {
            Some(path) => is_stdout(path),
            None => self.format == OutputFormat::Json,
        }
    }
}

pub(super) fn config(args: TuneArgs) -> Result<TuneConfig, clap::Error> {
    if !(2..=MOST_SETTINGS).contains(&args.settings.len()) {
        return Err(usage_error(
            ErrorKind::WrongNumberOfValues,
            &format!(
                "--settings needs 2 to {MOST_SETTINGS} settings between `|`, and has {}: \
                 --settings 'none|threshold=7000,10,10'",
                args.settings.len()
            ),
        ));
    }
    let is_json = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
    let format = match (args.format, &args.output) {
        _ if args.json => OutputFormat::Json,
        (Some(format), _) => format,
        (None, Some(path)) if is_json(path) => OutputFormat::Json,
        (None, _) => OutputFormat::Text,
    };
    Ok(TuneConfig {
        command: args.command,
        settings: args.settings,
        budget: args.budget,
        block: args.block,
        step_function: args.step_function.filter(|name| !name.is_empty()),
        runs: args.runs,
        precision: args.precision / 100.0,
        measure: match args.measure {
            MeasureChoice::Wall => TuneMeasure::Wall,
            MeasureChoice::Cpu => TuneMeasure::Cpu,
        },
        stop: args.stop,
        as_root: args.as_root,
        format,
        output: args.output,
        force: args.force,
    })
}

fn precision(text: &str) -> Result<f64, String> {
    let value: f64 = text
        .trim_end_matches('%')
        .trim()
        .parse()
        .map_err(|_| format!("{text:?} is not a number of percent (examples: 0.5, 2)"))?;
    if value > 0.0 && value <= 100.0 {
        Ok(value)
    } else {
        Err("must be above 0 and at most 100 percent".to_owned())
    }
}
