//! Layout of a frame. The files beside this one draw its parts.
//!
//! Pure except for the buffer that it fills; every part stays within its area, however small.

mod detail;
mod footer;
mod garbage;
mod header;
mod help;
mod histogram;
mod layers;
mod log;
mod output;
mod processes;
mod strips;

use super::file_tail::FileTail;
use super::state::{Focus, Geometry, LowerPane, Overlay, ViewState};
use super::theme::Theme;
use super::{text, theme};
use crate::top::live_handle::LivePhase;
use gctrace_analysis::live::{Notice, ProcessFigures, Snapshot};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// All input of a frame; drawing does not change it.
#[derive(Debug)]
pub(crate) struct ViewFrame<'a> {
    /// The figures to show, all as of one time.
    pub(crate) snapshot: &'a Snapshot,
    /// The user's choices: order, filter, selection, panes.
    pub(crate) state: &'a ViewState,
    /// Whether the figures still change; if not, why the recording ended.
    pub(crate) phase: &'a LivePhase,
    /// The command's output, if it goes to a file.
    pub(crate) tail: Option<&'a FileTail>,
    /// The command, if one was started.
    pub(crate) command: Option<&'a str>,
    /// UTC offset of local time in seconds.
    pub(crate) utc_offset_s: i64,
    /// Capabilities of the terminal; drawing itself assumes all of them.
    pub(crate) theme: Theme,
}

/// Minimum screen height for a pane below the table.
const WITH_LOWER: u16 = 12;
/// Minimum screen height for the line of GPUs.
const WITH_GPUS: u16 = 18;
/// Minimum screen height for details with the log below them.
const WITH_BOTH: u16 = 40;
/// Minimum useful height of the details.
const DETAIL: u16 = 13;

/// Draws a frame. Returns the positions of its parts.
pub(crate) fn draw(frame: &ViewFrame<'_>, buffer: &mut Buffer) -> Geometry {
    let screen = buffer.area;
    let heads = header::lines(frame, screen);
    let feet = footer::lines(frame, screen);
    let (header, left) = top(screen, length(&heads));
    let (left, foot) = bottom(left, length(&feet));
    let (head, left) = top(left, 1);
    let (body, lower) = bottom(left, lower_height(frame, screen.height, left.height));
    put_lines(buffer, header, heads);
    put_lines(buffer, foot, feet);
    let mut geometry = processes::draw(frame, buffer, head, body);
    geometry.lower = lower;
    geometry.most_scrolled = draw_lower(frame, buffer, lower);
    geometry.most_of_help = help::most_scrolled(screen);
    match &frame.state.overlay {
        Overlay::Help(from) => help::draw(buffer, screen, *from),
        Overlay::Sort(chosen) => help::draw_sort_menu(buffer, screen, *chosen),
        _ => {}
    }
    frame.theme.finish(buffer);
    geometry
}

/// The number of lines, or the largest height of an area.
fn length<T>(lines: &[T]) -> u16 {
    text::cells(lines.len())
}

/// Height of the lower pane: the rest below the table, but at least a useful minimum.
fn lower_height(frame: &ViewFrame<'_>, screen: u16, left: u16) -> u16 {
    let lower = frame.state.lower;
    if screen < WITH_LOWER && lower == LowerPane::Log {
        return 0;
    }
    let least = match lower {
        LowerPane::Log => (left / 3).max(4),
        LowerPane::Detail => DETAIL.max(left / 2),
        LowerPane::Output | LowerPane::Notices => (left / 2).max(4),
    };
    // Three rows of the table stay, or one on a small screen.
    let kept = if left > 6 { 3 } else { 1 };
    let (_, spare) = top(Rect::new(0, 0, 1, left), length(&frame.state.rows).max(1));
    spare.height.max(least).min(left.max(kept) - kept)
}

/// Draws the lower pane. Returns the number of lines that can be scrolled away.
fn draw_lower(frame: &ViewFrame<'_>, buffer: &mut Buffer, area: Rect) -> usize {
    match frame.state.lower {
        LowerPane::Log => log::draw(frame, buffer, area, true),
        LowerPane::Output => output::draw(frame, buffer, area),
        LowerPane::Notices => output::draw_notices(frame, buffer, area),
        LowerPane::Detail => {
            if buffer.area.height >= WITH_BOTH && area.height > DETAIL + 5 {
                let most = (area.height / 4 * 3).min(detail::wanted(frame).max(DETAIL));
                let (upper, lower) = top(area, most);
                let scrolled = detail::draw(frame, buffer, upper);
                log::draw(frame, buffer, lower, false);
                scrolled
            } else {
                detail::draw(frame, buffer, area)
            }
        }
    }
}

