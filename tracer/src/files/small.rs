//! Small files of others that are read, never written.

use super::system;
use std::io::Read as _;
use std::path::Path;

/// The content of a regular file of at most `most` bytes; `None` if it is larger, of another kind
/// or cannot be read. A FIFO in its place does not block.
pub(crate) fn read_small(path: &Path, most: u64) -> Option<Vec<u8>> {
    let bytes = read_head(path, most + 1)?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

/// The first `most` bytes of a regular file; `None` if it is of another kind or cannot be read.
pub(crate) fn read_head(path: &Path, most: u64) -> Option<Vec<u8>> {
    let file = system::open_for_reading(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
