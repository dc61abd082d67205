//! The guardian of the terminal: restores it if gctrace is killed while a full-screen view is
//! shown.
//!
//! The same executable in a session of its own, blocked on a pipe whose other end only gctrace has.
//! When that pipe is closed without [`DISMISSED`], it leaves the alternate screen, turns mouse
//! reports off, and restores the terminal's mode, unless another process (a shell) has changed it
//! since. `tcsetattr` on a terminal that is not the controlling one is not subject to job control
//! (`__tty_check_change` in Linux' `drivers/tty/tty_jobctrl.c`).

use super::DISMISSED;
use super::MAP_DESCRIPTOR;
use super::NAME;
use super::abandoned;
use super::detach_with;
use super::ignore_signals;
use super::wait_for_end;
use crate::print;
use nix::sys::termios;
use nix::sys::termios::SetArg;
use nix::sys::termios::Termios;
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd as _;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Child;
use std::process::ChildStdin;
use std::process::Command;
use std::process::Stdio;

/// Sent when the mode of the terminal has been read.
const READY: u8 = b'!';
/// The guardian's descriptor of the terminal: the same as the other guardian's of its map.
const TERMINAL_DESCRIPTOR: i32 = MAP_DESCRIPTOR;

/// Leaves the alternate screen, shows the cursor, disables mouse reports; terminals ignore unknown
/// sequences. CAN (0x18) first aborts a truncated sequence.
pub(crate) const LEAVE: &[u8] = b"\x18\x1b[?1006l\x1b[?1000l\x1b[0m\x1b[?25h\x1b[?1049l";

/// gctrace's handle. If it is dropped without [`TerminalGuardian::dismiss`], the guardian restores
/// the terminal.
#[derive(Debug)]
pub(crate) struct TerminalGuardian {
    process: Child,
    pipe: ChildStdin,
}

impl TerminalGuardian {
    /// Starts it, and waits until it has read the present mode of `terminal`.
    pub(crate) fn start(terminal: BorrowedFd<'_>) -> io::Result<Self> {
        let terminal = terminal.as_raw_fd();
        let mut command = Command::new("/proc/self/exe");
        command.arg0(NAME).arg(crate::args::TERMINAL_GUARDIAN);
        command.env_clear().current_dir("/");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // SAFETY: the closure makes system calls only; it neither allocates nor locks.
        unsafe {
            command.pre_exec(move || detach_with(terminal));
        }
        let mut process = command.spawn()?;
        let pipe = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut answers = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut guardian = Self { process, pipe };
        let mut answer = [0];
        if let Err(error) = answers.read_exact(&mut answer) {
            // It could not read the mode, and has exited.
            let _ = guardian.process.wait();
            return Err(error);
        }
        Ok(guardian)
    }

    /// Dismisses the guardian: the terminal is restored. Waits until it has exited.
    pub(crate) fn dismiss(mut self) {
        // The guardian may have exited already; ignore EPIPE.
        let _ = self.pipe.write_all(&[DISMISSED]);
        drop(self.pipe);
        wait_for_end(&mut self.process);
    }
}

/// The main function of the process that [`TerminalGuardian::start`] started.
pub(crate) fn guard() -> io::Result<()> {
    ignore_signals()?;
    // SAFETY: `TerminalGuardian::start` put the terminal there for us; it has no other owner in
    // this process.
    let terminal = File::from(unsafe { OwnedFd::from_raw_fd(TERMINAL_DESCRIPTOR) });
    let before = termios::tcgetattr(&terminal)?;
    print::exactly(|out| out.write_all(&[READY]))?;
    if abandoned(&mut io::stdin().lock()) {
        give_back(&terminal, &before)
    } else {
        Ok(())
    }
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

/// The mode in which every key comes at once and as it is.
pub(crate) fn raw(mode: &Termios) -> Termios {
    let mut raw = mode.clone();
    nix::sys::termios::cfmakeraw(&mut raw);
    raw
}
