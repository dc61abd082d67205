//! The event loop of the view: handles keys, draws frames.

use super::draw::ViewFrame;
use super::file_tail::FileTail;
use super::input::InputBuffer;
use super::keys::KeyAction;
use super::painter::Painter;
use super::state::{Geometry, LowerPane, ViewEffect, ViewState};
use super::terminal::{FrameWriter, Terminal};
use super::terminal_device::TermEvent;
use super::theme::Theme;
use super::{ViewConfig, draw, keys};
use crate::top::live_handle::{LiveHandle, LivePhase, UserCommand};
use crate::{clock, log};
use gctrace_analysis::live::{SETTLE_NS, Snapshot, SnapshotRequest};
use gctrace_event::{Note, Record};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use ratatui::crossterm::event::Event;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of polling for resizes, notices and the end of the recording.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// After this time a lone ESC is the Esc key and not the start of a sequence. ssh may split sequences.
const ESCAPE: Duration = Duration::from_millis(50);
/// A wakeup this late means that gctrace was suspended: repaint everything.
const STOPPED: Duration = Duration::from_secs(2);
/// Delay after raising SIGTSTP: the stop has reached all threads by then.
const STOPPING: Duration = Duration::from_millis(50);

/// Whether the view continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScreenState {
    Stay,
    Leave,
}

/// State of the view's thread: terminal, input, the user's choices and the shown snapshot.
#[derive(Debug)]
pub(super) struct ViewScreen {
    shared: Arc<LiveHandle>,
    config: ViewConfig,
    terminal: Terminal,
    wake: Arc<OwnedFd>,
    painter: Painter,
    theme: Theme,
    input: InputBuffer,
    state: ViewState,
    snapshot: Snapshot,
    phase: LivePhase,
    tail: Option<FileTail>,
    drawn: Geometry,
    size: Option<(u16, u16)>,
    /// When the next frame is due.
    due: Instant,
    /// Number of intervals that have passed.
    intervals: u64,
    /// Time of the final snapshot, once the recording has ended.
    ended_ns: Option<u64>,
}

impl ViewScreen {
    pub(super) fn new(
        shared: Arc<LiveHandle>,
        config: ViewConfig,
        terminal: Terminal,
        wake: Arc<OwnedFd>,
    ) -> io::Result<Self> {
        let writer = FrameWriter::new(terminal.device(), Arc::clone(&wake))?;
        Ok(Self {
            painter: Painter::new(writer)?,
            theme: Theme::detect(config.colors),
            input: InputBuffer::default(),
            state: ViewState::new(config.interval),
            snapshot: Snapshot::default(),
            phase: LivePhase::default(),
            tail: config.output.clone().map(FileTail::new),
            drawn: Geometry::default(),
            size: terminal.device().size(),
            due: Instant::now(),
            intervals: 0,
            ended_ns: None,
            shared,
            config,
            terminal,
            wake,
        })
    }

