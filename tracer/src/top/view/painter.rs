//! From one picture to the next: writes only the cells that are others.
//!
//! Not ratatui's `Terminal`: its `clear`, at every change of size too, asks the terminal where its cursor is and reads
//! the answer from the keyboard (ratatui-core 0.1.2, `terminal/buffers.rs`).

use super::terminal::FrameWriter;
use ratatui::backend::Backend as _;
use ratatui::backend::ClearType;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::io;

/// Most columns and lines that are drawn: more has no screen.
const LARGEST: (u16, u16) = (1000, 400);
/// What is drawn for a terminal that does not know its size.
const USUAL: (u16, u16) = (80, 24);

/// What is on the screen, and how to change it.
#[derive(Debug)]
pub(crate) struct Painter {
    backend: CrosstermBackend<FrameWriter>,
    shown: Buffer,
    next: Buffer,
    stale: bool,
}

impl Painter {
    /// For a screen of which nothing is known.
    pub(crate) fn new(writer: FrameWriter) -> Self {
        Self {
            backend: CrosstermBackend::new(writer),
            shown: Buffer::default(),
            next: Buffer::default(),
            stale: true,
        }
    }

    /// Nothing that is on the screen can be relied on any more.
    pub(crate) fn forget(&mut self) {
        self.stale = true;
    }

    /// Draws a picture of this size.
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
