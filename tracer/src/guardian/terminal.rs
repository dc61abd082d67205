//! The guardian of the terminal: gives it back as it was should gctrace be killed while a full-screen view is on.
//!
//! The same executable in a session of its own, asleep on a pipe whose other end only gctrace has. At the end of
//! that pipe without a farewell it leaves the alternate screen and mouse reports, and sets the mode that the
//! terminal had before, unless somebody (a shell) has changed it since. `tcsetattr` on a terminal that is not
//! one's controlling one is not subject to job control (`__tty_check_change` in Linux' `drivers/tty/tty_jobctrl.c`).

use super::DISMISSED;
use super::MAP_DESCRIPTOR;
use super::NAME;
use super::abandoned;
use super::detach_with;
use super::live_unnoticed;
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

/// Said when the mode of the terminal has been read.
const READY: u8 = b'!';
/// Where the guardian finds the terminal: where that of held programs finds its map.
const TERMINAL_DESCRIPTOR: i32 = MAP_DESCRIPTOR;

/// Leaves the alternate screen, shows the cursor, switches mouse reports off. What terminals do not know they ignore.
/// CAN (0x18) first: it ends a sequence that was cut.
pub(crate) const LEAVE: &[u8] = b"\x18\x1b[?1006l\x1b[?1000l\x1b[0m\x1b[?25h\x1b[?1049l";

/// gctrace's handle. Dropped without [`TerminalGuardian::dismiss`], the guardian acts.
#[derive(Debug)]
pub(crate) struct TerminalGuardian {
    process: Child,
    pipe: ChildStdin,
}

impl TerminalGuardian {
    /// Starts it, and waits until it knows how `terminal` is now.
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
            // It could not read the mode, and is gone.
            let _ = guardian.process.wait();
            return Err(error);
        }
        Ok(guardian)
    }

    /// Tells it that the terminal is as it was, and waits until it is gone.
    pub(crate) fn dismiss(mut self) {
        // A guardian that is gone already needs no farewell.
        let _ = self.pipe.write_all(&[DISMISSED]);
        drop(self.pipe);
        wait_for_end(&mut self.process);
    }
}

/// Is the guardian: the whole life of the process that [`TerminalGuardian::start`] started.
pub(crate) fn guard() -> io::Result<()> {
    live_unnoticed()?;
    // SAFETY: `TerminalGuardian::start` put the terminal there for us; nothing else in this process owns it.
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
