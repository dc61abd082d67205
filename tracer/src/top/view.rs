//! The full-screen view.
//!
//! Owns its thread. `view/screen.rs` is the loop, `view/draw/` draws frames, `view/state.rs` handles
//! keys, `view/terminal.rs` takes over the terminal.

mod columns;
mod draw;
mod file_tail;
mod input;
mod keys;
mod painter;
mod rows;
mod screen;
mod state;
mod terminal;
mod terminal_device;
pub(super) mod text;
mod theme;

pub(crate) use terminal::Prepared;

use self::screen::ViewScreen;
use self::terminal::Terminal;
use self::terminal_device::TerminalDevice;
use super::LiveHandle;
use super::output::CommandFile;
use crate::log::LogBuffering;
use crate::{log, print, wait};
use nix::poll::PollTimeout;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long to wait for the thread to end before restoring the terminal without it.
const PATIENCE_MS: u16 = 1500;

/// Settings of the view beyond the figures.
#[derive(Clone, Debug)]
pub(crate) struct ViewConfig {
    /// Time between two snapshots: 0.1 to 60 s, in steps of 0.1 s.
    pub interval: Duration,
    /// Number of intervals until the view ends.
    pub iterations: Option<u64>,
    /// File that the command writes to; `None` if gctrace created none.
    pub output: Option<CommandFile>,
    /// The command, if one was started.
    pub command: Option<String>,
    /// Whether colors may be used: false if `NO_COLOR` is set and not empty.
    pub colors: bool,
}

/// The reason why the view is not possible.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ViewUnavailable {
    /// Standard output is not a terminal.
    #[error("standard output is not a terminal")]
    NoTerminal,
    /// `TERM` is not set.
    #[error("TERM is not set; terminal capabilities are unknown")]
    Unnamed,
    /// The terminal cannot position the cursor.
    #[error("this terminal (TERM={0}) cannot position the cursor")]
    Dumb(String),
    /// The terminal cannot be opened for reading.
    #[error("cannot read from the terminal: {0}")]
    Unreadable(io::Error),
}

/// Why the view could not start or had to end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ViewError {
    /// The terminal could not be taken over.
    #[error("cannot take over the terminal (--format text prints lines instead): {0}")]
    Start(io::Error),
    /// Drawing failed.
    #[error("cannot draw on the terminal: {0}")]
    Draw(io::Error),
    /// The thread panicked; the message has been printed.
    #[error("the view failed; this is a bug of gctrace")]
    Failed,
    /// The terminal does not accept output.
    #[error("the terminal does not accept output; it may need 'reset'")]
    Stuck,
}

/// Whether a full-screen view can be shown here.
pub(crate) fn possible() -> Result<(), ViewUnavailable> {
    if !print::on_terminal() {
        return Err(ViewUnavailable::NoTerminal);
    }
    match crate::variables::text("TERM") {
        None => Err(ViewUnavailable::Unnamed),
        Some(term) if matches!(term.as_str(), "dumb" | "unknown") => {
            Err(ViewUnavailable::Dumb(term))
        }
        Some(_) => TerminalDevice::open().map(drop).map_err(ViewUnavailable::Unreadable),
    }
}

/// The running view: a thread of its own, and the descriptor that wakes it.
#[derive(Debug)]
pub(crate) struct View {
    thread: Option<JoinHandle<io::Result<()>>>,
    /// Readable once the thread should end.
    wake: Arc<EventFd>,
    /// Readable once the thread has ended.
    ended: Arc<EventFd>,
    /// Dropped last, so that buffered messages are printed to the restored terminal.
    _diversion: Option<LogBuffering>,
}

impl View {
    /// Takes over the terminal and starts the thread.
    pub(crate) fn start(
        terminal: Prepared,
        shared: Arc<LiveHandle>,
        config: ViewConfig,
    ) -> Result<Self, ViewError> {
        Self::try_start(terminal, shared, config).map_err(ViewError::Start)
    }

    fn try_start(
        prepared: Prepared,
        shared: Arc<LiveHandle>,
        config: ViewConfig,
    ) -> io::Result<Self> {
        let (wake, ended) = (Arc::new(event()?), Arc::new(event()?));
        // Messages that go to a file do not disturb the screen.
        let diversion = if print::errors_on_terminal() { Some(log::divert()) } else { None };
        let terminal = Terminal::enter(prepared)?;
        let descriptor: OwnedFd = wake.as_fd().try_clone_to_owned()?;
        let screen = ViewScreen::new(shared, config, terminal, Arc::new(descriptor))?;
        let end = ThreadEnd(Arc::clone(&ended));
        let thread = std::thread::Builder::new().name("view".to_owned());
        let thread = thread.spawn(move || {
            let _end = end;
            screen.run()
        })?;
        Ok(Self { thread: Some(thread), wake, ended, _diversion: diversion })
    }

    /// Whether the view still runs: false once the user has quit, the terminal is gone, or all
    /// iterations are done.
    pub(crate) fn is_on(&self) -> bool {
        self.thread.is_some() && !self.has_ended(0)
    }

    /// Whether the thread ends within a time.
    fn has_ended(&self, limit_ms: u16) -> bool {
        wait::readable([self.ended.as_fd()], limit_ms).is_ok_and(|ended| ended)
    }

    /// Waits until the view has ended or `other` (signals) is readable.
    pub(crate) fn stay(&mut self, other: BorrowedFd<'_>) -> io::Result<()> {
        wait::readable([self.ended.as_fd(), other], PollTimeout::NONE).map(drop)
    }

    /// Ends the view and restores the terminal.
    pub(crate) fn leave(mut self) -> Result<(), ViewError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), ViewError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // Writing 1 to an eventfd cannot overflow here.
        let _ = self.wake.write(1);
        if !self.has_ended(PATIENCE_MS) {
            terminal::give_back_now();
            return Err(ViewError::Stuck);
        }
        match thread.join() {
            Ok(result) => result.map_err(ViewError::Draw),
            Err(_) => Err(ViewError::Failed),
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::warn!("{error}");
        }
    }
}

/// Signals on drop that the thread has ended, also after a panic.
struct ThreadEnd(Arc<EventFd>);

impl Drop for ThreadEnd {
    fn drop(&mut self) {
        // Writing 1 to an eventfd cannot overflow here.
        let _ = self.0.write(1);
    }
}

fn event() -> io::Result<EventFd> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    Ok(EventFd::from_value_and_flags(0, flags)?)
}
