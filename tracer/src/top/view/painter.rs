//! Draws frames: writes only the cells that changed.
//!
//! Not ratatui's `Terminal`: its `clear`, which also runs at every resize, queries the cursor
//! position and reads the reply from the keyboard input (ratatui-core 0.1.2, `terminal/buffers.rs`).

use super::terminal::FrameWriter;
use ratatui::backend::Backend as _;
use ratatui::backend::ClearType;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::io;

/// Maximum columns and lines that are drawn.
const LARGEST: (u16, u16) = (1000, 400);
/// Size for a terminal that does not report its size.
const USUAL: (u16, u16) = (80, 24);

/// The content of the screen, and the next frame.
#[derive(Debug)]
pub(crate) struct Painter {
    backend: CrosstermBackend<FrameWriter>,
    shown: Buffer,
    next: Buffer,
    stale: bool,
}

impl Painter {
    /// For a screen with unknown content.
    pub(crate) fn new(writer: FrameWriter) -> Self {
        Self {
            backend: CrosstermBackend::new(writer),
            shown: Buffer::default(),
            next: Buffer::default(),
            stale: true,
        }
    }

    /// Marks the content of the screen as unknown: the next frame repaints everything.
    pub(crate) fn invalidate(&mut self) {
        self.stale = true;
    }

    /// Draws a frame of this size.
    pub(crate) fn paint(
        &mut self,
        size: (u16, u16),
        draw: impl FnOnce(&mut Buffer),
    ) -> io::Result<()> {
        let area = area(size);
        self.next.resize(area);
        self.next.reset();
        draw(&mut self.next);
        if self.stale || self.shown.area != area {
            self.backend.clear_region(ClearType::All)?;
            self.shown.resize(area);
            self.shown.reset();
        }
        self.stale = true;
        let changes = self.shown.diff(&self.next);
        if !changes.is_empty() {
            self.backend.draw(changes.into_iter())?;
        }
        self.backend.flush()?;
        self.stale = false;
        std::mem::swap(&mut self.shown, &mut self.next);
        Ok(())
    }
}

fn area((columns, lines): (u16, u16)) -> Rect {
    let (columns, lines) = if columns == 0 || lines == 0 {
        USUAL
    } else {
        (columns, lines)
    };
    Rect::new(0, 0, columns.min(LARGEST.0), lines.min(LARGEST.1))
}
