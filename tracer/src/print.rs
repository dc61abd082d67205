//! Everything that gctrace writes to standard output and standard error.
//!
//! Owns three promises, which is why nothing else may print (`clippy.toml` and the lints in `main.rs`
//! see to it). A closed pipe or terminal is never a panic: the exit code is the command's. Text for
//! people holds no control character but line ends and our own colors, whatever programs called
//! themselves (`print/clean.rs`). A reader of standard error that does not read cannot stop the
//! thread that records and continues held programs.
//!
//! Only the full-screen view writes to its terminal by itself (`top/view/terminal_device.rs`).

#![expect(
    clippy::disallowed_methods,
    reason = "the one place that writes to standard output and standard error"
)]

pub(crate) mod clean;
mod json;

pub(crate) use json::JsonEscaper;

use crate::variables::text;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use std::fmt::Display;
use std::io;
use std::io::IsTerminal as _;
use std::io::Write;
use std::os::fd::AsFd as _;
use std::os::fd::AsRawFd as _;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

/// What each message begins with.
pub(crate) const PREFIX: &str = "gctrace: ";

/// How long a message waits for room in standard error, in milliseconds. Held programs wait as long.
const PATIENCE_MS: u16 = 500;
/// Bytes that are written at once: a pipe that is writable takes as many without blocking
/// (`PIPE_BUF`, pipe(7)).
const AT_ONCE: usize = 4096;

/// Standard error took nothing when last tried: it is not waited for again.
static STUCK: AtomicBool = AtomicBool::new(false);

/// One message on standard error: `gctrace: TEXT`, always one line.
pub(crate) fn message(text: impl Display) {
    let line = format!("{PREFIX}{}\n", clean::line(&text.to_string()));
    error_bytes(line.as_bytes());
}

/// Lines on standard error, as they are: what belongs to the message before.
pub(crate) fn lines(text: &str) {
    let text = clean::text(text);
    error_bytes(text.as_bytes());
    if !text.ends_with('\n') {
        error_bytes(b"\n");
    }
}

/// Writes what is clean already. What cannot be written is dropped: there is no other place to report it.
fn error_bytes(bytes: &[u8]) {
    let mut stderr = io::stderr().lock();
    for part in bytes.chunks(AT_ONCE) {
        let patience = if STUCK.load(Ordering::Relaxed) {
            0
        } else {
            PATIENCE_MS
        };
        let mut room = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
        let ready = nix::poll::poll(&mut room, patience);
        STUCK.store(ready == Ok(0), Ordering::Relaxed);
        if ready == Ok(0) || stderr.write_all(part).is_err() {
            return;
        }
    }
}

/// Text for people, on standard output.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn answer(text: &str) -> io::Result<()> {
    exactly(|out| answer_to(out, text))
}

/// The same text in a file: it will be shown on a terminal some day.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn answer_to(out: &mut dyn Write, text: &str) -> io::Result<()> {
    out.write_all(clean::text(text).as_bytes())
}

/// Bytes on standard output as they are, for programs: JSON (see [`JsonEscaper`]), SVG, completion scripts.
///
/// # Errors
/// When they cannot be written.
pub(crate) fn exactly(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    write(&mut out)?;
    out.flush()
}

/// A reader of standard output that has seen enough, as `head` does, is no failure.
///
/// # Errors
/// All others.
pub(crate) fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Whether standard output is a terminal.
pub(crate) fn on_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Columns of the terminal that standard output is.
pub(crate) fn columns() -> Option<usize> {
    let (columns, _) = terminal_size(io::stdout().as_fd())?;
    (columns > 0).then_some(columns.into())
}

/// Columns and lines; `None` of what is no terminal, (0, 0) where it does not know.
pub(crate) fn terminal_size(terminal: BorrowedFd<'_>) -> Option<(u16, u16)> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ fills the structure that it is given and nothing else.
    let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &mut size) };
    (result == 0).then_some((size.ws_col, size.ws_row))
}

/// Whether standard error is a terminal.
pub(crate) fn errors_on_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Whether what goes to this stream may be colored: to a terminal that can show it, unless `NO_COLOR`
/// (no-color.org) is set.
pub(crate) fn colors_wanted(on_terminal: bool) -> bool {
    let dumb = text("TERM").is_none_or(|term| term == "dumb");
    on_terminal && text("NO_COLOR").is_none() && !dumb
}

/// Standard output once more, to be read and written without this module: the view's terminal.
///
/// # Errors
/// When there are too many open files.
pub(crate) fn output_descriptor() -> io::Result<OwnedFd> {
    io::stdout().as_fd().try_clone_to_owned()
}

/// Standard error once more, for the command to write to.
///
/// # Errors
/// When there are too many open files.
pub(crate) fn error_descriptor() -> io::Result<OwnedFd> {
    io::stderr().as_fd().try_clone_to_owned()
}
