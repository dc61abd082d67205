//! Existing files: checked before writing, with the permissions of the user that will write. Files of other users are
//! read, never written.

use super::system::FileId;
use super::{FileFailure, system};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Kind of file at a path, by the loss if it were overwritten.
pub(super) enum ExistingFile {
    /// No file, or an empty one: there is nothing to lose.
    Nothing,
    /// A file with content.
    Content,
    /// A pipe or a character device.
    Stream,
}

/// The folder of a file.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Checks `path`, following links.
///
/// # Errors
/// A block device (never written to), or a failed system call.
pub(super) fn look(path: &Path) -> Result<ExistingFile, FileFailure> {
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ExistingFile::Nothing),
        Err(error) => return Err(error.into()),
    };
    let kind = found.file_type();
    if system::is_disk(kind) {
        return Err(FileFailure::Refused("is a disk; name a file".to_owned()));
    }
    Ok(match (found.is_file(), found.len()) {
        (true, 0) => ExistingFile::Nothing,
        (true, _) => ExistingFile::Content,
        (false, _) => ExistingFile::Stream,
    })
}

/// Suffix for the previous file, as in perf.
const OLD: &str = ".old";

/// `NAME.old`.
pub(super) fn with_old(name: &Path) -> PathBuf {
    let mut old = name.as_os_str().to_owned();
    old.push(OLD);
    PathBuf::from(old)
}

/// Whether `path` refers to one of these files.
pub(super) fn is_among(path: &Path, files: &[PathBuf]) -> bool {
    let place = OutputPath::of(path);
    files.iter().any(|file| OutputPath::of(file).is(&place))
}

/// The first name of an existing file that was named before, and the name before.
pub fn first_repetition(names: &[PathBuf]) -> Option<(&Path, &Path)> {
    let mut files = HashMap::new();
    names.iter().find_map(|name| {
        let before = files.insert(system::file_id(name)?, name)?;
        Some((name.as_path(), before.as_path()))
    })
}

/// A resolved path, for comparisons.
pub(super) struct OutputPath {
    found: Option<FileId>,
    /// Canonical path; if the file does not exist, the canonical parent and the name.
    path: PathBuf,
}

impl OutputPath {
    pub(super) fn of(path: &Path) -> Self {
        let whole = std::fs::canonicalize(path).ok();
        let parent = || {
            let parent = std::fs::canonicalize(folder_of(path)).ok()?;
            Some(parent.join(path.file_name()?))
        };
        Self {
            found: system::file_id(path),
            path: whole.or_else(parent).unwrap_or_else(|| path.to_owned()),
        }
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        match (&self.found, &other.found) {
            (Some(a), Some(b)) => a == b,
            (None, None) => self.path == other.path,
            _ => false,
        }
    }
}

/// Opens a regular file for reading. A FIFO or a device in its place neither blocks nor is read.
///
/// # Errors
/// It cannot be opened, or is of another kind.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let other = || io::Error::other("it is not a regular file");
    // Some devices do something when they are opened.
    if !std::fs::metadata(path)?.is_file() {
        return Err(other());
    }
    let file = system::open_for_reading(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(other()) }
}

/// The content of a regular file of at most `most` bytes; `None` if it is larger, of another kind
/// or cannot be read.
pub fn read_small(path: &Path, most: u64) -> Option<Vec<u8>> {
    let bytes = read_head(path, most + 1)?;
    if bytes.len() as u64 <= most { Some(bytes) } else { None }
}

/// The first `most` bytes of a regular file; `None` if it is of another kind or cannot be read.
pub fn read_head(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open_regular(path).ok()?;
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
