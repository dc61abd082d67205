//! The command line of `gctrace apply`.

use super::choices::OutputFormat;
use super::command::CommandArgs;
use super::output::OutputArgs;
use super::{usage_error, values};
use clap::Args;
use clap::error::ErrorKind;
use gctrace_settings::GcSetting;
use std::path::PathBuf;

pub(super) const USAGE: &str = "gctrace apply --gc SETTING [OPTIONS] -- COMMAND...\n       \
                                gctrace apply --from TRACE... [--advice N] [OPTIONS] -- COMMAND...\n       \
                                gctrace apply --undo -p PID";

pub(super) const EXAMPLES: &str = "\
Examples:
  gctrace apply --gc threshold=7000,10,10 -- python train.py
  gctrace apply --gc freeze@step:2 -- torchrun --nproc-per-node 8 train.py
  gctrace apply --gc plan:100,gen2:1000 --step-function train_step -- python train.py
  gctrace apply --from trace.json -- python train.py
  gctrace apply --undo -p 4242               take it back in a running program

Settings, joined by commas; @step:N applies one after step N [default: 2], @start at the start:
  threshold=T0[,T1[,T2]]   gc.set_threshold(), at the start
  loading=T0               gc.set_threshold() with this first threshold until the first step
  freeze                   gc.collect(), then gc.freeze()
  disable                  gc.disable()
  plan:N[,gen2:M]          gc.disable(); collect generation 1 every N steps, generation 2 every M
                           [default: 10 N; 0: never, which leaks]

A step is a call of the function of --step-function, else of an optimizer of PyTorch, a backward
pass or a batch of a DataLoader. The exit code is the command's own, or 1 if it succeeded and
nothing was applied. For launchers that start programs elsewhere:
GCTRACE_APPLY=SETTING LD_PRELOAD=/path/to/libgctrace_inject.so";

#[derive(Args, Clone, Debug, PartialEq)]
pub struct ApplyArgs {
    #[command(flatten)]
    pub start: CommandArgs,
    /// Settings to apply, see below
    #[arg(long, value_name = "SETTING", conflicts_with = "from")]
    pub gc: Option<GcSetting>,
    /// Apply the settings of an advice of the report on these traces
    #[arg(long, value_name = "TRACE", num_args = 1..)]
    pub from: Vec<PathBuf>,
    /// Number of the advice, as `gctrace analyze` numbers them [default: the first that changes
    /// only settings]
    #[arg(long, value_name = "N", requires = "from")]
    pub advice: Option<usize>,
    /// Take the settings back in a running program that `gctrace apply` started
    #[arg(long, requires = "pid", conflicts_with_all = ["gc", "from", "command", "output"])]
    pub undo: bool,
    /// With --undo: a process of that program
    #[arg(short, long, value_name = "PID", requires = "undo", value_parser = values::pid)]
    pub pid: Option<u32>,
    #[command(flatten)]
    pub report: OutputArgs<OutputFormat>,
}

impl ApplyArgs {
    /// # Errors
    /// Without `--undo`: settings or the command are missing.
    pub(super) fn check(&self) -> Result<(), clap::Error> {
        let missing = |what: &str| Err(usage_error(ErrorKind::MissingRequiredArgument, what));
        if self.pid.is_some() {
            Ok(())
        } else if self.gc.is_none() && self.from.is_empty() {
            missing(
                "nothing to apply: give settings with --gc (--gc freeze@step:2) \
                 or a trace whose advice is to be followed (--from trace.json)",
            )
        } else if self.start.command.is_empty() {
            missing(
                "nothing to start: give a command after `--` (gctrace apply --gc freeze -- python train.py)",
            )
        } else {
            Ok(())
        }
    }
}
