//! The command line of `gctrace tune`.

use super::choices::OutputFormat;
use super::command::CommandArgs;
use super::output::OutputArgs;
use super::{CONFIGURABLE, choices, usage_error, values};
use clap::Args;
use clap::error::ErrorKind;
use gctrace_analysis::tune::TuneMeasure;
use gctrace_settings::GcSetting;
use std::time::Duration;

/// More settings than this would need too many steps.
const MOST_SETTINGS: usize = 8;

pub(super) const EXAMPLES: &str = "\
Examples:
  gctrace tune -- python train.py
  gctrace tune --settings 'none|threshold=50000' -- torchrun --nproc-per-node 8 train.py
  gctrace tune --settings 'none|threshold=7000,10,10' --step-function train_step -- python train.py
  gctrace tune --settings 'none|freeze@step:2' --budget 1h -- python train.py --steps 300
  gctrace tune --runs --measure wall -- python job.py

Without --settings the first run has the program's own. What its collections take and free says
which settings are tried: gc.disable(), threshold=50000, gc.freeze() at a step, or threshold=7000.
These are compared in whole runs, about four of them, which are announced with the time that they
take. It ends as soon as one is better beyond noise; after 12 runs the best guess is printed, with
its interval. A run with thousands of steps, or longer than a fourth of --budget, is compared
within itself, as gctrace auto does (JSON then has the schema gctrace.auto/1).

The verdict rests on CPU time, with wall time beside it: other programs disturb it less, and a
thread that spins while it waits for a GPU has as much of both. A gain needs less time of
collections and less time of all. Thresholds that --settings names take turns within one run, in
random order, in blocks of steps that gctrace chooses; a program without steps is compared by
time. Full collections are too rare for blocks: their share is computed from counts and their
measured cost.

Whole runs are compared with disable, plan or freeze, with --runs, and if the command ends without
steps before anything is known: it is started again, run after run with one setting each, and its
output files are then written by each run. gctrace never ends the command: once the result is
known, it goes on with the collector's settings of its own (--stop interrupts it as Ctrl-C would).

The exit code is the command's own if it failed, otherwise 0.";

#[derive(Args, Clone, Debug, PartialEq)]
pub struct TuneArgs {
    #[command(flatten)]
    pub start: CommandArgs,
    /// Settings to compare with the first one, between `|`, each as in gctrace apply --gc [default: settings that may
    /// help this program]
    #[arg(long, value_name = "SETTINGS", value_delimiter = '|')]
    pub settings: Vec<GcSetting>,
    /// Time for the measurement (30s, 10m, 2h). A run that has begun is finished; no other is
    /// started
    #[arg(long, group = CONFIGURABLE, value_name = "TIME", default_value = "10m", value_parser = values::seconds)]
    pub budget: Duration,
    /// Compare whole runs of the command instead of blocks of steps
    #[arg(long, hide = true)]
    pub runs: bool,
    /// Stop measuring when every interval is this narrow to either side, in percent of the first
    /// setting's mean [default: 0.5, or as soon as each is known to be faster or slower]
    #[arg(long, hide = true, group = CONFIGURABLE, value_name = "PERCENT", value_parser = precision)]
    pub precision: Option<f64>,
    /// Clock of the verdict
    #[arg(long, group = CONFIGURABLE, default_value = "cpu", value_parser = choices::one_of(MEASURES))]
    pub measure: TuneMeasure,
    /// Interrupt the command (SIGINT) when the result is known
    #[arg(long, hide = true)]
    pub stop: bool,
    #[command(flatten)]
    pub report: OutputArgs<OutputFormat>,
}

/// Values of `--measure`.
const MEASURES: [(&str, &str, TuneMeasure); 2] = [
    (
        "cpu",
        "CPU time of the thread that makes the steps; of runs without steps, of all processes",
        TuneMeasure::Cpu,
    ),
    ("wall", "Wall time", TuneMeasure::Wall),
];

impl TuneArgs {
    /// # Errors
    /// Too few or too many settings.
    pub(super) fn check(&self) -> Result<(), clap::Error> {
        if self.settings.is_empty() || (2..=MOST_SETTINGS).contains(&self.settings.len()) {
            return Ok(());
        }
        Err(usage_error(
            ErrorKind::WrongNumberOfValues,
            &format!(
                "--settings needs 2 to {MOST_SETTINGS} settings between `|`, and has {}: \
                 --settings 'none|threshold=7000,10,10'",
                self.settings.len()
            ),
        ))
    }

    /// Whether the settings are compared within one run: thresholds leave nothing behind. The program's own thresholds
    /// do not matter.
    pub fn takes_turns(&self) -> bool {
        let is_thresholds = |setting: &GcSetting| setting.thresholds([1; 3]).is_some();
        !self.runs && self.settings.iter().all(is_thresholds)
    }
}

/// Half the width of an interval, as a share of the first setting's mean, that is narrow enough.
fn precision(text: &str) -> Result<f64, String> {
    let value: f64 = text
        .trim_end_matches('%')
        .trim()
        .parse()
        .map_err(|_| format!("{text:?} is not a number of percent (examples: 0.5, 2)"))?;
    if value > 0.0 && value <= 100.0 {
        Ok(value / 100.0)
    } else {
        Err("must be above 0 and at most 100 percent".to_owned())
    }
}
