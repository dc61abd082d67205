//! Files that belong together in one directory: the tables of an export.
//!
//! Owns that none of them appears before all are complete, and that only gctrace's tables are
//! replaced.

use super::existing::ExistingFile;
use super::{FileError, FileFailure, as_invoker, existing, system};
use crate::invoker::Invoker;
use gctrace_analysis::tables::FORMAT;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// First and last bytes of every Parquet file.
const MAGIC: &[u8] = b"PAR1";
/// Part of the end of a file that is searched for [`FORMAT`]. The key-value metadata is behind the
/// description of all row groups, in front of a few bytes.
const TAIL: u64 = 4_096;

/// New files of one directory, under temporary names. Dropped, they are removed.
pub struct NewTables<'a> {
    invoker: &'a Invoker,
    made: Vec<(PathBuf, NamedTempFile)>,
}

impl<'a> NewTables<'a> {
    /// Creates them as the invoker, and the directory if needed. Existing tables of gctrace are
    /// replaced with `force` only, other files never.
    ///
    /// # Errors
    /// A file of one of the names exists, or one cannot be created.
    pub fn create(
        directory: &Path,
        names: impl Iterator<Item = String>,
        invoker: &'a Invoker,
        force: bool,
    ) -> Result<Self, FileError> {
        let create = || Ok(std::fs::create_dir_all(directory)?);
        as_invoker(invoker, create).map_err(|failure| failure.of(directory, invoker, "-o"))?;
        let mut tables = Self { invoker, made: Vec::new() };
        for name in names {
            let path = directory.join(name);
            let made = as_invoker(invoker, || {
                check(&path, force)?;
                Ok(system::new_file().tempfile_in(directory)?)
            });
            let made = made.map_err(|failure| failure.of(&path, invoker, "-o"))?;
            tables.made.push((path, made));
        }
        Ok(tables)
    }

    /// A handle of each file, in order.
    ///
    /// # Errors
    /// There are no more file descriptors.
    pub fn handles(&self) -> Result<Vec<File>, FileError> {
        let handles = self.made.iter().map(|(path, made)| {
            let handle = made.as_file().try_clone().map_err(FileFailure::from);
            handle.map_err(|failure| failure.of(path, self.invoker, "-o"))
        });
        handles.collect()
    }

    /// Gives the files their names.
    ///
    /// # Errors
    /// The kernel's, for the first file that cannot be renamed.
    pub fn persist(mut self) -> Result<(), FileError> {
        let invoker = self.invoker;
        for (path, made) in std::mem::take(&mut self.made) {
            let persist = || Ok(made.persist(&path).map(drop).map_err(|error| error.error)?);
            as_invoker(invoker, persist).map_err(|failure| failure.of(&path, invoker, "-o"))?;
        }
        Ok(())
    }
}

impl Drop for NewTables<'_> {
    fn drop(&mut self) {
        let made = std::mem::take(&mut self.made);
        // A file that cannot be removed is left: it has gctrace's name, and the error that led here counts.
        let _ = as_invoker(self.invoker, || {
            drop(made);
            Ok(())
        });
    }
}

fn check(path: &Path, force: bool) -> Result<(), FileFailure> {
    let refused = |reason: &str| Err(FileFailure::Refused(reason.to_owned()));
    match existing::look(path)? {
        ExistingFile::Nothing => Ok(()),
        ExistingFile::Stream => refused("is not a file"),
        ExistingFile::Content if !is_table(path)? => {
            refused("exists and is not a table of gctrace; name another directory")
        }
        ExistingFile::Content if !force => {
            refused("exists and was not overwritten; --force overwrites it")
        }
        ExistingFile::Content => Ok(()),
    }
}

/// Whether it is a Parquet file that gctrace wrote.
fn is_table(path: &Path) -> Result<bool, FileFailure> {
    let mut file = system::open_for_reading(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail)?;
    let names = |text: &[u8]| tail.windows(text.len()).any(|part| part == text);
    Ok(tail.ends_with(MAGIC) && names(FORMAT.as_bytes()))
}
