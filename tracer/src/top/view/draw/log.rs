//! The log of long pauses, newest first.

use super::{ViewFrame, name_of, plain, put, put_lines, styled, title};
use crate::text::OrDash as _;
use crate::top::view::{text, theme};
use crate::{clock, units};
use gctrace_analysis::live::{CodeLine as SourceLine, LongPause};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

/// Minimum length of a pause to be drawn in red: one step of many models, as in the verdict of
/// `analyze`.
const FELT_NS: u64 = 100_000_000;

/// Draws the log. Returns the number of lines that can be scrolled away.
pub(super) fn draw(frame: &ViewFrame<'_>, buffer: &mut Buffer, area: Rect, focused: bool) -> usize {
    let pauses = &frame.snapshot.long_pauses;
    let least = units::duration(frame.snapshot.long_pause_ns);
    let heading = format!("Pauses of at least {least}: {}", units::count(pauses.len() as u64));
    let area = title(frame, buffer, area, (&heading, "newest first"), focused);
    let most = text::rest(pauses.len(), area.height.into());
    let scrolled = if focused { frame.state.scrolled.min(most) } else { 0 };
    if pauses.is_empty() {
        put(buffer, area, 0, styled("None so far.", theme::dim()));
    }
    let shown = pauses.iter().rev().skip(scrolled);
    let line = |pause| entry(pause, frame.utc_offset_s, area.width.into());
    put_lines(buffer, area, shown.map(line));
    most
}

fn entry(pause: &LongPause, utc_offset_s: i64, width: usize) -> Line<'static> {
    let who = text::fill(&name_of(pause.rank, pause.pid), 11, true);
    let when = clock::time_of_day_ms(pause.start_unix_ns, utc_offset_s);
    let length = text::fill(&text::brief(pause.duration_ns), 7, false);
    let style = if pause.duration_ns >= FELT_NS { theme::bad() } else { theme::warning() };
    let generation = pause.generation.map_or("gen -".to_owned(), |number| format!("gen {number}"));
    let freed = pause.collected.map(text::brief_count).or_dash();
    let mut what = format!(" {generation} {:<9} freed {freed:>6}", pause.reason.as_ref());
    if pause.unfinished {
        what += " unfinished";
    }
    if let Some(kept) = pause.uncollectable
        && kept > 0
    {
        what += &format!(" kept {}", text::brief_count(kept));
    }
    let used = 12 + 1 + 11 + 1 + 7 + text::width(&what) + 2;
    let line = pause
        .line
        .as_ref()
        .map(|line| place(line, pause.below.as_ref(), text::rest(width, used)))
        .or_dash();
    Line::from(vec![
        styled(when, theme::dim()),
        plain(format!(" {who} ")),
        styled(length, style),
        plain(what),
        styled(format!("  {line}"), Style::new()),
    ])
}

/// A line of the program, and the library line below it, cut to `width`; file and number first.
pub(super) fn place(line: &SourceLine, below: Option<&SourceLine>, width: usize) -> String {
    let at = at(line);
    let function = text::clean(&line.function);
    let mut all = if at.is_empty() { function } else { format!("{at} {function}") };
    if let Some(below) = below {
        all += &format!(", in {}", self::at(below));
    }
    text::cut(&all, width)
}

fn at(line: &SourceLine) -> String {
    let file = text::clean(text::file_name(&line.file));
    match line.line {
        Some(number) => format!("{file}:{number}"),
        None => file,
    }
}
