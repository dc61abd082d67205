//! The command line of `gctrace auto`.

use super::command::CommandArgs;
use super::{CONFIGURABLE, choices, usage_error, values};
use clap::Args;
use clap::error::ErrorKind;
use gctrace_settings::{AutoGoal, AutoOptions};
use std::path::PathBuf;
use std::time::Duration;

pub(super) const USAGE: &str = "gctrace auto [OPTIONS] -- COMMAND...\n       \
                                gctrace auto --undo PID";

pub(super) const EXAMPLES: &str = "\
Examples:
  gctrace auto -- python train.py
  gctrace auto --goal longest --memory 50% -- python train.py
  gctrace auto --step-function train_step -- python train.py
  gctrace auto --undo 4242                   give everything back in a running program
  gctrace apply --from auto.json -- python train.py        hold what was found, in the next run
  gctrace advice auto.json 1                 print it as code

At first the program runs with its own settings. If the collector takes more than --worth of the
CPU time, larger thresholds, gc.freeze() and, where next to nothing is freed, gc.disable() are
compared in short blocks of steps, the best is proven in pairs of blocks in random order, and
held; some blocks with the program's own settings keep checking it. A run that ends first has the
best guess. If memory grows by more than --memory, or pauses become longer, everything is given
back. A step is what `gctrace apply` takes for one. Of the ranks of a job on one host, rank 0
decides and the others do the same; ranks on several hosts are left alone. The exit code is the
command's own.";

/// Values of `--goal`.
const GOALS: [(&str, &str, AutoGoal); 2] = [
    ("time", "CPU time", AutoGoal::Time),
    (
        "longest",
        "The longest pause: the old generation is frozen, even if that saves no time",
        AutoGoal::Longest,
    ),
];

#[derive(Args, Clone, Debug, PartialEq)]
pub struct AutoArgs {
    #[command(flatten)]
    pub start: CommandArgs,
    /// Leave programs alone if their collector takes at most this share of the CPU time
    #[arg(long, group = CONFIGURABLE, value_name = "PERCENT", default_value = "2%", value_parser = values::more)]
    worth: f64,
    /// Give everything back if resident memory, or the GPU memory in use, grows by more than this, and 64 MiB
    #[arg(long, value_name = "PERCENT", default_value = "25%", value_parser = values::more)]
    memory: f64,
    /// What to reduce
    #[arg(long, hide = true, group = CONFIGURABLE, default_value = "time", value_parser = choices::one_of(GOALS))]
    goal: AutoGoal,
    /// Compare intervals of time instead if no step is seen for this long (2s, 1m)
    #[arg(long, group = CONFIGURABLE, value_name = "TIME", default_value = "10s", value_parser = values::seconds)]
    wait: Duration,
    /// Give everything back in this process, started by `gctrace auto`
    #[arg(long, value_name = "PID", value_parser = values::pid, conflicts_with = "command")]
    pub undo: Option<u32>,
    /// File for the results, JSON of the schema gctrace.auto/1. An existing one is renamed to FILE.old; beside any
    /// other file the next free name is taken, such as auto-2.json
    #[arg(short, long, value_name = "FILE", default_value = "auto.json")]
    pub output: PathBuf,
    /// Overwrite FILE if it exists, whatever it is
    #[arg(short = 'f', long)]
    pub force: bool,
}

impl AutoArgs {
    /// # Errors
    /// Without `--undo`: the command is missing, or `--worth` is above 100 %.
    pub(super) fn check(&self) -> Result<(), clap::Error> {
        if self.worth > 1.0 {
            return Err(usage_error(
                ErrorKind::ValueValidation,
                "--worth is at most 100%: --worth 2%",
            ));
        }
        if self.undo.is_none() && self.start.command.is_empty() {
            return Err(usage_error(
                ErrorKind::MissingRequiredArgument,
                "nothing to start: give a command after `--` (gctrace auto -- python train.py)",
            ));
        }
        Ok(())
    }

    /// As requested of the library.
    pub fn options(&self) -> AutoOptions {
        AutoOptions {
            worth: self.worth,
            memory: self.memory,
            goal: self.goal,
            wait_s: self.wait.as_secs_f64(),
            ..AutoOptions::default()
        }
    }
}
