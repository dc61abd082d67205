//! A command that `apply`, `auto` and `tune` start, and its training steps.

use super::CONFIGURABLE;
use clap::Args;
use std::ffi::OsString;

#[derive(Args, Clone, Debug, PartialEq)]
pub struct CommandArgs {
    /// Command to start, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// Count calls of this function as steps: train_step, Trainer.step or train.py:train_step
    #[arg(long, group = CONFIGURABLE, value_name = "NAME")]
    step_function: Option<String>,
    /// Under sudo: run the command as root instead of the invoking user
    #[arg(long)]
    pub as_root: bool,
}

impl CommandArgs {
    /// The function that runs once per step.
    pub fn step_function(&self) -> Option<&str> {
        let name = self.step_function.as_deref()?;
        if name.is_empty() { None } else { Some(name) }
    }
}
