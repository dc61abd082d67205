//! `gctrace apply`: starts a command with other settings of the collector, without touching the
//! program.
//!
//! Owns the sequence; `probes/inject/src/python/apply.rs` applies the settings in the programs.
//!
//! - `session`: the library in the command, and the folder of its reports;
//! - `render`: the report of a command;
//! - `agent_folder`: that folder, found by a running program;
//! - `undo`: takes the settings back.

mod agent_folder;
mod render;
mod session;
mod undo;

pub(crate) use agent_folder::AgentFolder;
pub(crate) use session::StartedCommand;
pub(crate) use undo::undo;

use crate::advice::{step_function, wanted};
use crate::args::{ApplyArgs, Verbosity};
use crate::invoker::Invoker;
use crate::record::code_of;
use crate::text::chain;
use crate::{output, print};
use gctrace_settings::ApplyRequest;
use render::CommandReport;

/// Exit code if the command succeeded and none of the settings was applied in it.
const NOTHING_APPLIED: u8 = 1;

/// Applies settings in a command, or takes them back. Returns the exit code, a command's own unless nothing was
/// applied.
///
/// # Errors
/// There is nothing to apply, the library cannot be loaded, the command cannot be started; or the
/// settings cannot be taken back.
pub(crate) fn run(config: &ApplyArgs, verbosity: Verbosity) -> anyhow::Result<u8> {
    match config.pid {
        Some(pid) => undo(pid).map(|()| 0),
        None => apply(config, verbosity),
    }
}

fn apply(config: &ApplyArgs, verbosity: Verbosity) -> anyhow::Result<u8> {
    let request = ApplyRequest::of(wanted(config.gc.as_ref(), &config.from, config.advice)?);
    let function = config.start.step_function().map(str::to_owned);
    let function = function.or_else(|| step_function(&config.from));
    let invoker = Invoker::detect();
    output::check(&config.report)?;
    let StartedCommand { launch, mut supervisor, session } = StartedCommand::start(
        &config.start.command,
        &invoker,
        config.start.as_root,
        config.report.is_on_stdout(),
        &request,
        function.as_deref(),
    )?;
    let ended = supervisor.wait_for_end()?;
    let report = CommandReport::new(&request, &launch.words(), ended, &session);
    let failure = report.failure(&request.setting);
    if let Some(why) = &failure {
        tracing::error!("{why}");
    }
    let say = |lines: &[String]| lines.iter().for_each(print::message);
    let written =
        output::write_of_command(&config.report, verbosity, &report, &report.lines(), say);
    if let Err(error) = written {
        tracing::error!("{}", chain(&error));
    }
    let code = code_of(ended);
    Ok(if code == 0 && failure.is_some() { NOTHING_APPLIED } else { code })
}