    /// Runs until the view ends. Failed writes are not an error if the view was asked to end or the
    /// terminal is gone.
    pub(super) fn run(mut self) -> io::Result<()> {
        match self.event_loop() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(()),
            result => result,
        }
    }

    fn event_loop(&mut self) -> io::Result<()> {
        self.refresh();
        self.paint()?;
        self.next_due();
        loop {
            let wait = self.wait();
            let start = Instant::now();
            let came = self.terminal.device().wait(self.wake.as_fd(), wait);
            if start.elapsed() > wait + STOPPED {
                self.take_again()?;
            }
            let mut changed = match came {
                TermEvent::Wake | TermEvent::Gone => return Ok(()),
                TermEvent::Nothing => match self.input.flush() {
                    Some(event) => vec![event],
                    None => Vec::new(),
                },
                TermEvent::Bytes(bytes) => self.input.take(&bytes),
            };
            let typed = !changed.is_empty();
            for event in changed.drain(..) {
                if self.take(&event)? == ScreenState::Leave {
                    return Ok(());
                }
            }
            if self.poll() || typed {
                self.paint()?;
            }
            if matches!(self.config.iterations, Some(most) if self.intervals >= most) {
                return Ok(());
            }
        }
    }

    fn wait(&self) -> Duration {
        if self.input.is_waiting() {
            return ESCAPE;
        }
        self.due.saturating_duration_since(Instant::now()).min(POLL_INTERVAL)
    }

    /// Handles changes other than keys. Returns whether a frame is needed.
    fn poll(&mut self) -> bool {
        let mut changed = self.take_notices();
        let size = self.terminal.device().size();
        if size != self.size {
            self.size = size;
            changed = true;
        }
        let phase = self.shared.phase();
        if phase != self.phase {
            self.phase = phase;
            self.state.paused = false;
            // Everything has been read; no settling time is needed.
            self.ended_ns = Some(crate::clock::monotonic_ns() + SETTLE_NS);
            self.refresh();
            changed = true;
        }
        if Instant::now() >= self.due {
            self.next_due();
            if !self.state.paused && self.phase == LivePhase::Recording {
                self.refresh();
                changed = true;
            }
            self.intervals += 1;
        }
        changed
    }

    /// Advances the deadline. Deadlines are absolute to avoid drift; missed ones are skipped.
    fn next_due(&mut self) {
        let now = Instant::now();
        let mut due = self.due + self.state.interval;
        if due <= now {
            due = now + self.state.interval;
        }
        self.due = due;
    }

    /// Takes a snapshot; while paused, only the details of one process.
    fn refresh(&mut self) {
        let detail = self.state.detail(&self.snapshot);
        if self.state.paused {
            self.snapshot.detail = self.figures(detail).detail;
        } else {
            self.snapshot = self.figures(detail);
            self.state.arrange(&self.snapshot);
            // The selection may have moved to another process.
            let chosen = self.state.detail(&self.snapshot);
            if chosen != detail {
                self.snapshot = self.figures(chosen);
                self.state.arrange(&self.snapshot);
            }
        }
        if self.state.lower == LowerPane::Output {
            self.tail.iter_mut().for_each(|tail| {
                tail.refresh();
            });
        }
    }

    /// A snapshot now, or as of the end of the recording.
    fn figures(&self, detail: Option<u32>) -> Snapshot {
        let Some(now_ns) = self.ended_ns else {
            return self.shared.snapshot(self.state.interval, detail);
        };
        self.shared.live().snapshot(&SnapshotRequest {
            now_ns,
            interval_ns: crate::clock::nanoseconds(self.state.interval),
            detail,
        })
    }

    /// Turns new log messages into notices, unless they already are. Returns whether there are any.
    fn take_notices(&mut self) -> bool {
        let fresh = log::fresh();
        if fresh.is_empty() {
            return false;
        }
        let known = self.shared.snapshot(self.state.interval, None).notes;
        let fresh =
            fresh.into_iter().filter(|line| !known.iter().any(|note| note.message == *line));
        let now_ns = crate::clock::monotonic_ns();
        let mut live = self.shared.live();
        for message in fresh {
            live.record(&Record::Note(Note { pid: None, at_ns: now_ns, message }));
        }
        drop(live);
        self.refresh();
        true
    }

    fn take(&mut self, event: &Event) -> io::Result<ScreenState> {
        let Some(action) = keys::action(event, self.state.is_typing()) else {
            return Ok(ScreenState::Stay);
        };
        let over = self.phase != LivePhase::Recording;
        if over && action == KeyAction::Back && self.state.is_at_home() {
            return Ok(self.quit());
        }
        match self.state.apply(action, &self.snapshot, &self.drawn) {
            ViewEffect::Draw => {}
            ViewEffect::Refresh => self.refresh(),
            ViewEffect::Interval => {
                self.due = Instant::now();
                self.next_due();
                self.refresh();
            }
            ViewEffect::Quit => return Ok(self.quit()),
            ViewEffect::Interrupt if over => return Ok(self.quit()),
            ViewEffect::Interrupt => self.interrupt(),
            ViewEffect::Redraw => self.painter.invalidate(),
            ViewEffect::Suspend => self.suspend()?,
        }
        Ok(ScreenState::Stay)
    }

    fn quit(&mut self) -> ScreenState {
        self.shared.submit(UserCommand::Quit);
        ScreenState::Leave
    }

    fn interrupt(&mut self) {
        self.shared.submit(UserCommand::Interrupt);
        if self.config.command.is_some() {
            let words = "Interrupting the command. Press Ctrl-C again to quit without it.";
            self.state.message = Some(words.to_owned());
        }
    }

    /// Stops the process group, gctrace and the command, as the terminal would.
    fn suspend(&mut self) -> io::Result<()> {
        self.terminal.give_back();
        // The kernel does not stop an orphaned process group (one without a shell to resume it).
        nix::sys::signal::kill(Pid::from_raw(0), Signal::SIGTSTP)?;
        std::thread::sleep(STOPPING);
        self.take_again()
    }

    fn take_again(&mut self) -> io::Result<()> {
        self.terminal.take()?;
        self.painter.invalidate();
        self.size = self.terminal.device().size();
        self.due = Instant::now();
        self.paint()
    }

    fn paint(&mut self) -> io::Result<()> {
        let frame = ViewFrame {
            snapshot: &self.snapshot,
            state: &self.state,
            phase: &self.phase,
            tail: self.tail.as_ref(),
            command: self.config.command.as_deref(),
            utc_offset_s: clock::offset_s(self.snapshot.at_unix_ns),
            theme: self.theme,
        };
        let mut drawn = Geometry::default();
        let painted = self.painter.paint(self.size, |buffer| drawn = draw::draw(&frame, buffer));
        self.drawn = drawn;
        painted
    }
}
