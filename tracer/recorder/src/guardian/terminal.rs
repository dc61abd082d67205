//! The guardian of the terminal: restores it if gctrace is killed while a full-screen view is
//! shown.
//!
//! The same executable in a session of its own, blocked on a pipe; only gctrace has the other end. When that pipe is
//! closed without a dismissal, it leaves the alternate screen, turns mouse reports off, and restores the terminal's
//! mode, unless another process (a shell) has changed it since. `tcsetattr` on a terminal that is not the controlling
//! one is not subject to job control (`__tty_check_change` in Linux' `drivers/tty/tty_jobctrl.c`).

use super::{GIVEN_DESCRIPTOR, GuardianProcess, abandoned, ignore_signals};
use crate::print;
use nix::sys::termios;
use nix::sys::termios::{SetArg, Termios};
use std::fs::File;
use std::io;
use std::io::{Read as _, Write as _};
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd};
use std::process::Stdio;

/// Sent when the mode of the terminal has been read.
const READY: u8 = b'!';

/// Leaves the alternate screen, shows the cursor, disables mouse reports; terminals ignore unknown
/// sequences. CAN (0x18) first aborts a truncated sequence.
pub const LEAVE: &[u8] = b"\x18\x1b[?1006l\x1b[?1000l\x1b[0m\x1b[?25h\x1b[?1049l";

/// If it is dropped without [`TerminalGuardian::dismiss`], the guardian restores the terminal.
#[derive(Debug)]
pub struct TerminalGuardian(GuardianProcess);

impl TerminalGuardian {
    /// Starts it, and waits until it has read the present mode of `terminal`.
    pub fn start(terminal: BorrowedFd<'_>) -> io::Result<Self> {
        let argument = crate::args::TERMINAL_GUARDIAN;
        let mut guardian = GuardianProcess::start(argument, terminal, Stdio::piped())?;
        let answers = guardian.process.stdout.take();
        let mut answers = answers.ok_or(io::ErrorKind::BrokenPipe)?;
        if let Err(error) = answers.read_exact(&mut [0]) {
            // It could not read the mode, and has exited.
            let _ = guardian.process.wait();
            return Err(error);
        }
        Ok(Self(guardian))
    }

    /// Dismisses the guardian: the terminal is restored. Waits until it has exited.
    pub fn dismiss(mut self) {
        self.0.dismiss();
    }
}

/// The main function of the process that [`TerminalGuardian::start`] started.
pub fn guard() -> io::Result<()> {
    ignore_signals()?;
    // SAFETY: `TerminalGuardian::start` put the terminal there for us; it has no other owner in
    // this process.
    let terminal = File::from(unsafe { OwnedFd::from_raw_fd(GIVEN_DESCRIPTOR) });
    let before = termios::tcgetattr(&terminal)?;
    print::exactly(|out| out.write_all(&[READY]))?;
    if abandoned(&mut io::stdin().lock()) { give_back(&terminal, &before) } else { Ok(()) }
}

fn give_back(mut terminal: &File, before: &Termios) -> io::Result<()> {
    let now = termios::tcgetattr(terminal)?;
    if same(&now, &raw(before)) {
        termios::tcsetattr(terminal, SetArg::TCSANOW, before)?;
    }
    terminal.write_all(LEAVE)
}

fn same(a: &Termios, b: &Termios) -> bool {
    let flags = |mode: &Termios| (mode.input_flags, mode.output_flags, mode.local_flags);
    flags(a) == flags(b)
}

/// The mode where every key comes at once and unchanged.
pub fn raw(mode: &Termios) -> Termios {
    let mut raw = mode.clone();
    nix::sys::termios::cfmakeraw(&mut raw);
    raw
}
