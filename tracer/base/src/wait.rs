//! Waiting for descriptors.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::BorrowedFd;

/// Waits until one of the descriptors is readable or closed at its other end; `false` if none is
/// when the time is over. An interruption by a signal starts the time anew.
///
/// # Errors
/// The kernel's, for example too little memory.
pub fn readable<'a>(
    descriptors: impl IntoIterator<Item = BorrowedFd<'a>>,
    limit: impl Into<PollTimeout>,
) -> io::Result<bool> {
    let wanted = |descriptor| PollFd::new(descriptor, PollFlags::POLLIN);
    let mut descriptors: Vec<PollFd<'_>> = descriptors.into_iter().map(wanted).collect();
    let limit = limit.into();
    loop {
        match poll(&mut descriptors, limit) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
