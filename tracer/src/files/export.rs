//! Files that are written at once: reports and exports.

use super::existing::ExistingFile;
use super::{FileError, FileFailure, as_invoker, existing, system};
use crate::invoker::Invoker;
use std::io;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes a file as the invoker. An existing file is replaced only with `force`, atomically. The files
/// `made_from` are never replaced.
///
/// # Errors
/// The file exists, or cannot be written.
pub(crate) fn write_export(
    path: &Path,
    invoker: &Invoker,
    made_from: &[PathBuf],
    force: bool,
    content: &(dyn Fn(&mut dyn Write) -> io::Result<()> + Sync),
) -> Result<(), FileError> {
    let written = as_invoker(invoker, || match (existing::look(path)?, force) {
        (ExistingFile::Content, false) => Err(FileFailure::Refused(
            "exists and was not overwritten; --force overwrites it".to_owned(),
        )),
        (ExistingFile::Content, true) if existing::is_among(path, made_from) => {
            Err(FileFailure::Refused("is the trace itself; name another file".to_owned()))
        }
        (ExistingFile::Stream, _) => {
            let mut out = BufWriter::new(system::open(path, false)?);
            content(&mut out)?;
            Ok(out.flush()?)
        }
        (ExistingFile::Content | ExistingFile::Nothing, _) => replace(path, content),
    });
    written.map_err(|failure| failure.of(path, invoker, "-o"))
}

/// Replaces a file atomically, by a temporary file and a rename; a link stays a link.
pub(super) fn replace(
    path: &Path,
    content: &(dyn Fn(&mut dyn Write) -> io::Result<()> + Sync),
) -> Result<(), FileFailure> {
    let place: PathBuf = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = place.parent().filter(|folder| *folder != Path::new(""));
    let mut made = system::new_file().tempfile_in(folder.unwrap_or(Path::new(".")))?;
    let mut out = BufWriter::new(made.as_file_mut());
    content(&mut out)?;
    out.flush()?;
    drop(out);
    made.persist(&place).map_err(|error| error.error)?;
    Ok(())
}
