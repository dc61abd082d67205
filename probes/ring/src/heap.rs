//! How a process reports its full collections, and waits at the end of one for its heap to be taken.
//!
//! A connection for each report: none is left open in a program that may close or inherit it.

use crate::rendezvous::{RingConnection, connect};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// Why a process reports.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Immutable, IntoBytes, KnownLayout, TryFromBytes,
)]
#[repr(u8)]
pub enum HeapState {
    /// An interpreter started, or has made a full collection, and goes on.
    Counts = 1,
    /// It is at the end of the requested collection, and goes on when the connection is closed.
    Waits = 2,
    /// Its build is free-threaded: nothing is counted.
    FreeThreaded = 3,
    /// It has no `gc.callbacks` to count with, or the program removed our entry: nothing is counted
    /// any more.
    Uncounted = 4,
}

/// A process's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes, KnownLayout, TryFromBytes)]
#[repr(C, packed)]
pub struct HeapNotice {
    /// Full collections of the interpreter so far, `gc.get_stats()[2]["collections"]`.
    pub count: u64,
    /// Why it reports.
    pub state: HeapState,
}

/// Starts the message; the digit is the version of its layout.
const GREETING: [u8; 8] = *b"gcheap 1";

#[derive(Immutable, IntoBytes, KnownLayout, TryFromBytes)]
#[repr(C, packed)]
struct HeapMessage {
    greeting: [u8; 8],
    notice: HeapNotice,
}

/// Reports to gctrace. A process that waits returns when gctrace closes the connection or ends, and
/// after `limit` in any case; others at once. System calls only. `false` if no gctrace listens (any
/// more).
#[must_use]
pub fn report_heap(rendezvous: &[u8], notice: HeapNotice, limit: Duration) -> bool {
    let Some(socket) = connect(rendezvous) else {
        return false;
    };
    let message = HeapMessage { greeting: GREETING, notice };
    let bytes = message.as_bytes();
    // SAFETY: the bytes live until the call returns; MSG_NOSIGNAL: no SIGPIPE in the program.
    let sent = unsafe {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags)
    };
    let is_sent = sent == bytes.len() as isize;
    if is_sent && notice.state == HeapState::Waits {
        wait(&socket, Instant::now() + limit);
        // Whatever else has the descriptor by now (a fork of another thread), gctrace sees that
        // nobody waits any more.
        // SAFETY: plain numbers.
        unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
    }
    is_sent
}

/// Until the other end is closed, or the deadline: signals do not end it.
fn wait(socket: &OwnedFd, deadline: Instant) {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up: a poll of 0 ms returns at once.
        let milliseconds = i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        match poll(socket.as_fd(), libc::POLLIN, milliseconds) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && !left.is_zero() => {}
            _ => return,
        }
    }
}

/// The events that have happened to a socket: of `events`, or a hangup.
fn poll(socket: BorrowedFd<'_>, events: i16, milliseconds: i32) -> io::Result<i16> {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    // SAFETY: one valid pollfd.
    match unsafe { libc::poll(&raw mut poll, 1, milliseconds) } {
        0.. => Ok(poll.revents),
        _ => Err(io::Error::last_os_error()),
    }
}

impl RingConnection {
    /// Receives what [`report_heap`] sent; `None`: nothing yet. Never blocks.
    ///
    /// # Errors
    /// Something else was received, or the peer is gone: close it.
    pub fn receive_notice(&self) -> io::Result<Option<HeapNotice>> {
        let mut bytes = [0_u8; size_of::<HeapMessage>()];
        // SAFETY: the bytes are writable.
        let length = unsafe {
            let (socket, flags) = (self.as_fd().as_raw_fd(), libc::MSG_DONTWAIT);
            libc::recv(socket, bytes.as_mut_ptr().cast(), bytes.len(), flags)
        };
        if length < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        match HeapMessage::try_read_from_bytes(&bytes) {
            Ok(HeapMessage { greeting, notice })
                if greeting == GREETING && length == bytes.len() as isize =>
            {
                Ok(Some(notice))
            }
            _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
    }

    /// Whether the peer has closed its end.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let found = poll(self.as_fd(), libc::POLLRDHUP, 0);
        found.is_ok_and(|found| found & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0)
    }
}
