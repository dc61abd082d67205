//! The file of a new trace, and the backup of the previous one.

use super::existing::{ExistingFile, folder_of, with_old};
use super::{FileError, FileFailure, as_invoker, existing, is_stdout, system};
use crate::invoker::Invoker;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Another gctrace, or something else, has the file.
const IN_USE: &str = "is being written by another program";

/// A file for a trace. It has no name until it has a header ([`NewTrace::appear`]): gctrace may be
/// killed at any time. Until [`NewTrace::keep`], existing files are untouched; if dropped before, the
/// new file is removed, so that a command that cannot be started leaves the previous trace in place.
#[derive(Debug)]
pub struct NewTrace {
    path: PathBuf,
    file: File,
    streams: bool,
    made: Option<CreatedFile>,
}

/// The file that was created.
#[derive(Debug)]
struct CreatedFile {
    invoker: Invoker,
    /// Current path, or the path to be.
    at: PathBuf,
    is_unnamed: bool,
    /// Final path, if a trace exists there.
    replaces: Option<PathBuf>,
}

impl NewTrace {
    /// Opens `path` for a trace as `invoker`, who then owns a new file; `-` is standard output.
    /// `command` is the command to be started, `option` the option that set the path.
    ///
    /// # Errors
    /// The file cannot be created, or exists and is not a trace of gctrace.
    pub fn create(
        path: &Path,
        invoker: &Invoker,
        command: &[OsString],
        option: &'static str,
    ) -> Result<Self, FileError> {
        let made = if is_stdout(path) {
            to_stdout(path)
        } else {
            as_invoker(invoker, || create(path, invoker, command))
        };
        made.map_err(|failure| failure.of(path, invoker, option))
    }

    /// The path as requested, even while the trace still has a temporary name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the trace goes to standard output; it can only be appended to.
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// Another descriptor of the same open file, for writing; both share the file position.
    pub fn writer(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// The trace has its first line, and can be found from now on.
    ///
    /// # Errors
    /// The file cannot get its name: another program has created one of that name.
    pub fn appear(&mut self, option: &'static str) -> Result<(), FileError> {
        let Some(made) = self.made.as_mut().filter(|made| made.is_unnamed) else { return Ok(()) };
        let named = as_invoker(&made.invoker, || match system::name(&self.file, &made.at) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(FileFailure::Refused(IN_USE.to_owned()))
            }
            named => Ok(named?),
        });
        made.is_unnamed = false;
        named.map_err(|failure| failure.of(&self.path, &made.invoker, option))
    }

    /// Puts the new trace in place, and renames a previous one to `NAME.old`. Returns that path, if
    /// any.
    ///
    /// # Errors
    /// A rename failed; the new trace then stays at its temporary path.
    pub fn keep(mut self) -> Result<Option<PathBuf>, FileError> {
        self.appear("-o")?;
        let Some(made) = self.made.take() else { return Ok(None) };
        let Some(name) = made.replaces else { return Ok(None) };
        let old = with_old(&name);
        let renamed = as_invoker(&made.invoker, || {
            std::fs::rename(&name, &old)?;
            Ok(std::fs::rename(&made.at, &name)?)
        });
        match renamed {
            Ok(()) => Ok(Some(old)),
            Err(failure) => Err(failure.of(&made.at, &made.invoker, "-o")),
        }
    }
}

impl Drop for NewTrace {
    fn drop(&mut self) {
        let Some(made) = self.made.take() else { return };
        // The new file has no content that could be lost.
        let _ = as_invoker(&made.invoker, || {
            let (ours, found) = (self.file.metadata()?, std::fs::symlink_metadata(&made.at)?);
            if (ours.dev(), ours.ino()) == (found.dev(), found.ino()) {
                std::fs::remove_file(&made.at)?;
            }
            Ok(())
        });
    }
}

fn to_stdout(path: &Path) -> Result<NewTrace, FileFailure> {
    if crate::print::on_terminal() {
        return Err(FileFailure::Refused(
            "standard output is a terminal: send the trace elsewhere (gctrace -o - ... > trace.json)"
                .to_owned(),
        ));
    }
    Ok(NewTrace {
        path: path.to_owned(),
        file: File::from(crate::print::output_descriptor()?),
        streams: true,
        made: None,
    })
}

fn create(path: &Path, invoker: &Invoker, command: &[OsString]) -> Result<NewTrace, FileFailure> {
    if let Some(word) = system::named_by_command(path, command) {
        return Err(FileFailure::Refused(format!(
            "the command names this file too ({}); give the trace another name",
            crate::text::shell_line(&[word])
        )));
    }
    let found = existing::look(path)?;
    let (file, made) = match found {
        ExistingFile::Content => {
            let name = std::fs::canonicalize(path)?;
            check_is_trace(&name)?;
            check_old(&with_old(&name))?;
            let (file, at) = beside(&name)?;
            (file, Some((at, Some(name), false)))
        }
        ExistingFile::Nothing => {
            let is_new = std::fs::symlink_metadata(path).is_err();
            let folder = folder_of(path);
            let unnamed = if is_new { system::unnamed(folder, false, system::MODE) } else { None };
            let made = if is_new { Some((path.to_owned(), None, unnamed.is_some())) } else { None };
            let file = match unnamed {
                Some(file) => file,
                None => system::open(path, false)?,
            };
            (file, made)
        }
        ExistingFile::Stream => (system::open(path, false)?, None),
    };
    let found = file.metadata()?;
    if found.is_file() && found.len() > 0 {
        return Err(FileFailure::Refused(IN_USE.to_owned()));
    }
    if system::is_own_stream(&file)? {
        return Err(FileFailure::Refused(
            "is already open as standard input, output or error; to write the trace to standard output: -o -".to_owned(),
        ));
    }
    Ok(NewTrace {
        path: path.to_owned(),
        file,
        streams: false,
        made: made.map(|(at, replaces, is_unnamed)| CreatedFile {
            invoker: invoker.clone(),
            at,
            is_unnamed,
            replaces,
        }),
    })
}

/// Creates a temporary file in the directory of `name`.
fn beside(name: &Path) -> Result<(File, PathBuf), FileFailure> {
    let made = system::new_file().suffix(".new").tempfile_in(folder_of(name))?;
    made.keep().map_err(|error| error.error.into())
}

fn check_is_trace(name: &Path) -> Result<(), FileFailure> {
    if is_trace(name)? {
        Ok(())
    } else {
        Err(FileFailure::Refused(
            "exists and is not a trace of gctrace, so it was not overwritten. Name another file"
                .to_owned(),
        ))
    }
}

/// Checks that `NAME.old` may be replaced: only if it is a trace.
fn check_old(old: &Path) -> Result<(), FileFailure> {
    match existing::look(old)? {
        ExistingFile::Nothing => Ok(()),
        ExistingFile::Content if is_trace(old)? => Ok(()),
        _ => Err(FileFailure::Refused(format!(
            "is a trace, and its backup {} exists but is not a trace; name another file",
            old.display()
        ))),
    }
}

pub(super) fn is_trace(path: &Path) -> Result<bool, FileFailure> {
    let name = path.display().to_string();
    let file = File::open(path)?;
    gctrace_event::read::is_gctrace(&name, file)
        .map_err(|error| FileFailure::Io(io::Error::other(error)))
}

#[cfg(test)]
mod tests;
