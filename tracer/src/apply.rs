//! `gctrace apply`: starts a command with other settings of the collector, without touching the
//! program.
//!
//! Owns the sequence; `probes/inject/src/python/apply.rs` applies the settings in the programs.
//!
//! - `session`: the library in the command, and the folder of its reports;
//! - `render`: the report of a command;
//! - `undo`: takes the settings back.

mod render;
mod session;
mod undo;

pub(crate) use session::{ApplySession, StartedCommand};

use crate::args::{ApplyArgs, OutputFormat, Verbosity};
use crate::files::write_export;
use crate::invoker::Invoker;
use crate::launch::CommandEnd;
use crate::record::INTERRUPTED;
use crate::text::chain;
use crate::{analyze, print, render as report_words, setting};
use anyhow::Context as _;
use gctrace_analysis::report::Advice;
use gctrace_settings::{ApplyRequest, GcSetting};
use render::CommandReport;
use std::io;
use std::path::Path;

/// Applies settings in a command, or takes them back. Returns the exit code, a command's own.
///
/// # Errors
/// There is nothing to apply, the library cannot be loaded, the command cannot be started; or the
/// settings cannot be taken back.
pub(crate) fn run(config: &ApplyArgs, verbosity: Verbosity) -> anyhow::Result<u8> {
    match config.pid {
        Some(pid) => undo::undo(pid).map(|()| 0),
        None => apply(config, verbosity),
    }
}

fn apply(config: &ApplyArgs, verbosity: Verbosity) -> anyhow::Result<u8> {
    let request = ApplyRequest::of(wanted(config)?);
    let invoker = Invoker::detect();
    if let Some(path) = output_file(config) {
        anyhow::ensure!(
            config.force || !path.exists(),
            "{} exists and was not overwritten; --force overwrites it",
            path.display()
        );
    }
    let StartedCommand { launch, mut supervisor, session } = StartedCommand::start(
        &config.command,
        &invoker,
        config.as_root,
        config.prints_to_stdout(),
        &request,
        config.step_function(),
    )?;
    let ended = supervisor.wait_for_end()?;
    let report = CommandReport::new(&request, &launch.words(), ended, &session);
    if let Err(error) = write(&report, config, &invoker, verbosity) {
        tracing::error!("{}", chain(&error));
    }
    Ok(ended.map_or(INTERRUPTED, CommandEnd::exit_code))
}

/// The file that the report is written to; `None`: one of the standard streams.
fn output_file(config: &ApplyArgs) -> Option<&Path> {
    let file = config.output.as_deref();
    file.filter(|_| !config.prints_to_stdout())
}

/// The setting of the command line, or that of an advice on the traces.
fn wanted(config: &ApplyArgs) -> anyhow::Result<GcSetting> {
    if let Some(setting) = &config.gc {
        return Ok(setting.clone());
    }
    let traces = &config.from;
    let (mut analysis, _) = analyze::read_all(traces, None)?;
    let advice = report_words::report(&mut analysis).advice;
    let traces: Vec<String> = traces.iter().map(|trace| trace.display().to_string()).collect();
    let traces = traces.join(" ");
    let (number, setting) = match config.advice {
        Some(number) => (number, numbered(&advice, number, &traces)?),
        None => first_applicable(&advice).with_context(|| {
            format!(
                "no advice changes only settings: gctrace analyze {traces} lists all; \
                 gctrace tune -- COMMAND measures settings, --gc names one"
            )
        })?,
    };
    print::message(format!("advice {number} of {traces}: --gc {setting}"));
    Ok(setting)
}

fn settings_of(advice: &Advice) -> Option<GcSetting> {
    advice.effect.settings.as_ref().and_then(setting::of_advice)
}

/// Number and settings of the first advice that changes only settings.
fn first_applicable(advice: &[Advice]) -> Option<(usize, GcSetting)> {
    let mut numbers = (1..).zip(advice);
    numbers.find_map(|(number, one)| Some((number, settings_of(one)?)))
}

/// The settings of the advice of this number, from 1.
fn numbered(advice: &[Advice], number: usize, traces: &str) -> anyhow::Result<GcSetting> {
    let index = number.checked_sub(1);
    let one = index.and_then(|index| advice.get(index));
    let one = one.with_context(|| {
        format!(
            "there is no advice {number} in this report, which has {}: gctrace analyze {traces}",
            advice.len()
        )
    })?;
    settings_of(one).with_context(|| {
        let why = match one.effect.settings.as_ref().map(|settings| settings.disable) {
            Some(true) => "plans collections between steps, and the trace has no steps",
            _ => "changes no setting",
        };
        format!(
            "advice {number} ({}) {why}: gctrace analyze {traces} lists the others; \
             --gc names settings",
            one.action
        )
    })
}

fn write(
    report: &CommandReport,
    config: &ApplyArgs,
    invoker: &Invoker,
    verbosity: Verbosity,
) -> anyhow::Result<()> {
    if let Some(path) = output_file(config) {
        let content = |out: &mut dyn io::Write| match config.format() {
            OutputFormat::Text => print::answer_to(out, &(report.lines().join("\n") + "\n")),
            OutputFormat::Json => report.json(&mut print::JsonEscaper(out)),
        };
        return Ok(write_export(path, invoker, &[], config.force, &content)?);
    }
    if !config.prints_to_stdout() {
        if verbosity > Verbosity::Quiet {
            report.lines().iter().for_each(print::message);
        }
        return Ok(());
    }
    let written = match config.format() {
        OutputFormat::Text => print::answer(&(report.lines().join("\n") + "\n")),
        OutputFormat::Json => print::exactly(|out| report.json(&mut print::JsonEscaper(out))),
    };
    print::unless_closed(written).context("cannot write the report to standard output")
}
