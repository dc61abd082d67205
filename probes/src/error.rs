//! Errors of examining a file.

use crate::elf::Machine;
use std::path::{Path, PathBuf};

/// Why a file could not be examined. A file without Python is not an error.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The file could not be opened or read.
    #[error("cannot read {}: {source}; check with: ls -lL {}", path.display(), path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file starts like an ELF file but is not a valid one.
    #[error("{} is a damaged ELF file ({what}); see what is wrong with: readelf -aW {}", path.display(), path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The part that is invalid.
        what: String,
    },
    /// An interpreter for another machine than the wanted one.
    #[error("{} is built for {machine}; gctrace traces {wanted} programs only", path.display())]
    Architecture {
        /// The file.
        path: PathBuf,
        /// The machine it is built for, for example `aarch64`.
        machine: String,
        /// The machine that it should be built for.
        wanted: Machine,
    },
    /// The file contains a collector, but no search strategy found its functions.
    #[error(
        "{} contains CPython {version}, but its collector was not found ({}); install its debug symbols or see: gctrace doctor --python {}",
        path.display(), tried.join("; "), path.display()
    )]
    NotFound {
        /// The file.
        path: PathBuf,
        /// Its version, as far as could be determined.
        version: String,
        /// The result of each search strategy.
        tried: Vec<String>,
    },
    /// A CPython version that gctrace does not support.
    #[error("{} contains CPython {version}; gctrace supports 3.8 to 3.15", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: String,
    },
}

impl ResolveError {
    /// Makes [`ResolveError::Read`] of the system's error.
    pub(crate) fn read(path: &Path) -> impl Fn(std::io::Error) -> Self + Copy {
        move |source| Self::Read { path: path.to_owned(), source }
    }
}
