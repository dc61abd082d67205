//! `gctrace tune`: finds the fastest settings of the collector by measurement.
//!
//! Owns the decisions: blocks of steps of one run, or whole runs; when to stop measuring; and that
//! the command is left alone.
//!
//! - `search`: settings that are sought within a run, as `gctrace auto` does;
//! - `blocks`: settings that take turns within one run, by the controller of `gctrace auto`;
//! - `runs`: whole runs with one setting each, by the agent of `gctrace apply`;
//! - `candidates`: the settings that such runs try, from the first one;
//! - `progress`: the bar on the terminal;
//! - `render`: the result.

mod blocks;
mod candidates;
mod progress;
mod render;
mod runs;
mod search;

use crate::apply::StartedCommand;
use crate::args::{TuneArgs, Verbosity};
use crate::auto::SearchRequest;
use crate::invoker::Invoker;
use crate::record::code_of;
use crate::text::{chain, shell_line};
use crate::{output, print};
use anyhow::Context as _;
use gctrace_analysis::tune::TuneReport;
use gctrace_settings::{AutoOptions, GcSetting};
use nix::sys::signal::Signal;
use search::SearchedRun;
use std::time::Instant;

/// Measures the settings and prints the result. Returns the exit code of a command that failed,
/// otherwise 0.
///
/// # Errors
/// The library cannot be loaded, the command cannot be started, or the output file exists.
pub(crate) fn run(config: &TuneArgs, verbosity: Verbosity) -> anyhow::Result<u8> {
    let tuner = Tuner::new(config, verbosity)?;
    match (config.settings.is_empty(), config.runs) {
        (false, _) if config.takes_turns() => blocks::measure(&tuner),
        (false, _) => runs::compare_named(&tuner),
        (true, true) => runs::seek(&tuner, None),
        (true, false) => match search::measure(&tuner)? {
            SearchedRun::Done(code) => Ok(code),
            SearchedRun::Ended(run) => runs::seek(&tuner, run.map(|run| *run)),
        },
    }
}

/// The common needs of both ways to measure.
struct Tuner<'a> {
    config: &'a TuneArgs,
    verbosity: Verbosity,
    invoker: Invoker,
    started: Instant,
}

impl<'a> Tuner<'a> {
    fn new(config: &'a TuneArgs, verbosity: Verbosity) -> anyhow::Result<Self> {
        output::check(&config.report)?;
        Ok(Self { config, verbosity, invoker: Invoker::detect(), started: Instant::now() })
    }

    /// The settings, as they are named in reports.
    fn names(&self) -> Vec<String> {
        self.config.settings.iter().map(GcSetting::to_string).collect()
    }

    fn search(&self, options: AutoOptions) -> SearchRequest<'_> {
        SearchRequest {
            command: &self.config.start.command,
            as_root: self.config.start.as_root,
            answers_on_stdout: self.config.report.is_on_stdout(),
            options,
            step_function: self.config.start.step_function(),
        }
    }

    fn is_over_budget(&self) -> bool {
        self.started.elapsed() >= self.config.budget
    }

    /// Prints or writes the report. A failure is reported: only the command's exit code counts.
    fn print(&self, mut report: TuneReport) {
        let guessed = || report.guessed_gain().map(|(setting, _)| setting.setting.clone());
        let best = report.best.clone().or_else(guessed);
        report.apply = best.map(|best| self.apply_line(&best));
        self.write(&report, &render::lines(&report));
    }

    fn write(&self, report: &impl serde::Serialize, lines: &[String]) {
        let say = |lines: &[String]| print::lines(&(lines.join("\n") + "\n"));
        let to = &self.config.report;
        if let Err(error) = output::write_of_command(to, self.verbosity, report, lines, say) {
            tracing::error!("{}", chain(&error));
        }
    }

    /// The result is known while the command runs: leaves it to itself.
    fn go_on(&self, mut command: StartedCommand) -> anyhow::Result<u8> {
        if let Err(error) = command.session.take_back() {
            tracing::warn!("the settings stay in the command: {error}");
        }
        if self.config.stop
            && let Some(running) = command.supervisor.command()
        {
            running.send(Signal::SIGINT).context("cannot interrupt the command")?;
            // It ends because gctrace asked it to.
            command.supervisor.wait_for_end()?;
            return Ok(0);
        }
        print::message(
            "the command goes on with its own settings of the collector (--stop would interrupt it)",
        );
        let ended = command.supervisor.wait_for_end()?;
        Ok(code_of(ended))
    }

    /// The command that runs the program with this setting.
    fn apply_line(&self, setting: &str) -> String {
        let mut words: Vec<std::ffi::OsString> =
            ["gctrace", "apply", "--gc", setting].map(Into::into).to_vec();
        if let Some(name) = self.config.start.step_function() {
            words.extend(["--step-function".into(), name.into()]);
        }
        words.push("--".into());
        words.extend(self.config.start.command.iter().cloned());
        shell_line(&words)
    }
}
