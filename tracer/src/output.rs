//! Where a report goes: to the file that the command line names, to standard output or to standard error.
//!
//! Content comes as it is to be written: text is escaped before ([`print::clean`]), JSON by [`print::json`].

use crate::args::{OutputArgs, OutputFormat, Verbosity};
use crate::files::write_export;
use crate::invoker::Invoker;
use crate::print;
use crate::print::clean;
use clap::ValueEnum;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes a report to its file, or prints it. The file is never one of `made_from`.
///
/// # Errors
/// The file exists, or the report cannot be written.
pub(crate) fn write<F: ValueEnum + Send + Sync + Default + 'static>(
    to: &OutputArgs<F>,
    made_from: &[PathBuf],
    content: &str,
) -> anyhow::Result<()> {
    match to.file() {
        Some(path) => write_file(path, made_from, to.force, content),
        None => print::exact_answer(content),
    }
}

/// Writes a file at once, as the invoker. An existing one is replaced only with `force`, and never one of `made_from`.
///
/// # Errors
/// The file exists, or cannot be written.
pub(crate) fn write_file(
    path: &Path,
    made_from: &[PathBuf],
    force: bool,
    content: &str,
) -> anyhow::Result<()> {
    let content = |out: &mut dyn Write| out.write_all(content.as_bytes());
    Ok(write_export(path, &Invoker::detect(), made_from, force, &content)?)
}

/// Writes the report of a command that gctrace started: as lines on standard error, printed by `say`, unless a file,
/// standard output or JSON was asked for.
///
/// # Errors
/// As of [`write()`].
pub(crate) fn write_of_command(
    to: &OutputArgs<OutputFormat>,
    verbosity: Verbosity,
    report: &impl Serialize,
    lines: &[String],
    say: impl FnOnce(&[String]),
) -> anyhow::Result<()> {
    if to.file().is_none() && !to.is_on_stdout() {
        if verbosity > Verbosity::Quiet {
            say(lines);
        }
        return Ok(());
    }
    let content = match to.format() {
        OutputFormat::Text => clean::lines(&(lines.join("\n") + "\n")),
        OutputFormat::Json => print::json(report)?,
    };
    write(to, &[], &content)
}

/// Before a command runs for a report.
///
/// # Errors
/// The file of the report exists, and is not to be overwritten.
pub(crate) fn check(to: &OutputArgs<OutputFormat>) -> anyhow::Result<()> {
    if let Some(path) = to.file() {
        anyhow::ensure!(
            to.force || !path.exists(),
            "{} exists and was not overwritten; --force overwrites it",
            path.display()
        );
    }
    Ok(())
}
