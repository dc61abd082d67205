//! Takes over the terminal, and restores it in all cases.
//!
//! It is restored on quitting, on drop, before the message of a panic, and by the guardian if
//! gctrace is killed ([`crate::guardian::TerminalGuardian`]).

use super::terminal_device::TerminalDevice;
use crate::guardian::{LEAVE, TerminalGuardian, raw};
use nix::sys::termios::Termios;
use std::io;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// Alternate screen (xterm's 1049), no cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
/// Reports of buttons and wheel (1000), with decimal coordinates (1006).
const MOUSE: &[u8] = b"\x1b[?1000h\x1b[?1006h";
/// Timeout for writing [`LEAVE`] or [`ENTER`].
const WRITE_TIMEOUT: Duration = Duration::from_millis(500);

/// The state needed to restore the terminal.
#[derive(Debug)]
struct SavedTerminal {
    device: TerminalDevice,
    mode: Termios,
}

impl SavedTerminal {
    fn give_back(&self) {
        // Errors mean that the terminal is gone.
        let deadline = Instant::now().checked_add(WRITE_TIMEOUT);
        let _ = self.device.write(LEAVE, None, deadline);
        let _ = self.device.set_mode(&self.mode);
    }
}

/// The terminal that was taken over, if any; global for the panic hook.
static TAKEN: Mutex<Option<SavedTerminal>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// A terminal that is guarded but not taken over yet. Starting the guardian waits for another process; that must not
/// happen while programs may be stopped.
#[derive(Debug)]
pub(crate) struct Prepared {
    device: Option<TerminalDevice>,
    guardian: Option<TerminalGuardian>,
}

impl Prepared {
    /// Opens the terminal and starts its guardian.
    pub(crate) fn open() -> io::Result<Self> {
        let device = TerminalDevice::open()?;
        let guardian = TerminalGuardian::start(device.as_fd()).inspect_err(|error| {
            tracing::warn!(
                "the terminal will not be restored if gctrace is killed ('reset' fixes it): {error}"
            );
        });
        Ok(Self { device: Some(device), guardian: guardian.ok() })
    }
}

/// Never taken over, so there is nothing to restore.
impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(guardian) = self.guardian.take() {
            guardian.dismiss();
        }
    }
}

/// The terminal while the view owns it.
#[derive(Debug)]
pub(crate) struct Terminal {
    device: TerminalDevice,
    mode: Termios,
    mouse: bool,
    guardian: Option<TerminalGuardian>,
}

impl Terminal {
    /// Switches the terminal to the view; it is restored on drop, by a panic, or by the guardian.
    pub(crate) fn enter(mut prepared: Prepared) -> io::Result<Self> {
        HOOK.call_once(give_back_before_panics);
        match prepared.device.take() {
            Some(device) => Self::enter_guarded(device, prepared.guardian.take()),
            None => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn enter_guarded(
        device: TerminalDevice,
        guardian: Option<TerminalGuardian>,
    ) -> io::Result<Self> {
        let terminal = Self { mode: device.mode()?, device, mouse: has_mouse(), guardian };
        terminal.take()?;
        Ok(terminal)
    }

    /// Takes over the terminal again, after [`Terminal::give_back`] or a change by another program.
    pub(crate) fn take(&self) -> io::Result<()> {
        *locked() =
            Some(SavedTerminal { device: self.device.duplicate()?, mode: self.mode.clone() });
        self.device.set_mode(&raw(&self.mode))?;
        let deadline = Instant::now().checked_add(WRITE_TIMEOUT);
        self.device.write(ENTER, None, deadline)?;
        if self.mouse {
            self.device.write(MOUSE, None, deadline)?;
        }
        Ok(())
    }

    /// Restores the terminal; no effect if already restored.
    pub(crate) fn give_back(&self) {
        if let Some(taken) = locked().take() {
            taken.give_back();
        }
    }

    /// The device of the terminal, for output, input and its size.
    pub(crate) fn device(&self) -> &TerminalDevice {
        &self.device
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.give_back();
        if let Some(guardian) = self.guardian.take() {
            guardian.dismiss();
        }
    }
}

/// Restores the terminal from any thread.
pub(crate) fn give_back_now() {
    if let Some(taken) = locked().take() {
        taken.give_back();
    }
}

fn locked() -> std::sync::MutexGuard<'static, Option<SavedTerminal>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The Linux console and hardware terminals have no mouse.
fn has_mouse() -> bool {
    let name = crate::variables::text("TERM");
    !matches!(name, Some(name) if name == "linux" || name.starts_with("vt"))
}

/// Installs a panic hook that restores the terminal before the message is printed.
fn give_back_before_panics() {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // The panicking thread may hold the lock.
        if let Ok(mut taken) = TAKEN.try_lock()
            && let Some(taken) = taken.take()
        {
            taken.give_back();
        }
        previous(panic);
    }));
}

/// Buffers output and writes each frame at once, to avoid flicker.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    device: TerminalDevice,
    wake: Arc<OwnedFd>,
    bytes: Vec<u8>,
}

impl FrameWriter {
    /// Writes to this terminal; writes fail once `wake` is readable.
    pub(crate) fn new(device: &TerminalDevice, wake: Arc<OwnedFd>) -> io::Result<Self> {
        Ok(Self { device: device.duplicate()?, wake, bytes: Vec::new() })
    }

    fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Write for FrameWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        self.device.write(&bytes, Some(self.wake()), None)
    }
}

#[cfg(test)]
mod tests;
