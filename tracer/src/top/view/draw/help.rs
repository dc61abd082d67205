//! Overlays: the help (keys and columns), and the sort menu.

use super::{bottom, plain, put, put_lines, put_scrolled, styled, top};
use crate::top::view::{columns, keys, text, theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Clear, Widget as _};

/// Draws the help on the whole screen, from line `from` on.
pub(super) fn draw(buffer: &mut Buffer, screen: Rect, from: usize) {
    Clear.render(screen, buffer);
    let (body, last) = bottom(screen, 1);
    let words = if from < put_scrolled(buffer, body, lines(), from) {
        "Down: more  Any other key: back"
    } else {
        "Any key: back"
    };
    put(buffer, last, 0, styled(words, theme::reversed()));
}

/// Maximum number of lines that can be scrolled away.
pub(super) fn most_scrolled(screen: Rect) -> usize {
    text::rest(lines().len(), bottom(screen, 1).0.height.into())
}

fn lines() -> Vec<Line<'static>> {
    let mut lines = vec![Line::from(styled("gctrace top: keys", theme::bold()))];
    for (keys, meaning) in keys::HELP {
        lines.push(Line::from(vec![styled(format!("  {keys:<15}"), theme::key()), plain(meaning)]));
    }
    lines.push(Line::default());
    lines.push(Line::from(styled("Columns", theme::bold())));
    for column in columns::COLUMNS {
        lines.push(Line::from(vec![
            styled(format!("  {:<15}", column.title), theme::key()),
            plain(column.meaning()),
        ]));
    }
    lines.push(Line::default());
    lines.push(Line::from(styled("Marks", theme::bold())));
    for (mark, meaning) in [
        ("~", "sampled or inferred; everything else is measured"),
        ("-", "unknown"),
        ("c", "GPU index by CUDA in the process, not by NVML"),
        ("yellow, red", "at least 1 % or 5 % of the time; red: pauses of 100 ms or more"),
    ] {
        lines.push(Line::from(vec![styled(format!("  {mark:<15}"), theme::key()), plain(meaning)]));
    }
    lines
}

/// Draws the sort menu in the middle of the screen.
pub(super) fn draw_sort_menu(buffer: &mut Buffer, screen: Rect, chosen: usize) {
    let columns = columns::COLUMNS.iter().enumerate();
    let lines = columns.map(|(index, column)| {
        let style = if index == chosen { theme::reversed() } else { theme::bold() };
        styled(format!("  {:<24}", column.title), style)
    });
    let height = text::cells(lines.len() + 2).min(screen.height);
    let width = 26.min(screen.width);
    let area = Rect {
        x: screen.x + (screen.width - width) / 2,
        y: screen.y + (screen.height - height) / 2,
        width,
        height,
    };
    Clear.render(area, buffer);
    let (head, left) = top(area, 1);
    let (body, last) = bottom(left, 1);
    let bar = |words: &str| styled(format!("{words:<26}"), theme::reversed());
    put(buffer, head, 0, bar(" Sort by"));
    let from = text::rest(chosen + 1, body.height.into());
    put_lines(buffer, body, lines.skip(from));
    put(buffer, last, 0, bar(" Enter: select  Esc: back"));
}
