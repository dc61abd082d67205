//! Destination and form of a report: one pair of options, for all commands that have a report.

use super::CONFIGURABLE;
use super::choices::OutputFormat;
use crate::files::is_stdout;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// The form of a report: a value of `F`, named like the ends of files.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq)]
pub struct FormatArgs<F: ValueEnum + Send + Sync + 'static> {
    /// Format of the report [default: text]
    #[arg(long, group = CONFIGURABLE, value_enum)]
    format: Option<F>,
    /// Old spelling of --format json
    #[arg(long, hide = true, conflicts_with = "format")]
    json: bool,
}

impl<F: ValueEnum + Send + Sync + Default + 'static> FormatArgs<F> {
    /// As requested, else by the name of the file, else text.
    pub fn of(&self, file: Option<&Path>) -> F {
        let end = || file?.extension()?.to_str();
        let name = if self.json { Some("json") } else { end() };
        let named = || F::from_str(name?, false).ok();
        self.format.clone().or_else(named).unwrap_or_default()
    }
}

/// The form of a report, and the file for it.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct OutputArgs<F: ValueEnum + Send + Sync + 'static> {
    #[command(flatten)]
    form: FormatArgs<F>,
    /// File for the report; its end (`.json`, `.md`, `.html`) is the default of the format. An existing file is not
    /// overwritten. `-` is standard output, the default; `apply` and `tune` print text on standard error by default,
    /// and with `-` what the command prints
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(short, long, requires = "output")]
    pub force: bool,
}

impl<F: ValueEnum + Send + Sync + Default + 'static> OutputArgs<F> {
    /// A report of this form in this file.
    pub fn new(format: F, file: PathBuf, force: bool) -> Self {
        let form = FormatArgs { format: Some(format), json: false };
        Self { form, output: Some(file), force }
    }

    /// The file to write; `None`: a standard stream.
    pub fn file(&self) -> Option<&Path> {
        let path = self.output.as_deref()?;
        if is_stdout(path) { None } else { Some(path) }
    }

    /// The format of the report.
    pub fn format(&self) -> F {
        self.form.of(self.file())
    }
}

impl OutputArgs<OutputFormat> {
    /// Whether the report goes to standard output, and the output of the started command does not.
    pub fn is_on_stdout(&self) -> bool {
        match &self.output {
            Some(path) => is_stdout(path),
            None => self.format() == OutputFormat::Json,
        }
    }
}
