//! The picture: which part stands where. What the parts look like is in the files beside this one.
//!
//! Pure but for the buffer that it fills; every part is drawn within its area, however small that is.

mod detail;
mod footer;
mod header;
mod help;
mod histogram;
mod log;
mod output;
mod processes;
mod strips;

use super::file_tail::FileTail;
use super::state::Focus;
use super::state::Geometry;
use super::state::LowerPane;
use super::state::Overlay;
use super::state::ViewState;
use super::text;
use super::theme;
use super::theme::Theme;
use crate::top::live_handle::LivePhase;
use gctrace_analysis::live::Notice;
use gctrace_analysis::live::ProcessFigures;
use gctrace_analysis::live::Snapshot;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::text::Span;

/// Everything that can be seen.
#[derive(Debug)]
pub(crate) struct ViewFrame<'a> {
    /// The figures.
    pub(crate) snapshot: &'a Snapshot,
    /// What the user has chosen.
    pub(crate) state: &'a ViewState,
    /// Whether there is something to come.
    pub(crate) phase: &'a LivePhase,
    /// The command's output, where there is any.
    pub(crate) tail: Option<&'a FileTail>,
    /// The command, where one was started.
    pub(crate) command: Option<&'a str>,
    /// Seconds that local time is ahead of Greenwich.
    pub(crate) utc_offset_s: i64,
    /// What the terminal can show.
    pub(crate) theme: Theme,
}

/// From this height on there is more than a table.
const WITH_LOWER: u16 = 12;
/// From this height on GPUs have a line of their own.
const WITH_GPUS: u16 = 18;
/// From this height on the details leave room for the log below them.
const WITH_BOTH: u16 = 40;
/// Lines of the details that are worth having; more where the screen is high.
const DETAIL: u16 = 13;

/// Draws; says where things are.
pub(crate) fn draw(picture: &ViewFrame<'_>, buffer: &mut Buffer) -> Geometry {
    let screen = buffer.area;
    let mut left = screen;
    let heads = header::lines(picture, screen);
    header::draw(&heads, buffer, top(&mut left, length(&heads)));
    let feet = footer::lines(picture, screen);
    let foot = bottom(&mut left, length(&feet));
    for (line, row) in feet.into_iter().zip(0..) {
        put(buffer, foot, row, line);
    }
    let head = top(&mut left, 1);
    let height = lower_height(picture, screen.height, left.height);
    let lower = bottom(&mut left, height);
    let mut geometry = processes::draw(picture, buffer, head, left);
    geometry.lower = lower;
    geometry.most_scrolled = draw_lower(picture, buffer, lower);
    geometry.most_of_help = help::most_scrolled(screen);
    match &picture.state.overlay {
        Overlay::Help(from) => help::draw(buffer, screen, *from),
        Overlay::Sort(chosen) => help::draw_sort_menu(buffer, screen, *chosen),
        _ => {}
    }
    picture.theme.finish(buffer);
    geometry
}

fn length<T>(lines: &[T]) -> u16 {
    u16::try_from(lines.len()).unwrap_or(u16::MAX)
}

/// Lines below the table: what the table does not need, but at least what makes them worth having.
fn lower_height(picture: &ViewFrame<'_>, screen: u16, left: u16) -> u16 {
    let lower = picture.state.lower;
    if screen < WITH_LOWER && lower == LowerPane::Log {
        return 0;
    }
    let least = match lower {
        LowerPane::Log => (left / 3).max(4),
        LowerPane::Detail => DETAIL.max(left / 2),
        LowerPane::Output | LowerPane::Notices => (left / 2).max(4),
    };
    let rows = length(&picture.state.rows).max(1);
    let spare = left.saturating_sub(rows);
    let most = left.saturating_sub(if left > 6 { 3 } else { 1 });
    spare.max(least).min(most)
}

