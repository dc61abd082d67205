//! The bytes of a file: read on demand, or already in memory.
//!
//! Files are read, not mapped: truncation while reading gives an error, not a signal.

use crate::ResolveError;
use object::{ReadCache, ReadRef};
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// Where an image's bytes come from.
#[derive(Clone, Copy)]
pub(crate) enum ImageData<'data> {
    /// A file; what was read is cached.
    File(&'data ReadCache<File>),
    /// Bytes in memory.
    Memory(&'data [u8]),
}

/// Opens a file, for [`ImageData::File`].
pub(crate) fn open(path: &Path) -> Result<ReadCache<File>, ResolveError> {
    let opened = File::open(path).map_err(ResolveError::read(path))?;
    Ok(ReadCache::new(opened))
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
