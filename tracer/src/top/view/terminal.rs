//! Taking the terminal over, and giving it back as it was, whatever happens.
//!
//! Given back on leaving, on drop, before the message of a panic, and by a process of its own should gctrace be
//! killed ([`crate::guardian::TerminalGuardian`]).

use super::terminal_device::TerminalDevice;
use crate::guardian::LEAVE;
use crate::guardian::TerminalGuardian;
use crate::guardian::raw;
use nix::sys::termios::Termios;
use std::io;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::Once;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

/// Alternate screen (xterm's 1049), no cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
/// Presses and the wheel (1000), with coordinates in decimal (1006).
const MOUSE: &[u8] = b"\x1b[?1000h\x1b[?1006h";
/// So long a terminal may take to listen to [`LEAVE`].
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What is needed to give the terminal back.
#[derive(Debug)]
struct SavedTerminal {
    device: TerminalDevice,
    mode: Termios,
}

impl SavedTerminal {
    fn give_back(&self) {
        // Where this fails the terminal is gone, and there is nothing to give back.
        let deadline = Instant::now().checked_add(LAST_WORDS);
        let _ = self.device.write(LEAVE, None, deadline);
        let _ = self.device.set_mode(&self.mode);
    }
}

/// The terminal that is taken, if one is: for the panic hook, which has nothing else to go by.
static TAKEN: Mutex<Option<SavedTerminal>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// A terminal that is not taken over yet, and is guarded already: its guardian is another program, which is waited for,
/// and that must not be once programs may be held.
#[derive(Debug)]
pub(crate) struct Prepared {
    device: Option<TerminalDevice>,
    guardian: Option<TerminalGuardian>,
}

impl Prepared {
    /// Opens the terminal.
    pub(crate) fn open() -> io::Result<Self> {
        let device = TerminalDevice::open()?;
        let guardian = TerminalGuardian::start(device.as_fd()).inspect_err(|error| {
            tracing::warn!(
                "should gctrace be killed, the terminal stays as it is then ('reset' mends it): {error}"
            );
        });
        Ok(Self {
            device: Some(device),
            guardian: guardian.ok(),
        })
    }
}

/// It was never taken over: there is nothing to give back.
impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(guardian) = self.guardian.take() {
            guardian.dismiss();
        }
    }
}

/// The terminal while it is ours.
#[derive(Debug)]
pub(crate) struct Terminal {
    device: TerminalDevice,
    mode: Termios,
    mouse: bool,
    guardian: Option<TerminalGuardian>,
}

impl Terminal {
    /// Takes it over.
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
        let terminal = Self {
            mode: device.mode()?,
            device,
            mouse: has_mouse(),
            guardian,
        };
        terminal.take()?;
        Ok(terminal)
    }

    /// Takes it over again, after [`Terminal::give_back`] or whatever happened to it.
    pub(crate) fn take(&self) -> io::Result<()> {
        *locked() = Some(SavedTerminal {
            device: self.device.again()?,
            mode: self.mode.clone(),
        });
        self.device.set_mode(&raw(&self.mode))?;
        let deadline = Instant::now().checked_add(LAST_WORDS);
        self.device.write(ENTER, None, deadline)?;
        if self.mouse {
            self.device.write(MOUSE, None, deadline)?;
        }
        Ok(())
    }

    /// Gives it back; once.
    pub(crate) fn give_back(&self) {
        if let Some(taken) = locked().take() {
            taken.give_back();
        }
    }

    /// The device.
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

/// Gives the terminal back whoever took it.
pub(crate) fn give_back_now() {
    if let Some(taken) = locked().take() {
        taken.give_back();
    }
}

fn locked() -> std::sync::MutexGuard<'static, Option<SavedTerminal>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The Linux console and terminals of glass and steel have none.
fn has_mouse() -> bool {
    let name = crate::variables::text("TERM").unwrap_or_default();
    !(name == "linux" || name.starts_with("vt"))
}

/// The message of a panic is to be read on the screen where the user types.
fn give_back_before_panics() {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // The thread that panics may hold the lock itself.
        if let Ok(mut taken) = TAKEN.try_lock()
            && let Some(taken) = taken.take()
        {
            taken.give_back();
        }
        previous(panic);
    }));
}

/// Collects what is drawn, and writes a picture at once: nothing flickers.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    device: TerminalDevice,
    wake: Arc<OwnedFd>,
    bytes: Vec<u8>,
}

impl FrameWriter {
    /// To this terminal, until `wake` is readable.
    pub(crate) fn new(device: &TerminalDevice, wake: Arc<OwnedFd>) -> io::Result<Self> {
        Ok(Self {
            device: device.again()?,
            wake,
            bytes: Vec::new(),
        })
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
