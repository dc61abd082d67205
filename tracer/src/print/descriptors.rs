//! Duplicates of the standard streams.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

/// Duplicates standard output, for the view, which bypasses `print.rs`.
///
/// # Errors
/// Too many open files.
pub(crate) fn output_descriptor() -> io::Result<OwnedFd> {
    io::stdout().as_fd().try_clone_to_owned()
}

/// Duplicates standard error, for the command.
///
/// # Errors
/// Too many open files.
pub(crate) fn error_descriptor() -> io::Result<OwnedFd> {
    io::stderr().as_fd().try_clone_to_owned()
}
