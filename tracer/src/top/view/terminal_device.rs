//! The terminal device: size, mode, input and output.
//!
//! Reopened in nonblocking mode, so that a stuck terminal does not block gctrace and the descriptors shared with the
//! shell stay unchanged. Independent of the contents written.

use crate::print;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::sys::termios;
use nix::sys::termios::{SetArg, Termios};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use terminal_size::{Height, Width, terminal_size_of};

/// Result of waiting for the terminal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TermEvent {
    /// Timeout.
    Nothing,
    /// Input.
    Bytes(Vec<u8>),
    /// The `wake` descriptor is readable.
    Wake,
    /// The terminal is gone.
    Gone,
}

/// The terminal on standard output, for input and output.
#[derive(Debug)]
pub(crate) struct TerminalDevice {
    descriptor: OwnedFd,
}

impl TerminalDevice {
    /// Opens the terminal by its descriptor; if that is not permitted (after `su`), as the controlling terminal; if
    /// there is none (`su -c`), uses the descriptor itself: it may block while the terminal does not read.
    pub(crate) fn open() -> io::Result<Self> {
        if !print::on_terminal() {
            return Err(Errno::ENOTTY.into());
        }
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let descriptor = open("/proc/self/fd/1", flags, Mode::empty())
            .or_else(|_| open("/dev/tty", flags, Mode::empty()))
            .or_else(|errno| inherited().ok_or(errno))?;
        Ok(Self { descriptor })
    }

    /// Uses an open terminal, for tests.
    #[cfg(test)]
    pub(crate) fn of(descriptor: OwnedFd) -> io::Result<Self> {
        let flags = OFlag::from_bits_retain(nix::fcntl::fcntl(&descriptor, FcntlArg::F_GETFL)?);
        nix::fcntl::fcntl(&descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Self { descriptor })
    }

    /// Duplicates the descriptor: both refer to the same terminal and mode.
    pub(crate) fn duplicate(&self) -> io::Result<Self> {
        Ok(Self { descriptor: self.descriptor.try_clone()? })
    }

    /// Columns and lines; `None` if unknown.
    pub(crate) fn size(&self) -> Option<(u16, u16)> {
        let (Width(columns), Height(lines)) = terminal_size_of(&self.descriptor)?;
        Some((columns, lines))
    }

    /// The current terminal mode (tcgetattr(3)), to be restored later.
    pub(crate) fn mode(&self) -> io::Result<Termios> {
        Ok(termios::tcgetattr(&self.descriptor)?)
    }

    /// Sets the terminal mode at once, without waiting for output or dropping input.
    pub(crate) fn set_mode(&self, mode: &Termios) -> io::Result<()> {
        Ok(termios::tcsetattr(&self.descriptor, SetArg::TCSANOW, mode)?)
    }

    /// Waits for input, for `wake`, or until `limit` has passed.
    pub(crate) fn wait(&self, wake: BorrowedFd<'_>, limit: Duration) -> TermEvent {
        let mut descriptors = [
            PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN),
            PollFd::new(wake, PollFlags::POLLIN),
        ];
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        match poll(&mut descriptors, limit) {
            Ok(0) | Err(Errno::EINTR) => return TermEvent::Nothing,
            Ok(_) => {}
            Err(_) => return TermEvent::Gone,
        }
        let [terminal, wake] = descriptors.map(|one| one.revents().unwrap_or(PollFlags::empty()));
        if terminal.intersects(PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL) {
            TermEvent::Gone
        } else if terminal.contains(PollFlags::POLLIN) {
            self.read()
        } else if wake.is_empty() {
            TermEvent::Nothing
        } else {
            TermEvent::Wake
        }
    }

    fn read(&self) -> TermEvent {
        let mut bytes = vec![0; 1024];
        match nix::unistd::read(&self.descriptor, &mut bytes) {
            Ok(0) | Err(Errno::EIO) => TermEvent::Gone,
            Ok(length) => {
                bytes.truncate(length);
                TermEvent::Bytes(bytes)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => TermEvent::Nothing,
            Err(_) => TermEvent::Gone,
        }
    }

    /// Writes everything, however slow the terminal is; gives up once `wake` is readable, or at the
    /// deadline.
    pub(crate) fn write(
        &self,
        mut bytes: &[u8],
        wake: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            match nix::unistd::write(&self.descriptor, bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => self.wait_for_room(wake, deadline)?,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn wait_for_room(
        &self,
        wake: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> io::Result<()> {
        let mut descriptors = vec![PollFd::new(self.descriptor.as_fd(), PollFlags::POLLOUT)];
        descriptors.extend(wake.map(|wake| PollFd::new(wake, PollFlags::POLLIN)));
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let limit = if let Some(left) = left {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        } else {
            PollTimeout::NONE
        };
        match poll(&mut descriptors, limit) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
            Ok(_) => {
                let woken = descriptors.get(1).map(PollFd::any) == Some(Some(true));
                if woken { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
            }
        }
    }
}

/// Standard output itself, if it is also readable: shells open the terminal once for both directions.
fn inherited() -> Option<OwnedFd> {
    let stdout = print::output_descriptor().ok()?;
    let flags = nix::fcntl::fcntl(&stdout, FcntlArg::F_GETFL).ok()?;
    if flags & libc::O_ACCMODE == libc::O_RDWR { Some(stdout) } else { None }
}

impl AsFd for TerminalDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