/// Splits at most `height` lines off the top of an area. Not by a `Layout`: its solver takes far longer than the rest
/// of a frame.
fn top(area: Rect, height: u16) -> (Rect, Rect) {
    let upper = Rect { height: height.min(area.height), ..area };
    let lower = Rect { y: upper.bottom(), height: area.height - upper.height, ..area };
    (upper, lower)
}

/// Splits at most `height` lines off the bottom of an area.
fn bottom(area: Rect, height: u16) -> (Rect, Rect) {
    top(area, area.height - height.min(area.height))
}

/// Writes a line into row `row` of an area, clipped; does nothing if there is no such row.
fn put<'a>(buffer: &mut Buffer, area: Rect, row: u16, line: impl Into<Line<'a>>) {
    put_at(buffer, area, (0, row), line);
}

/// Like [`put`], starting at column `x` of the area.
fn put_at<'a>(buffer: &mut Buffer, area: Rect, (x, row): (u16, u16), line: impl Into<Line<'a>>) {
    let area = area.intersection(buffer.area);
    if x < area.width && row < area.height {
        buffer.set_line(area.x + x, area.y + row, &line.into(), area.width - x);
    }
}

/// Writes lines into the rows of an area, as many as there are.
fn put_lines<'a>(
    buffer: &mut Buffer,
    area: Rect,
    lines: impl IntoIterator<Item = impl Into<Line<'a>>>,
) {
    for (line, row) in lines.into_iter().zip(0..area.height) {
        put(buffer, area, row, line);
    }
}

/// Writes the lines after the first `scrolled`. Returns the number that can be scrolled away.
fn put_scrolled<'a>(
    buffer: &mut Buffer,
    area: Rect,
    lines: Vec<impl Into<Line<'a>>>,
    scrolled: usize,
) -> usize {
    let most = text::rest(lines.len(), area.height.into());
    put_lines(buffer, area, lines.into_iter().skip(scrolled.min(most)));
    most
}

/// Draws the title of a pane with a rule across the width; reversed if the pane has the focus.
/// Returns the area below it.
fn title(
    frame: &ViewFrame<'_>,
    buffer: &mut Buffer,
    area: Rect,
    (words, hint): (&str, &str),
    focused: bool,
) -> Rect {
    let (area, below) = top(area, 1);
    let width = usize::from(area.width);
    let focused = focused && frame.state.focus == Focus::Lower;
    let words = text::cut(&format!("── {words} "), width);
    let hint = if hint.is_empty() { String::new() } else { format!(" {hint} ──") };
    let used = text::width(&words) + text::width(&hint);
    let rule = "─".repeat(text::rest(width, used));
    let hint = if used > width { String::new() } else { hint };
    let style = if focused { theme::reversed() } else { theme::bold() };
    let line = Line::from(vec![
        Span::styled(words, style),
        Span::styled(rule, theme::dim()),
        Span::styled(hint, theme::dim()),
    ]);
    put(buffer, area, 0, line);
    below
}

/// Name of a process: its rank, or else its pid.
fn name(process: &ProcessFigures) -> String {
    name_of(process.rank, process.pid)
}

fn name_of(rank: Option<u32>, pid: u32) -> String {
    if let Some(rank) = rank { format!("rank {rank}") } else { format!("pid {pid}") }
}

/// A notice, with the name of its process, if any.
fn notice_words(snapshot: &Snapshot, notice: &Notice) -> String {
    let message = text::clean(&notice.message);
    let Some(pid) = notice.pid else { return message };
    let mut processes = snapshot.processes.iter();
    let process = processes.find(|process| process.pid == pid);
    let rank = process.and_then(|process| process.rank);
    format!("{}: {message}", name_of(rank, pid))
}

/// A sentence, followed by as many parts as fit.
fn with_parts(
    mut spans: Vec<Span<'static>>,
    parts: impl IntoIterator<Item = String>,
    width: usize,
) -> Line<'static> {
    let mut used: usize = spans.iter().map(|span| text::width(&span.content)).sum();
    for part in parts {
        let part = format!(" · {part}");
        used += text::width(&part);
        if used > width {
            break;
        }
        spans.push(plain(part));
    }
    Line::from(spans)
}

fn plain(words: impl Into<String>) -> Span<'static> {
    Span::raw(words.into())
}

fn styled(words: impl Into<String>, style: Style) -> Span<'static> {
    Span::styled(words.into(), style)
}

/// Bars of 0 to 8 eighths of a cell.
const BARS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// The bar for `part` / `whole`: empty only for 0.
fn bar(part: u64, whole: u64) -> &'static str {
    if part == 0 || whole == 0 {
        return " ";
    }
    let eighths = (u128::from(part.min(whole)) * 8).div_ceil(u128::from(whole));
    BARS[eighths as usize]
}

#[cfg(test)]
pub(crate) mod tests;
