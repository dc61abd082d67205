//! Draws frames: writes only the cells that changed.
//!
//! ratatui's `Terminal`, by its parts: `Terminal::draw` also hides the cursor, and then its drop
//! prints to a terminal that may be gone, and `Terminal::clear` reads the cursor's position from the
//! keyboard input (ratatui-core 0.1.2).

use super::terminal::FrameWriter;
use ratatui::backend::{Backend as _, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use std::io;

/// Maximum columns and lines that are drawn.
const LARGEST: (u16, u16) = (1000, 400);
/// Size for a terminal that does not report its size.
const USUAL: (u16, u16) = (80, 24);

/// The content of the screen, and the next frame.
#[derive(Debug)]
pub(crate) struct Painter {
    terminal: Terminal<CrosstermBackend<FrameWriter>>,
    stale: bool,
}

impl Painter {
    /// For a screen with unknown content.
    pub(crate) fn new(writer: FrameWriter) -> io::Result<Self> {
        let options = TerminalOptions { viewport: Viewport::Fixed(Rect::default()) };
        Ok(Self {
            terminal: Terminal::with_options(CrosstermBackend::new(writer), options)?,
            stale: true,
        })
    }

    /// Marks the content of the screen as unknown: the next frame repaints everything.
    pub(crate) fn invalidate(&mut self) {
        self.stale = true;
    }

    /// Draws a frame of this size.
    pub(crate) fn paint(
        &mut self,
        size: Option<(u16, u16)>,
        draw: impl FnOnce(&mut Buffer),
    ) -> io::Result<()> {
        let area = area(size);
        if self.stale || self.terminal.current_buffer_mut().area != area {
            self.terminal.resize(area)?;
        }
        self.stale = true;
        draw(self.terminal.current_buffer_mut());
        self.terminal.flush()?;
        self.terminal.swap_buffers();
        self.terminal.backend_mut().flush()?;
        self.stale = false;
        Ok(())
    }
}

fn area(size: Option<(u16, u16)>) -> Rect {
    let (columns, lines) = size.unwrap_or(USUAL);
    Rect::new(0, 0, columns.min(LARGEST.0), lines.min(LARGEST.1))
}
