//! Creates all files for the user: traces, flame graphs, manual pages, change logs, a command's
//! output.
//!
//! Owns two rules: only files that gctrace wrote are overwritten, and files are created as the
//! invoking user, so that root does not write through that user's links. No other module creates
//! files (`clippy::disallowed_methods`).

#![expect(clippy::disallowed_methods, reason = "files are created here")]

#[cfg(target_os = "linux")]
pub mod command_output;
#[cfg(target_os = "linux")]
pub mod copy;
mod existing;
mod export;
#[cfg(target_os = "linux")]
pub mod lock;
mod log;
mod manual;
#[cfg(target_os = "linux")]
pub mod name;
pub mod segments;
mod summary;
#[cfg(not(target_os = "linux"))]
#[path = "files/elsewhere.rs"]
mod system;
#[cfg(target_os = "linux")]
#[path = "files/linux.rs"]
mod system;
#[cfg(feature = "parquet")]
mod tables;
#[cfg(target_os = "linux")]
mod trace;

pub use existing::{first_repetition, open_regular, read_head, read_small};
#[cfg(target_os = "linux")]
pub use export::write_beside;
pub use export::write_export;
pub use log::{append_row, check_log};
pub use manual::write_manual_pages;
pub use summary::{create_directory, remove_summary_leftovers, with_extension, write_summary};
#[cfg(feature = "parquet")]
pub use tables::NewTables;
#[cfg(target_os = "linux")]
pub use trace::NewTrace;

use crate::invoker::Invoker;
use std::io;
use std::path::{Path, PathBuf};

/// File name that stands for standard output or standard input.
pub const STANDARD_STREAM: &str = "-";

/// A file could not be created, or must not be.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A system call failed.
    #[error("cannot create {} as {user}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// Login name of the user that it was created as.
        user: String,
        /// Option that sets the file.
        option: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
    /// Creating the file would do harm.
    #[error("{option} {}: {reason}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Option that sets the file.
        option: &'static str,
        /// Reason and remedy.
        reason: String,
    },
}

/// A [`FileError`] without the file's name.
#[derive(Debug)]
enum FileFailure {
    Io(io::Error),
    Refused(String),
}

impl From<io::Error> for FileFailure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl FileFailure {
    fn of(self, path: &Path, invoker: &Invoker, option: &'static str) -> FileError {
        let path = path.to_owned();
        match self {
            Self::Refused(reason) => FileError::Refused { path, option, reason },
            Self::Io(source) => {
                FileError::Create { path, user: invoker.name.clone(), option, source }
            }
        }
    }
}

/// Runs `action` with the invoker's permissions on files.
fn as_invoker<R: Send>(
    invoker: &Invoker,
    action: impl FnOnce() -> Result<R, FileFailure> + Send,
) -> Result<R, FileFailure> {
    crate::invoker::act_as(invoker, action)?
}

/// Whether `path` is `-`: standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new(STANDARD_STREAM)
}
