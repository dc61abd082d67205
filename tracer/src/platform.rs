//! What gctrace asks of the system itself, on Linux; `platform/elsewhere.rs` has the stand-ins of other
//! systems, which analyze traces, but record none.
//!
//! The floor of this crate: it knows no other module.

use nix::poll::{PollFd, PollFlags};
use std::os::fd::AsFd;

/// Whether this process has privileges that its user lacks, by file capabilities or a setuid file
/// (`AT_SECURE`, getauxval(3)).
pub(crate) fn has_more_rights_than_its_user() -> bool {
    // SAFETY: reads a number from the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether a write of at most a page to `output` will not block; waits this long for it.
pub(crate) fn is_writable_within(output: &impl AsFd, limit_ms: u16) -> bool {
    let mut room = [PollFd::new(output.as_fd(), PollFlags::POLLOUT)];
    nix::poll::poll(&mut room, limit_ms) != Ok(0)
}
