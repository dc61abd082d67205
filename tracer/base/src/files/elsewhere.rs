//! Files by the standard library alone.

use super::FileFailure;
use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The canonical path.
pub(super) type FileId = PathBuf;

/// The identity of an existing file, following links. Two hard links count as two files.
pub(super) fn file_id(path: &Path) -> Option<FileId> {
    std::fs::canonicalize(path).ok()
}

/// Disks have no path among files that a user would name.
pub(super) fn is_disk(_: FileType) -> bool {
    false
}

/// A temporary file that becomes one of the user's.
pub(super) fn new_file() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".gctrace-");
    builder
}

/// Opens a file for reading.
pub(super) fn open_for_reading(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Opens a file for writing or, with `append`, for appending; creates it if needed.
pub(super) fn open(path: &Path, append: bool) -> Result<File, FileFailure> {
    let mut options = OpenOptions::new();
    Ok(options.write(true).append(append).create(true).open(path)?)
}
