//! The file for the output of a command in the live view.

use super::existing::ExistingFile;
use super::{FileError, FileFailure, as_invoker, existing, system};
use crate::invoker::Invoker;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const OPTION: &str = "--output";

/// Mode of temporary files: for their user alone.
const PRIVATE: u32 = 0o600;

/// Opens a file for appending the output of `command`, as the invoker.
///
/// # Errors
/// The file cannot be opened, is a trace, or is named in the command line.
pub fn create_command_output(
    path: &Path,
    invoker: &Invoker,
    command: &[OsString],
) -> Result<File, FileError> {
    let made = as_invoker(invoker, || {
        if let Some(word) = system::named_by_command(path, command) {
            return Err(FileFailure::Refused(format!(
                "the command names this file too ({}); name another one for its output",
                crate::text::shell_line(&[word])
            )));
        }
        if matches!(existing::look(path)?, ExistingFile::Content)
            && super::trace::is_trace(path).unwrap_or(false)
        {
            return Err(FileFailure::Refused(
                "is a trace; output would corrupt it. Name another file".to_owned(),
            ));
        }
        system::open(path, true)
    });
    made.map_err(|failure| failure.of(path, invoker, OPTION))
}

/// A temporary file for the command's output.
#[derive(Debug)]
pub struct TemporaryOutput {
    /// For appending.
    pub written: File,
    /// The same file for reading.
    pub read: File,
    /// Its path, on file systems without files that have no name.
    pub path: Option<PathBuf>,
}

/// Creates a temporary file for the command's output, accessible only to the invoker (mode 0600). It has
/// no name, so that nothing is left of it, whoever is killed.
pub fn create_temporary_output(
    directory: &Path,
    invoker: &Invoker,
) -> Result<TemporaryOutput, FileError> {
    let make = || {
        if let Some(written) = system::unnamed(directory, true, PRIVATE) {
            let read = system::again(&written)?;
            return Ok(TemporaryOutput { written, read, path: None });
        }
        let made = temporary().append(true).tempfile_in(directory)?;
        let (written, path) = made.keep().map_err(|error| error.error)?;
        let read = system::open_for_reading(&path)?;
        Ok(TemporaryOutput { written, read, path: Some(path) })
    };
    as_invoker(invoker, make).map_err(|failure| failure.of(directory, invoker, OPTION))
}

/// Names such a file, for a command that goes on writing to it.
pub fn name_temporary_output(
    file: &File,
    directory: &Path,
    invoker: &Invoker,
) -> io::Result<PathBuf> {
    let name = || {
        let made = temporary().make_in(directory, |path| system::name(file, path))?;
        made.into_temp_path().keep().map_err(|error| error.error)
    };
    crate::invoker::act_as(invoker, name)?
}

fn temporary() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("gctrace-").suffix(".out");
    builder
}

/// Opens the command's output for reading, as the invoker, if it is a regular file and still the one
/// that `written` writes to: root does not read a file that a user has put in its place.
pub fn read_command_output(path: &Path, written: &File, invoker: &Invoker) -> io::Result<File> {
    let open = || system::open_for_reading(path);
    let file = crate::invoker::act_as(invoker, open)??;
    let (ours, found) = (written.metadata()?, file.metadata()?);
    let is_same = (ours.dev(), ours.ino()) == (found.dev(), found.ino());
    if found.is_file() && is_same {
        Ok(file)
    } else {
        Err(io::Error::other("not a regular file, so it is not shown here"))
    }
}

/// Removes a file made by [`create_temporary_output`] that has a path.
pub fn remove_command_output(path: &Path, invoker: &Invoker) -> io::Result<()> {
    crate::invoker::act_as(invoker, || std::fs::remove_file(path))?
}
