//! Details of a process: pause lengths by generation, lines with the most GC time, steps, GPU.

use super::ViewFrame;
use super::bottom;
use super::histogram;
use super::log;
use super::name;
use super::plain;
use super::put;
use super::strips;
use super::styled;
use super::title;
use super::top;
use crate::top::view::text;
use crate::top::view::theme;
use crate::units;
use gctrace_analysis::live::ProcessDetail;
use gctrace_analysis::live::ProcessFigures;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Minimum width for two panes side by side.
const SIDE_BY_SIDE: u16 = 70;
/// Number of lines of the strips.
const STRIPS: usize = 4;
/// Maximum width of the histogram.
const HISTOGRAM: u16 = 60;

/// Draws the details. Returns the number of lines that can be scrolled away.
pub(super) fn draw(frame: &ViewFrame<'_>, buffer: &mut Buffer, mut area: Rect) -> usize {
    let heading = top(&mut area, 1);
    let Some(process) = frame.state.process(frame.snapshot) else {
        title(
            frame,
            buffer,
            heading,
            "No process selected",
            "Esc: back",
            true,
        );
        return 0;
    };
    title(frame, buffer, heading, &about(process), "Esc: back", true);
    let detail = frame
        .snapshot
        .detail
        .as_ref()
        .filter(|detail| detail.pid == process.pid);
    let Some(detail) = detail else {
        put(
            buffer,
            area,
            0,
            Line::from(styled("No details yet.", theme::dim())),
        );
        return 0;
    };
    let strips = strips::lines(process, detail, usize::from(area.width));
    let height = u16::try_from(strips.len())
        .unwrap_or(u16::MAX)
        .min(area.height / 2);
    let below = bottom(&mut area, height);
    for (line, row) in strips.into_iter().zip(0..) {
        put(buffer, below, row, line);
    }
    let (left, right) = halves(area);
    histogram::draw(buffer, left, &process.collections.histogram);
    draw_lines(buffer, right, detail, frame.state.scrolled)
}

/// Lines that all details of the selected process need; 0 if none is selected.
pub(super) fn wanted(frame: &ViewFrame<'_>) -> u16 {
    let Some(process) = frame.state.process(frame.snapshot) else {
        return 0;
    };
    let detail = frame.snapshot.detail.as_ref();
    let lines = detail.map_or(0, |detail| detail.lines.len() + 2);
    let upper = histogram::wanted(&process.collections.histogram).max(lines);
    u16::try_from(upper + 1 + STRIPS).unwrap_or(u16::MAX)
}

fn about(process: &ProcessFigures) -> String {
    let mut parts = vec![name(process)];
    if process.rank.is_some() {
        parts.push(format!("pid {}", process.pid));
    }
    if let Some(inner) = process.namespace_pid {
        parts.push(format!("pid {inner} in its container"));
    }
    if !process.interpreter.is_empty() {
        parts.push(format!("CPython {}", text::clean(&process.interpreter)));
    }
    if process.enabled == Some(false) {
        parts.push("GC disabled".to_owned());
    }
    if let Some([young, middle, old]) = process.thresholds {
        parts.push(format!("threshold {young},{middle},{old}"));
    }
    if let Some(bytes) = process
        .pressure
        .and_then(|pressure| pressure.arena_bytes_per_second)
    {
        let sign = if bytes < 0 { "-" } else { "+" };
        parts.push(format!(
            "arenas {sign}{}/s",
            text::memory(bytes.unsigned_abs())
        ));
    }
    if let Some(rate) = process
        .pressure
        .and_then(|pressure| pressure.allocations_per_cpu_second)
    {
        parts.push(format!(
            "~{} allocations per CPU s",
            text::brief_count(rate)
        ));
    }
    parts.join(" · ")
}

/// Two areas side by side, or one below the other if the screen is narrow.
fn halves(mut area: Rect) -> (Rect, Rect) {
    if area.width < SIDE_BY_SIDE {
        let half = area.height / 2;
        return (top(&mut area, half), area);
    }
    let width = (area.width / 2).min(HISTOGRAM);
    let left = Rect { width, ..area };
    let right = Rect {
        x: area.x + width + 1,
        width: area.width - width - 1,
        ..area
    };
    (left, right)
}

/// Draws the table of lines. Returns the number of lines that can be scrolled away.
fn draw_lines(buffer: &mut Buffer, area: Rect, detail: &ProcessDetail, scrolled: usize) -> usize {
    let heading = "GC TIME  PAUSES  LINE WITH MOST GC TIME";
    put(buffer, area, 0, Line::from(styled(heading, theme::bold())));
    let width = usize::from(area.width).saturating_sub(17);
    let mut rows: Vec<Line<'_>> = Vec::new();
    for figures in &detail.lines {
        let place = log::place(&figures.line, figures.below.as_ref(), width);
        rows.push(row(figures.pauses.time_ns, figures.pauses.count, place));
    }
    let other = detail.other_lines;
    if other.count > 0 {
        let words = text::cut("(other or unknown lines)", width);
        rows.push(row(other.time_ns, other.count, words));
    }
    if rows.is_empty() {
        rows.push(Line::from(styled("No collection yet.", theme::dim())));
    }
    let room = usize::from(area.height.saturating_sub(1));
    let most = rows.len().saturating_sub(room);
    for (line, row) in rows
        .into_iter()
        .skip(scrolled.min(most))
        .zip(1..area.height)
    {
        put(buffer, area, row, line);
    }
    most
}

fn row(time_ns: u64, count: u64, place: String) -> Line<'static> {
    let time = text::fill(&units::duration(time_ns), 7, false);
    let count = text::fill(&text::brief_count(count), 7, false);
    Line::from(vec![plain(time), plain(format!(" {count}  {place}"))])
}
