//! `gctrace tune`: measures which settings of the collector are the fastest.
//!
//! Owns the decisions: blocks of steps of one run, or whole runs; when to stop measuring; and that
//! the command is left alone.
//!
//! - `search`: settings that are sought within a run, as `gctrace auto` does;
//! - `blocks`: settings that take turns within one run, by the controller of `gctrace auto`;
//! - `runs`: whole runs with one setting each, by the agent of `gctrace apply`;
//! - `candidates`: which settings such runs try, from the first one;
//! - `progress`: the bar on the terminal;
//! - `render`: the result.

mod blocks;
mod candidates;
mod progress;
mod render;
mod runs;
mod search;

use crate::apply::StartedCommand;
use crate::args::{OutputFormat, TuneArgs, Verbosity};
use crate::auto::SearchRequest;
use crate::files::write_export;
use crate::invoker::Invoker;
use crate::launch::CommandEnd;
use crate::print;
use crate::record::INTERRUPTED;
use crate::text::shell_line;
use anyhow::Context as _;
use gctrace_analysis::tune::TuneReport;
use gctrace_settings::{AutoOptions, GcSetting};
use nix::sys::signal::Signal;
use search::SearchedRun;
use std::io;
use std::io::Write as _;
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

/// What both ways to measure need.
struct Tuner<'a> {
    config: &'a TuneArgs,
    verbosity: Verbosity,
    invoker: Invoker,
    started: Instant,
}

impl<'a> Tuner<'a> {
    fn new(config: &'a TuneArgs, verbosity: Verbosity) -> anyhow::Result<Self> {
        let tuner = Self { config, verbosity, invoker: Invoker::detect(), started: Instant::now() };
        if let Some(path) = config.report.file() {
            anyhow::ensure!(
                config.report.force || !path.exists(),
                "{} exists and was not overwritten; --force overwrites it",
                path.display()
            );
        }
        Ok(tuner)
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

    /// Prints or writes the report. A failure is reported: the command's exit code is what counts.
    fn print(&self, mut report: TuneReport) {
        let guessed = || report.guessed_gain().map(|(setting, _)| setting.setting.clone());
        let best = report.best.clone().or_else(guessed);
        report.apply = best.map(|best| self.apply_line(&best));
        if let Err(error) = self.try_print(&report) {
            tracing::error!("{}", crate::text::chain(&error));
        }
    }

    fn try_print(&self, report: &TuneReport) -> anyhow::Result<()> {
        self.write(report, &render::lines(report))
    }

    fn write(
        &self,
        report: &(impl serde::Serialize + Sync),
        lines: &[String],
    ) -> anyhow::Result<()> {
        let json = |out: &mut dyn io::Write| -> io::Result<()> {
            let mut out = print::JsonEscaper(out);
            serde_json::to_writer_pretty(&mut out, report)?;
            out.write_all(b"\n")
        };
        let text = lines.join("\n") + "\n";
        let is_json = self.config.report.format() == OutputFormat::Json;
        if let Some(path) = self.config.report.file() {
            let content = |out: &mut dyn io::Write| {
                if is_json { json(out) } else { print::answer_to(out, &text) }
            };
            write_export(path, &self.invoker, &[], self.config.report.force, &content)?;
            return Ok(());
        }
        if !self.config.report.is_on_stdout() {
            if self.verbosity > Verbosity::Quiet {
                print::lines(&text);
            }
            return Ok(());
        }
        let written = if is_json { print::exactly(json) } else { print::answer(&text) };
        print::unless_closed(written).context("cannot write the report to standard output")
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
        Ok(ended.map_or(INTERRUPTED, CommandEnd::exit_code))
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
