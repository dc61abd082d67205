//! The terminal as a device: its size, its mode, bytes in and out.
//!
//! Opened anew, so that it does not block whatever happens at its other end, while the descriptors that gctrace
//! shares with its shell stay as they are. Knows nothing of what is written.

use crate::print;
use nix::errno::Errno;
use nix::fcntl::FcntlArg;
use nix::fcntl::OFlag;
use nix::fcntl::open;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::poll::PollTimeout;
use nix::poll::poll;
use nix::sys::stat::Mode;
use nix::sys::termios;
use nix::sys::termios::SetArg;
use nix::sys::termios::Termios;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::time::Duration;
use std::time::Instant;

/// What came from the terminal, or happened to it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TermEvent {
    /// Nothing in the time given.
    Nothing,
    /// Bytes.
    Bytes(Vec<u8>),
    /// Somebody wants to be noticed: the other descriptor is readable.
    Wake,
    /// There is no terminal any more.
    Gone,
}

/// The terminal that standard output is.
#[derive(Debug)]
pub(crate) struct TerminalDevice {
    descriptor: OwnedFd,
}

impl TerminalDevice {
    /// Opens it: by the descriptor, where that is not allowed (after `su`) as the controlling terminal, where
    /// there is none (`su -c`) as the descriptor itself, which then may block while the other end does not read.
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

    /// A terminal that is open.
    #[cfg(test)]
    pub(crate) fn of(descriptor: OwnedFd) -> io::Result<Self> {
        let flags = OFlag::from_bits_retain(nix::fcntl::fcntl(&descriptor, FcntlArg::F_GETFL)?);
        nix::fcntl::fcntl(&descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Self { descriptor })
    }

    /// The same terminal once more.
    pub(crate) fn again(&self) -> io::Result<Self> {
        Ok(Self {
            descriptor: self.descriptor.try_clone()?,
        })
    }

    /// Columns and lines; (0, 0) where the terminal does not know.
    pub(crate) fn size(&self) -> (u16, u16) {
        print::terminal_size(self.descriptor.as_fd()).unwrap_or_default()
    }

    /// How it treats what is typed and written.
    pub(crate) fn mode(&self) -> io::Result<Termios> {
        Ok(termios::tcgetattr(&self.descriptor)?)
    }

    /// Changes that at once.
    pub(crate) fn set_mode(&self, mode: &Termios) -> io::Result<()> {
        Ok(termios::tcsetattr(&self.descriptor, SetArg::TCSANOW, mode)?)
    }

    /// Waits for keys, for `wake`, or for `limit` to pass.
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

    /// Writes everything, however slow the other end is; gives up where `wake` is readable, or at the deadline.
    pub(crate) fn write(
        &self,
        mut bytes: &[u8],
        wake: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            match nix::unistd::write(&self.descriptor, bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
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
        let limit = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut descriptors, limit) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
            Ok(_) => {
                let woken = descriptors.get(1).and_then(PollFd::any).unwrap_or(false);
                if woken {
                    Err(io::ErrorKind::Interrupted.into())
                } else {
                    Ok(())
                }
            }
        }
    }
}

/// Standard output itself, if it may be read too: shells open terminals once, for both.
fn inherited() -> Option<OwnedFd> {
    let stdout = print::output_descriptor().ok()?;
    let flags = nix::fcntl::fcntl(&stdout, FcntlArg::F_GETFL).ok()?;
    (flags & libc::O_ACCMODE == libc::O_RDWR).then_some(stdout)
}

impl AsFd for TerminalDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
