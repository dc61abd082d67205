//! Files that are written at once: reports and exports.

use super::existing::{ExistingFile, folder_of};
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
pub fn write_export(
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

/// As [`write_export`], but always writes: an existing file that `is_ours` is renamed to `NAME.old`, and beside another
/// one the next free name is taken, such as `NAME-2`. Returns the path.
///
/// # Errors
/// It cannot be written.
#[cfg(target_os = "linux")]
pub fn write_beside(
    path: &Path,
    invoker: &Invoker,
    is_ours: impl Fn(&Path) -> bool + Sync,
    content: &(dyn Fn(&mut dyn Write) -> io::Result<()> + Sync),
) -> Result<PathBuf, FileError> {
    let named = as_invoker(invoker, || {
        if path.is_dir() {
            return Ok(free_name(path));
        }
        let ExistingFile::Content = existing::look(path)? else { return Ok(path.to_owned()) };
        let real = std::fs::canonicalize(path)?;
        let old = existing::with_old(&real);
        let is_free = std::fs::symlink_metadata(&old).is_err();
        if is_ours(&real) && (is_free || is_ours(&old)) {
            std::fs::rename(&real, &old)?;
            return Ok(path.to_owned());
        }
        Ok(free_name(path))
    });
    let named = named.map_err(|failure| failure.of(path, invoker, "-o"))?;
    write_export(&named, invoker, &[], false, content)?;
    Ok(named)
}

/// The first of `NAME-2`, `NAME-3`, ... without a file.
#[cfg(target_os = "linux")]
fn free_name(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default();
    let named = |number: u32| {
        let mut name = stem.to_owned();
        name.push(format!("-{number}"));
        if let Some(extension) = path.extension() {
            name.push(".");
            name.push(extension);
        }
        path.with_file_name(name)
    };
    let mut free = (2..u32::MAX).map(named).filter(|name| name.symlink_metadata().is_err());
    free.next().unwrap_or_else(|| path.to_owned())
}

/// Replaces a file atomically, by a temporary file and a rename; a link stays a link.
pub(super) fn replace(
    path: &Path,
    content: &(dyn Fn(&mut dyn Write) -> io::Result<()> + Sync),
) -> Result<(), FileFailure> {
    let place: PathBuf = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut made = system::new_file().tempfile_in(folder_of(&place))?;
    let mut out = BufWriter::new(made.as_file_mut());
    content(&mut out)?;
    out.flush()?;
    drop(out);
    made.persist(&place).map_err(|error| error.error)?;
    Ok(())
}
