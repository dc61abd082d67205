//! Overlays: the help (keys and columns), and the sort menu.

use super::plain;
use super::put;
use super::styled;
use crate::top::view::columns;
use crate::top::view::keys;
use crate::top::view::theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Draws the help on the whole screen, from line `from` on.
pub(super) fn draw(buffer: &mut Buffer, screen: Rect, from: usize) {
    clear(buffer, screen);
    let lines = lines();
    let height = usize::from(screen.height.saturating_sub(1));
    let from = from.min(lines.len().saturating_sub(height));
    let more = lines.len() > from + height;
    for (line, row) in lines
        .into_iter()
        .skip(from)
        .zip(0..screen.height.saturating_sub(1))
    {
        put(buffer, screen, row, line);
    }
    let words = if more {
        "Down: more  Any other key: back"
    } else {
        "Any key: back"
    };
    let last = screen.height.saturating_sub(1);
    put(
        buffer,
        screen,
        last,
        Line::from(styled(words, theme::reversed())),
    );
}

/// Maximum number of lines that can be scrolled away.
pub(super) fn most_scrolled(screen: Rect) -> usize {
    let height = usize::from(screen.height.saturating_sub(1));
    lines().len().saturating_sub(height)
}

fn lines() -> Vec<Line<'static>> {
    let mut lines = vec![Line::from(styled("gctrace top: keys", theme::bold()))];
    for (keys, meaning) in keys::HELP {
        lines.push(Line::from(vec![
            styled(format!("  {keys:<15}"), theme::key()),
            plain(meaning),
        ]));
    }
    lines.push(Line::default());
    lines.push(Line::from(styled("Columns", theme::bold())));
    for column in columns::COLUMNS {
        lines.push(Line::from(vec![
            styled(format!("  {:<15}", column.title), theme::key()),
            plain(column.meaning),
        ]));
    }
    lines.push(Line::default());
    lines.push(Line::from(styled("Marks", theme::bold())));
    for (mark, meaning) in [
        ("~", "sampled or inferred; everything else is measured"),
        ("-", "unknown"),
        ("c", "GPU index by CUDA in the process, not by NVML"),
        (
            "yellow, red",
            "at least 1 % or 5 % of the time; red: pauses of 100 ms or more",
        ),
    ] {
        lines.push(Line::from(vec![
            styled(format!("  {mark:<15}"), theme::key()),
            plain(meaning),
        ]));
    }
    lines
}

/// Draws the sort menu in the middle of the screen.
pub(super) fn draw_sort_menu(buffer: &mut Buffer, screen: Rect, chosen: usize) {
    let columns = columns::COLUMNS;
    let height = u16::try_from(columns.len() + 2)
        .unwrap_or(u16::MAX)
        .min(screen.height);
    let width = 26.min(screen.width);
    let area = Rect {
        x: screen.x + (screen.width - width) / 2,
        y: screen.y + (screen.height - height) / 2,
        width,
        height,
    };
    clear(buffer, area);
    put(
        buffer,
        area,
        0,
        Line::from(styled(format!("{:<26}", " Sort by"), theme::reversed())),
    );
    let room = usize::from(height.saturating_sub(2));
    let from = chosen.saturating_sub(room.saturating_sub(1));
    for ((index, column), row) in columns
        .iter()
        .enumerate()
        .skip(from)
        .zip(1..height.saturating_sub(1))
    {
        let words = format!("  {:<24}", column.title);
        let style = if index == chosen {
            theme::reversed()
        } else {
            theme::bold()
        };
        put(buffer, area, row, Line::from(styled(words, style)));
    }
    let last = height.saturating_sub(1);
    put(
        buffer,
        area,
        last,
        Line::from(styled(
            format!("{:<26}", " Enter: select  Esc: back"),
            theme::reversed(),
        )),
    );
}

fn clear(buffer: &mut Buffer, area: Rect) {
    for position in area.intersection(buffer.area).positions() {
        if let Some(cell) = buffer.cell_mut(position) {
            cell.reset();
        }
    }
}
