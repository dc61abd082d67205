//! Files of others that are read, never written.

use super::system;
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::path::Path;

/// Opens a regular file for reading. A FIFO or a device in its place neither blocks nor is read.
///
/// # Errors
/// It cannot be opened, or is of another kind.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let file = system::open_for_reading(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// The content of a regular file of at most `most` bytes; `None` if it is larger, of another kind
/// or cannot be read.
pub(crate) fn read_small(path: &Path, most: u64) -> Option<Vec<u8>> {
    let bytes = read_head(path, most + 1)?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

/// The first `most` bytes of a regular file; `None` if it is of another kind or cannot be read.
pub(crate) fn read_head(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open_regular(path).ok()?;
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
