//! What can go wrong while a file is examined.

use std::path::PathBuf;

/// Why a file could not be examined. "This is no Python" is not an error.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The file could not be opened or read.
    #[error("cannot read {}: {source}; check with: ls -lL {}", path.display(), path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file starts as an ELF file and goes on as none.
    #[error("{} is a damaged ELF file ({what}); see what is wrong with: readelf -aW {}", path.display(), path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which part made no sense.
        what: String,
    },
    /// An interpreter for a processor that gctrace does not know.
    #[error("{} is built for {machine}; gctrace traces x86-64 programs only", path.display())]
    Architecture {
        /// The file.
        path: PathBuf,
        /// The machine it is built for, for example `aarch64`.
        machine: String,
    },
    /// A collector is there, but no rung of the ladder found its functions.
    #[error(
        "{} holds a CPython {version}, but its collector was not found ({}); install its debug symbols or see: gctrace doctor --python {}",
        path.display(), tried.join("; "), path.display()
    )]
    NotFound {
        /// The file.
        path: PathBuf,
        /// Its version, as far as known.
        version: String,
        /// What each rung said.
        tried: Vec<String>,
    },
    /// A version of CPython whose collector gctrace does not know.
    #[error("{} holds CPython {version}; gctrace knows 3.8 to 3.15", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: String,
    },
}