/// How many lines of it can be scrolled away.
fn draw_lower(picture: &ViewFrame<'_>, buffer: &mut Buffer, mut area: Rect) -> usize {
    match picture.state.lower {
        LowerPane::Log => log::draw(picture, buffer, area, true),
        LowerPane::Output => output::draw(picture, buffer, area),
        LowerPane::Notices => output::draw_notices(picture, buffer, area),
        LowerPane::Detail => {
            if buffer.area.height >= WITH_BOTH && area.height > DETAIL + 5 {
                let most = (area.height / 4 * 3).min(detail::wanted(picture).max(DETAIL));
                let scrolled = detail::draw(picture, buffer, top(&mut area, most));
                log::draw(picture, buffer, area, false);
                scrolled
            } else {
                detail::draw(picture, buffer, area)
            }
        }
    }
}

/// Takes lines from the top of an area.
fn top(area: &mut Rect, height: u16) -> Rect {
    let height = height.min(area.height);
    let taken = Rect { height, ..*area };
    area.y = area.y.saturating_add(height);
    area.height -= height;
    taken
}

/// Takes lines from the bottom of an area.
fn bottom(area: &mut Rect, height: u16) -> Rect {
    let height = height.min(area.height);
    area.height -= height;
    Rect {
        y: area.y.saturating_add(area.height),
        height,
        ..*area
    }
}

/// Writes a line into row `row` of an area, cut at its right; nothing where there is no such row.
fn put(buffer: &mut Buffer, area: Rect, row: u16, line: Line<'_>) {
    let area = area.intersection(buffer.area);
    if row < area.height && area.width > 0 {
        buffer.set_line(area.x, area.y + row, &line, area.width);
    }
}

/// As [`put`], from column `x` of the area on.
fn put_at(buffer: &mut Buffer, area: Rect, (x, row): (u16, u16), line: Line<'_>) {
    let part = Rect {
        x: area.x.saturating_add(x),
        width: area.width.saturating_sub(x),
        ..area
    };
    if part.width > 0 {
        put(buffer, part, row, line);
    }
}

/// A title with a rule through the whole width; bold where keys go there.
fn title(
    picture: &ViewFrame<'_>,
    buffer: &mut Buffer,
    area: Rect,
    words: &str,
    hint: &str,
    focused: bool,
) {
    let width = usize::from(area.width);
    let focused = focused && picture.state.focus == Focus::Lower;
    let words = text::cut(&format!("── {words} "), width);
    let hint = if hint.is_empty() {
        String::new()
    } else {
        format!(" {hint} ──")
    };
    let rule = width.saturating_sub(text::width(&words) + text::width(&hint));
    let hint = if text::width(&words) + text::width(&hint) > width {
        String::new()
    } else {
        hint
    };
    let rule = "─".repeat(rule);
    let style = if focused {
        theme::reversed()
    } else {
        theme::bold()
    };
    let line = Line::from(vec![
        Span::styled(words, style),
        Span::styled(rule, theme::dim()),
        Span::styled(hint, theme::dim()),
    ]);
    put(buffer, area, 0, line);
}

/// What people call a process: its rank, or its id.
fn name(process: &ProcessFigures) -> String {
    name_of(process.rank, process.pid)
}

fn name_of(rank: Option<u32>, pid: u32) -> String {
    rank.map_or_else(|| format!("pid {pid}"), |rank| format!("rank {rank}"))
}

/// What gctrace has to say, and of whom.
fn notice_words(snapshot: &Snapshot, notice: &Notice) -> String {
    let message = text::clean(&notice.message);
    let Some(pid) = notice.pid else {
        return message;
    };
    let mut processes = snapshot.processes.iter();
    let process = processes.find(|process| process.pid == pid);
    let rank = process.and_then(|process| process.rank);
    format!("{}: {message}", name_of(rank, pid))
}

/// A sentence, with as many more parts as there is room for.
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

/// Height of a bar of eight steps for a share of 1.
const BARS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// The bar for `part` of `whole`: blank for nothing, at least the lowest for anything.
fn bar(part: u64, whole: u64) -> &'static str {
    if part == 0 || whole == 0 {
        return " ";
    }
    let eighths = u128::from(part)
        .saturating_mul(8)
        .div_ceil(u128::from(whole));
    let index = usize::try_from(eighths).unwrap_or(usize::MAX);
    BARS.get(index.clamp(1, 8)).copied().unwrap_or(" ")
}

#[cfg(test)]
pub(crate) mod tests;
