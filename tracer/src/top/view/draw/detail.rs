//! Details of a process: pause lengths by generation, lines with the most GC time, objects freed by the collector,
//! memory by layer, steps, GPU.

use super::{
    ViewFrame, bottom, garbage, histogram, layers, length, log, name, plain, put, put_lines,
    put_scrolled, strips, styled, title, top,
};
use crate::top::view::{text, theme};
use crate::units;
use gctrace_analysis::live::{
    AutoFigures, LastLongTurn, LoopFigures, ProcessDetail, ProcessFigures, SavedTime,
};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Minimum width for two panes side by side.
const SIDE_BY_SIDE: u16 = 70;
/// Number of lines of the strips.
const STRIPS: usize = 5;
/// Lines of the program that stay if there is no room for all lines and the rest below them.
const LEAST_LINES: usize = 5;
/// Maximum width of the histogram.
const HISTOGRAM: u16 = 60;

/// Draws the details. Returns the number of lines that can be scrolled away.
pub(super) fn draw(frame: &ViewFrame<'_>, buffer: &mut Buffer, area: Rect) -> usize {
    let process = frame.state.process(frame.snapshot);
    let heading = if let Some(of) = process { about(of) } else { "No process selected".to_owned() };
    let area = title(frame, buffer, area, (&heading, "Esc: back"), true);
    let Some(process) = process else { return 0 };
    let detail = frame.snapshot.detail.as_ref();
    let Some(detail) = detail.filter(|detail| detail.pid == process.pid) else {
        put(buffer, area, 0, styled("No details yet.", theme::dim()));
        return 0;
    };
    let strips = strips::lines(process, detail, usize::from(area.width));
    let (area, below) = bottom(area, length(&strips).min(area.height / 2));
    put_lines(buffer, below, strips);
    let (left, right) = halves(area);
    histogram::draw(buffer, left, &process.collections.histogram);
    let width = usize::from(right.width);
    // Layers are measured only if asked for.
    let mut below = layers::lines(detail, width);
    below.extend(garbage::lines(process, detail, width));
    draw_lines(buffer, right, (detail, below), frame.state.scrolled)
}

/// Lines that all details of the selected process need; 0 if none is selected.
pub(super) fn wanted(frame: &ViewFrame<'_>) -> u16 {
    let Some(process) = frame.state.process(frame.snapshot) else { return 0 };
    let detail = frame.snapshot.detail.as_ref();
    let lines = detail.map(|detail| {
        let garbage = garbage::lines(process, detail, 0).len();
        detail.lines.len() + 2 + garbage + layers::lines(detail, 0).len()
    });
    let histogram = histogram::wanted(&process.collections.histogram);
    text::cells(lines.unwrap_or(histogram).max(histogram) + 1 + STRIPS)
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
    if let Some(auto) = &process.auto {
        parts.push(text::clean(&search(auto)));
    }
    if let Some(turns) = &process.turns {
        parts.push(of_loop(turns));
    }
    if let Some(pressure) = &process.pressure
        && let Some(bytes) = pressure.arena_bytes_per_second
    {
        let sign = if bytes < 0 { "-" } else { "+" };
        let size = text::memory(bytes.unsigned_abs());
        parts.push(format!("arenas {sign}{size}/s"));
    }
    if let Some(pressure) = &process.pressure
        && let Some(rate) = pressure.allocations_per_cpu_second
    {
        let rate = text::brief_count(rate);
        parts.push(format!("~{rate} allocations per CPU s"));
    }
    parts.join(" · ")
}

/// `loop: 5,244 turns, p99 8.45 ms, longest 91.0 ms; last long turn 68.6 ms, 61.5 ms in a collection`.
fn of_loop(of: &LoopFigures) -> String {
    let p99 = of.p99_ns.map(|ns| format!(", p99 {}", units::duration(ns)));
    let mut text = format!(
        "loop: {} turns{}, longest {}",
        units::count(of.turns),
        gctrace_units::if_known(p99),
        units::duration(of.longest_ns)
    );
    if let Some(LastLongTurn { length_ns, cause, cause_ns }) = of.last_long {
        let (length, part) = (units::duration(length_ns), units::duration(cause_ns));
        text += &format!("; last long turn {length}, {part} {cause}");
    }
    text
}

/// `auto: holding threshold=50000,10,10, saved 12.1 s (10.0 s .. 14.2 s, 95 %)`.
fn search(auto: &AutoFigures) -> String {
    let mut text = format!("auto: {}", auto.state.replace('_', " "));
    if let Some(setting) = &auto.setting {
        text += &format!(" {setting}");
    }
    if let Some(SavedTime { mean_ns, low_ns, high_ns }) = auto.saved {
        let verb = if mean_ns < 0 { "lost" } else { "saved" };
        text += &format!(
            ", {verb} {} ({} .. {}, 95 %)",
            units::duration(mean_ns.unsigned_abs()),
            units::signed_duration(low_ns),
            units::signed_duration(high_ns)
        );
    }
    text
}

/// Two areas side by side, or one below the other if the screen is narrow.
fn halves(area: Rect) -> (Rect, Rect) {
    if area.width < SIDE_BY_SIDE {
        return top(area, area.height / 2);
    }
    let width = (area.width / 2).min(HISTOGRAM);
    let left = Rect { width, ..area };
    let right = Rect { x: left.right() + 1, width: area.width - width - 1, ..area };
    (left, right)
}

/// Draws the table of lines, and `below` it the other facts. Returns the number of lines that can be scrolled away.
/// Before any scrolling, lines of the program are summed up if the rest below them needs the room.
fn draw_lines(
    buffer: &mut Buffer,
    area: Rect,
    (detail, below): (&ProcessDetail, Vec<Line<'static>>),
    scrolled: usize,
) -> usize {
    let heading = "GC TIME  PAUSES  LINE WITH MOST GC TIME";
    let (head, body) = top(area, 1);
    put(buffer, head, 0, styled(heading, theme::bold()));
    let width = text::rest(area.width.into(), 17);
    let of_lines = detail.lines.len() + usize::from(detail.other_lines.count > 0);
    let all = of_lines.max(1) + below.len();
    let room = text::rest(body.height.into(), below.len() + 1).max(LEAST_LINES);
    let is_folded = scrolled == 0 && all > usize::from(body.height) && !below.is_empty();
    let shown = if is_folded { room.min(detail.lines.len()) } else { detail.lines.len() };
    let (shown, folded) = detail.lines.split_at(shown);
    let mut rows: Vec<Line<'_>> = Vec::new();
    for figures in shown {
        let place = log::place(&figures.line, figures.below.as_ref(), width);
        rows.push(row(figures.pauses.time_ns, figures.pauses.count, place));
    }
    let mut other = detail.other_lines;
    for figures in folded {
        other.count += figures.pauses.count;
        other.time_ns += figures.pauses.time_ns;
    }
    if other.count > 0 {
        let words = text::cut("(other or unknown lines)", width);
        rows.push(row(other.time_ns, other.count, words));
    }
    if rows.is_empty() {
        rows.push(Line::from(styled("No collection yet.", theme::dim())));
    }
    rows.extend(below);
    put_scrolled(buffer, body, rows, scrolled);
    text::rest(all, body.height.into())
}

fn row(time_ns: u64, count: u64, place: String) -> Line<'static> {
    let time = text::fill(&units::duration(time_ns), 7, false);
    let count = text::fill(&text::brief_count(count), 7, false);
    Line::from(vec![plain(time), plain(format!(" {count}  {place}"))])
}
