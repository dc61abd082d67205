//! The file of a new trace, and what becomes of the trace that was there.

use super::FileError;
use super::FileFailure;
use super::as_invoker;
use super::existing;
use super::existing::ExistingFile;
use super::is_stdout;
use crate::launch::Invoker;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::path::PathBuf;

/// Added to the name of the trace before, as perf does.
const OLD: &str = ".old";

/// A file for a trace. Until [`NewTrace::keep`] nothing that was there is touched; dropped before, what was made is
/// removed: a command that cannot be started leaves the last trace where it is.
#[derive(Debug)]
pub(crate) struct NewTrace {
    path: PathBuf,
    file: File,
    streams: bool,
    made: Option<CreatedFile>,
}

/// What this call has made.
#[derive(Debug)]
struct CreatedFile {
    invoker: Invoker,
    /// Where it is.
    at: PathBuf,
    /// Where it goes, if a trace is there.
    replaces: Option<PathBuf>,
}

impl NewTrace {
    /// Opens `path` for a trace with the rights of `invoker`, who then owns a new file; `-` is standard output.
    /// `command` is about to be started. `option` named the path.
    ///
    /// # Errors
    /// What cannot be made, and whatever is not a trace of gctrace.
    pub(crate) fn create(
        path: &Path,
        invoker: &Invoker,
        command: &[OsString],
        option: &'static str,
    ) -> Result<Self, FileError> {
        let made = match is_stdout(path) {
            true => to_stdout(path),
            false => as_invoker(invoker, || create(path, invoker, command)),
        };
        made.map_err(|failure| failure.of(path, invoker, option))
    }

    /// Its name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is only appended to, because it is standard output.
    pub(crate) fn streams(&self) -> bool {
        self.streams
    }

    /// The same file, to write to.
    pub(crate) fn writer(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// The trace has begun: one that was there is called `NAME.old` from now on. Where it is called now.
    ///
    /// # Errors
    /// Where names cannot be changed; the new trace is then where it was made.
    pub(crate) fn keep(mut self) -> Result<Option<PathBuf>, FileError> {
        let Some(made) = self.made.take() else {
            return Ok(None);
        };
        let Some(name) = made.replaces else {
            return Ok(None);
        };
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
        let Some(made) = self.made.take() else {
            return;
        };
        // It holds nothing that anybody could miss.
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
    if let Some(word) = existing::named_by_command(path, command) {
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
            (file, Some((at, Some(name))))
        }
        ExistingFile::Nothing => {
            let is_new = std::fs::symlink_metadata(path).is_err();
            let file = existing::open(path, false)?;
            let made = is_new.then(|| (path.to_owned(), None));
            (file, made)
        }
        ExistingFile::Stream => (existing::open(path, false)?, None),
    };
    let found = file.metadata()?;
    if found.is_file() && found.len() > 0 {
        return Err(FileFailure::Refused(
            "was written to just now by another program".to_owned(),
        ));
    }
    if existing::is_own_stream(&file)? {
        return Err(FileFailure::Refused(
            "is where the output goes already; for the trace on standard output: -o -".to_owned(),
        ));
    }
    Ok(NewTrace {
        path: path.to_owned(),
        file,
        streams: false,
        made: made.map(|(at, replaces)| CreatedFile {
            invoker: invoker.clone(),
            at,
            replaces,
        }),
    })
}

/// A new file beside `name`, of another name for now.
fn beside(name: &Path) -> Result<(File, PathBuf), FileFailure> {
    let folder = name.parent().unwrap_or(Path::new("/"));
    let made = tempfile::Builder::new()
        .prefix(".gctrace-")
        .suffix(".new")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(existing::MODE))
        .tempfile_in(folder)?;
    made.keep().map_err(|error| error.error.into())
}

fn check_is_trace(name: &Path) -> Result<(), FileFailure> {
    match is_trace(name)? {
        true => Ok(()),
        false => Err(FileFailure::Refused(
            "exists and is not a trace of gctrace; it was left as it is. Name another file"
                .to_owned(),
        )),
    }
}

/// `NAME.old` is replaced if it is a trace.
fn check_old(old: &Path) -> Result<(), FileFailure> {
    match existing::look(old)? {
        ExistingFile::Nothing => Ok(()),
        ExistingFile::Content if is_trace(old)? => Ok(()),
        _ => Err(FileFailure::Refused(format!(
            "is a trace, and would be kept as {}, which exists and is none; name another file",
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

fn with_old(name: &Path) -> PathBuf {
    let mut old = name.as_os_str().to_owned();
    old.push(OLD);
    PathBuf::from(old)
}

#[cfg(test)]
mod tests;
