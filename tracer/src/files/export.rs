//! A file that is written once and whole: what `gctrace export` makes.

use super::FileError;
use super::FileFailure;
use super::as_invoker;
use super::existing;
use super::existing::ExistingFile;
use crate::launch::Invoker;
use std::io;
use std::io::BufWriter;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;

/// Writes a file with the rights of the invoker. What is there already is left alone, unless `force` allows to
/// replace it: then it is there until the new one is complete. One of the files `made_from` is never replaced.
///
/// # Errors
/// Where a file is there, or none can be written.
pub(crate) fn write_export(
    path: &Path,
    invoker: &Invoker,
    made_from: &[PathBuf],
    force: bool,
    content: &(dyn Fn(&mut dyn Write) -> io::Result<()> + Sync),
) -> Result<(), FileError> {
    let written = as_invoker(invoker, || match (existing::look(path)?, force) {
        (ExistingFile::Content, false) => Err(FileFailure::Refused(
            "exists, and is left as it is; --force replaces it".to_owned(),
        )),
        (ExistingFile::Content, true) if existing::is_among(path, made_from) => Err(
            FileFailure::Refused("is the trace itself; name another file".to_owned()),
        ),
        (ExistingFile::Stream, _) => {
            let mut out = BufWriter::new(existing::open(path, false)?);
            content(&mut out)?;
            Ok(out.flush()?)
        }
        (ExistingFile::Content | ExistingFile::Nothing, _) => replace(path, content),
    });
    written.map_err(|failure| failure.of(path, invoker, "-o"))
}

/// Writes beside it, then takes its place; a link stays a link.
pub(super) fn replace(
    path: &Path,
    content: &(dyn Fn(&mut dyn Write) -> io::Result<()> + Sync),
) -> Result<(), FileFailure> {
    let place: PathBuf = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = place.parent().filter(|folder| *folder != Path::new(""));
    let mut made = tempfile::Builder::new()
        .prefix(".gctrace-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(existing::MODE))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    let mut out = BufWriter::new(made.as_file_mut());
    content(&mut out)?;
    out.flush()?;
    drop(out);
    made.persist(&place).map_err(|error| error.error)?;
    Ok(())
}
