//! The bytes of a file: read on demand, or already in memory.
//!
//! Files are read, not mapped: truncation while reading gives an error, not a signal. Owns how many bytes of a file are
//! kept in memory: maybe far more than its disk blocks.

use super::LARGEST_PART;
use crate::ResolveError;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use object::{ReadCache, ReadRef};
use std::fs::File;
use std::io;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

/// Where an image's bytes come from.
#[derive(Clone, Copy)]
pub(crate) enum ImageData<'data> {
    /// A file; the bytes read are cached.
    File(&'data ReadCache<FileBytes>),
    /// Bytes in memory.
    Memory(&'data [u8]),
}

/// Opens a file, for [`ImageData::File`].
pub(crate) fn open(path: &Path) -> Result<ReadCache<FileBytes>, ResolveError> {
    let file = open_file(path).map_err(ResolveError::read(path))?;
    Ok(FileBytes::cached(file))
}

/// Opens a regular file: whatever else a process has put into its root folder neither blocks nor is
/// read.
///
/// # Errors
/// It cannot be opened, or is of another kind.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::from(nix::fcntl::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

/// A file; at most [`LARGEST_PART`] bytes of it are read, in all: its sections may overlap, and be larger than the file
/// on disk.
#[derive(Debug)]
pub(crate) struct FileBytes {
    file: File,
    left: u64,
}

impl FileBytes {
    pub(crate) fn cached(file: File) -> ReadCache<Self> {
        let left = LARGEST_PART;
        ReadCache::new(Self { file, left })
    }
}

impl Read for FileBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        let left = self.left.checked_sub(read as u64);
        self.left = left.ok_or_else(|| io::Error::other("too large"))?;
        Ok(read)
    }
}

impl Seek for FileBytes {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl<'data> ReadRef<'data> for ImageData<'data> {
    fn len(self) -> Result<u64, ()> {
        match self {
            Self::File(cache) => cache.len(),
            Self::Memory(bytes) => bytes.len().try_into().map_err(|_| ()),
        }
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        match self {
            Self::File(cache) => cache.read_bytes_at(offset, size),
            Self::Memory(bytes) => bytes.read_bytes_at(offset, size),
        }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'data [u8], ()> {
        match self {
            Self::File(cache) => cache.read_bytes_at_until(range, delimiter),
            Self::Memory(bytes) => bytes.read_bytes_at_until(range, delimiter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// Parts that overlap are read again and again: the sum counts.
    #[test]
    fn no_more_of_a_file_is_read_than_may_be() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 1000]).unwrap();
        let cache = ReadCache::new(FileBytes { file, left: 2500 });
        let data = ImageData::File(&cache);
        let sizes = (0..10).map(|start| data.read_bytes_at(start, 900).map(<[u8]>::len));
        assert_eq!(sizes.filter(|size| *size == Ok(900)).count(), 2);
    }
}
