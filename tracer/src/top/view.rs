//! The full-screen view.
//!
//! Owns its thread and the order of things in it: wait for keys or the next picture, change what was chosen,
//! draw. What is drawn is `view/draw/`, what keys do is `view/state.rs`, the terminal `view/terminal.rs`.

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
use crate::log;
use crate::log::LogBuffering;
use crate::print;
use nix::errno::Errno;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::poll::PollTimeout;
use nix::poll::poll;
use nix::sys::eventfd::EfdFlags;
use nix::sys::eventfd::EventFd;
use std::io;
use std::os::fd::AsFd as _;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// So long the thread may take to leave; then the terminal is given back without it.
const PATIENCE_MS: u16 = 1500;

/// How to begin.
#[derive(Clone, Debug)]
pub(crate) struct ViewConfig {
    /// Time between two pictures.
    pub interval: Duration,
    /// Pictures after which the view ends.
    pub iterations: Option<u64>,
    /// The file that the command's output goes to.
    pub output: Option<CommandFile>,
    /// The command, where one was started.
    pub command: Option<String>,
    /// Whether colours are wanted (`NO_COLOR`).
    pub colors: bool,
}

/// Why there can be no view.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ViewUnavailable {
    /// Standard output is something else.
    #[error("standard output is no terminal")]
    NoTerminal,
    /// Nothing is known of the terminal.
    #[error("TERM is not set: what this terminal can show is not known")]
    Unnamed,
    /// It cannot place text.
    #[error("this terminal (TERM={0}) cannot place text on its screen")]
    Dumb(String),
    /// It cannot be opened for keys.
    #[error("the terminal cannot be read: {0}")]
    Unreadable(io::Error),
}

/// What went wrong with a view.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ViewError {
    /// Before anything was shown.
    #[error("cannot take over the terminal (--plain prints lines instead): {0}")]
    Start(io::Error),
    /// Later.
    #[error("cannot draw on the terminal: {0}")]
    Draw(io::Error),
    /// The thread ended by a panic, whose message has been printed.
    #[error("the view failed; this is a bug of gctrace")]
    Failed,
    /// The terminal takes nothing.
    #[error("the terminal did not take what was written; 'reset' may be needed")]
    Stuck,
}

/// Whether a full-screen view can be shown here.
pub(crate) fn possible() -> Result<(), ViewUnavailable> {
    if !print::on_terminal() {
        return Err(ViewUnavailable::NoTerminal);
    }
    let term = crate::variables::text("TERM").unwrap_or_default();
    match term.as_str() {
        "" => Err(ViewUnavailable::Unnamed),
        "dumb" | "unknown" => Err(ViewUnavailable::Dumb(term)),
        _ => TerminalDevice::open()
            .map(drop)
            .map_err(ViewUnavailable::Unreadable),
    }
}

/// The running view.
#[derive(Debug)]
pub(crate) struct View {
    thread: Option<JoinHandle<io::Result<()>>>,
    /// Readable: the thread is to leave.
    wake: Arc<EventFd>,
    /// Readable: the thread has ended.
    ended: Arc<EventFd>,
    /// Dropped last: what is said then has a screen to stand on.
    _diversion: Option<LogBuffering>,
}

impl View {
    /// Takes the terminal over and begins.
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
        // What goes to a file is not in the way.
        let diversion = print::errors_on_terminal().then(log::divert);
        let terminal = Terminal::enter(prepared)?;
        let descriptor: OwnedFd = wake.as_fd().try_clone_to_owned()?;
        let screen = ViewScreen::new(shared, config, terminal, Arc::new(descriptor))?;
        let end = ThreadEnd(Arc::clone(&ended));
        let thread = std::thread::Builder::new().name("view".to_owned());
        let thread = thread.spawn(move || {
            let _end = end;
            screen.run()
        })?;
        Ok(Self {
            thread: Some(thread),
            wake,
            ended,
            _diversion: diversion,
        })
    }

    /// Whether it is still there: false once the user has left, the terminal has gone, or all pictures were shown.
    pub(crate) fn is_on(&self) -> bool {
        self.thread.is_some() && !readable(self.ended.as_fd(), PollTimeout::ZERO)
    }

    /// Waits until the view has ended, or `other` (signals) is readable.
    pub(crate) fn stay(&mut self, other: BorrowedFd<'_>) -> io::Result<()> {
        let wanted = |descriptor| PollFd::new(descriptor, PollFlags::POLLIN);
        let mut descriptors = [wanted(self.ended.as_fd()), wanted(other)];
        loop {
            match poll(&mut descriptors, PollTimeout::NONE) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Gives the terminal back.
    pub(crate) fn leave(mut self) -> Result<(), ViewError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), ViewError> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        // An event counter cannot be full.
        let _ = self.wake.write(1);
        if !readable(self.ended.as_fd(), PollTimeout::from(PATIENCE_MS)) {
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

/// Says that the thread has ended, however it did.
struct ThreadEnd(Arc<EventFd>);

impl Drop for ThreadEnd {
    fn drop(&mut self) {
        // An event counter cannot be full.
        let _ = self.0.write(1);
    }
}

fn event() -> io::Result<EventFd> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    Ok(EventFd::from_value_and_flags(0, flags)?)
}

fn readable(descriptor: BorrowedFd<'_>, limit: PollTimeout) -> bool {
    let mut descriptors = [PollFd::new(descriptor, PollFlags::POLLIN)];
    loop {
        match poll(&mut descriptors, limit) {
            Err(Errno::EINTR) => {}
            result => return result.is_ok_and(|ready| ready > 0),
        }
    }
}
