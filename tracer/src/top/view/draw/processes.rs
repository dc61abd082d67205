//! The table of processes.

use super::{ViewFrame, put, put_at, styled};
use crate::top::view::columns::{Column, ColumnPosition};
use crate::top::view::state::{Focus, Geometry};
use crate::top::view::{columns, text, theme};
use gctrace_analysis::live::{HISTORY_SECONDS, ProcessFigures};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

/// Draws titles and rows. Returns their positions.
pub(super) fn draw(frame: &ViewFrame<'_>, buffer: &mut Buffer, head: Rect, body: Rect) -> Geometry {
    let state = frame.state;
    let places = columns::places(body.width, state.columns_from, frame.snapshot);
    draw_head(frame, buffer, head, &places);
    let first = first_row(state.row, state.rows.len(), body.height);
    let shown = state.rows.iter().enumerate().skip(first);
    for ((position, index), row) in shown.zip(0..body.height) {
        if let Some(process) = frame.snapshot.processes.get(*index) {
            draw_row(frame, buffer, (body, row), &places, process);
            if position == state.row {
                choose(frame, buffer, body, row);
            }
        }
    }
    if state.rows.is_empty() && !state.filter.is_empty() {
        let words =
            format!("Nothing matches \"{}\"; Esc clears the filter.", text::clean(&state.filter));
        put(buffer, body, 0, styled(words, theme::dim()));
    }
    Geometry { head: head.y, body, places, first, ..Geometry::default() }
}

/// The first visible row, such that the selected one is visible.
fn first_row(chosen: usize, rows: usize, height: u16) -> usize {
    let height = usize::from(height);
    // In a list longer than the screen, the selected row stays in the middle.
    text::rest(chosen, height / 2).min(text::rest(rows, height))
}

fn draw_head(frame: &ViewFrame<'_>, buffer: &mut Buffer, area: Rect, places: &[ColumnPosition]) {
    if area.height == 0 {
        return;
    }
    buffer.set_style(area, theme::reversed());
    let sort = frame.state.sort;
    for place in places {
        let by = sort.by == place.column;
        let mut title = place.column.def().title.to_owned();
        let width = usize::from(place.width);
        if by {
            title.truncate(text::rest(width, 1));
            title += if sort.reverse { "▲" } else { "▼" };
        }
        let title = text::fill(&title, width, place.column.is_left());
        let style =
            if by { theme::reversed().add_modifier(Modifier::BOLD) } else { theme::reversed() };
        put_at(buffer, area, (place.x, 0), styled(title, style));
    }
    if frame.state.columns_from > 0 {
        put(buffer, area, 0, styled("‹", theme::reversed()));
    }
}

fn draw_row(
    frame: &ViewFrame<'_>,
    buffer: &mut Buffer,
    (body, row): (Rect, u16),
    places: &[ColumnPosition],
    process: &ProcessFigures,
) {
    let ended = process.ended.is_some();
    for place in places {
        let width = usize::from(place.width);
        let line = if place.column == Column::History {
            Line::from(history(process, width))
        } else {
            let (cell, style) = columns::cell(place.column, process, frame.snapshot);
            let style = if ended { theme::dim() } else { style };
            Line::from(styled(text::fill(&cell, width, place.column.is_left()), style))
        };
        put_at(buffer, body, (place.x, row), line);
    }
}

/// Marks the selected row: reversed if the table has the focus, otherwise bold.
fn choose(frame: &ViewFrame<'_>, buffer: &mut Buffer, body: Rect, row: u16) {
    let style = match frame.state.focus {
        Focus::Table => theme::reversed(),
        Focus::Lower => theme::bold(),
    };
    for area in body.rows().skip(row.into()).take(1) {
        buffer.set_style(area, style);
    }
}

/// Upper bounds of the steps in ns per second, the same for all rows so that they are comparable.
const STEPS_NS: [u64; 7] =
    [1_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000, 100_000_000, 250_000_000];

/// The bars of the last minute, several seconds per cell.
fn history(process: &ProcessFigures, width: usize) -> Vec<Span<'static>> {
    let per_cell = HISTORY_SECONDS.div_ceil(width.max(1));
    let mean = |seconds: &[u64]| seconds.iter().sum::<u64>() / seconds.len() as u64;
    let means: Vec<u64> = process.history_ns.rchunks(per_cell).take(width).map(mean).collect();
    let blank = width - means.len();
    let mut spans = vec![Span::raw(" ".repeat(blank))];
    spans.extend(means.into_iter().rev().map(|ns| {
        let step = STEPS_NS.iter().filter(|bound| ns >= **bound).count();
        let index = if ns == 0 { 0 } else { step + 1 };
        let style = theme::by_share(ns / 1000).remove_modifier(Modifier::BOLD);
        styled(super::BARS[index], style)
    }));
    spans
}
