//! Summaries of traces: durable, and complete wherever they exist.
//!
//! Owns how one gets its name: written aside, stored, renamed. Two processes that write the same
//! summary do not harm each other: both have the same bytes.

use super::existing::ExistingFile;
use super::{FileError, FileFailure, as_invoker, existing, read_head, system};
use crate::invoker::Invoker;
use gctrace_event::summary::is_summary;
use std::fs::File;
use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Creates a directory as the invoker, and its parents.
///
/// # Errors
/// The kernel's.
pub fn create_directory(path: &Path, invoker: &Invoker) -> Result<(), FileError> {
    let create = || Ok(std::fs::create_dir_all(path)?);
    as_invoker(invoker, create).map_err(|failure| failure.of(path, invoker, "-o"))
}

/// The files in a directory with names that end like this, by name; none if it is no directory.
pub fn with_extension(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_one = |path: &PathBuf| matches!(path.extension(), Some(end) if end == extension);
    let mut paths: Vec<PathBuf> = paths.filter(is_one).collect();
    paths.sort();
    paths
}

/// Writes a summary as the invoker. After a crash of the machine, too, it is complete or not there.
/// An existing summary is replaced, any other file is not.
///
/// # Errors
/// The file exists and is no summary, or cannot be written.
pub fn write_summary(path: &Path, invoker: &Invoker, bytes: &[u8]) -> Result<(), FileError> {
    let written = as_invoker(invoker, || {
        let refused = |reason: &str| Err(FileFailure::Refused(reason.to_owned()));
        let is_old = || matches!(read_head(path, HEAD), Some(head) if is_summary(&head));
        match existing::look(path)? {
            ExistingFile::Nothing => {}
            ExistingFile::Stream => return refused("is not a file"),
            ExistingFile::Content if is_old() => {}
            ExistingFile::Content => {
                return refused("exists and is no summary; name another directory");
            }
        }
        let (directory, prefix) = place(path);
        let mut builder: tempfile::Builder<'_, '_> = system::new_file();
        let mut made = builder.prefix(&prefix).tempfile_in(directory)?;
        made.write_all(bytes)?;
        made.as_file().sync_all()?;
        match made.persist(path) {
            // Another process was faster, and has removed this one.
            Err(error) if error.error.kind() == io::ErrorKind::NotFound && path.exists() => {}
            done => drop(done.map_err(|error| error.error)?),
        }
        // Only then is the name durable; a file system that cannot do this has others to ask for it.
        let _ = File::open(directory).and_then(|directory| directory.sync_all());
        remove_leftovers(path);
        Ok(())
    });
    written.map_err(|failure| failure.of(path, invoker, "-o"))
}

/// More than the first bytes of a summary.
const HEAD: u64 = 64;

/// The directory of a summary, and the start of the names of files that are to become this one.
fn place(path: &Path) -> (&Path, String) {
    let name = path.file_name().unwrap_or_default();
    (existing::folder_of(path), format!(".{}-", name.to_string_lossy()))
}

/// Removes, as the invoker, leftovers of killed processes for a complete summary. A process may have been killed
/// between its rename and the removal of other processes' leftovers.
pub fn remove_summary_leftovers(path: &Path, invoker: &Invoker) {
    let _ = as_invoker(invoker, || {
        remove_leftovers(path);
        Ok(())
    });
}

/// Removes leftovers of killed processes for a summary that is complete now. A process that still writes this summary
/// fails to rename its own file; that file is no longer needed.
fn remove_leftovers(path: &Path) {
    let (directory, prefix) = place(path);
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            // A leftover that cannot be removed only takes room.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
