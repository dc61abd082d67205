//! The panes with text: output of the command, and notices.

use super::{ViewFrame, notice_words, put, put_lines, put_scrolled, styled, title};
use crate::top::view::{text, theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Draws the end of the command's output. Returns the number of lines that can be scrolled away.
pub(super) fn draw(frame: &ViewFrame<'_>, buffer: &mut Buffer, area: Rect) -> usize {
    let Some(tail) = frame.tail else {
        let area = title(frame, buffer, area, ("Output", ""), true);
        let words = "gctrace did not start this process and does not see its output.";
        put(buffer, area, 0, styled(words, theme::dim()));
        return 0;
    };
    let path = tail.path().map(|path| text::clean(&path.display().to_string()));
    let heading = match path {
        Some(path) => format!("Output of the command: {path}"),
        None => "Output of the command".to_owned(),
    };
    let area = title(frame, buffer, area, (&heading, ""), true);
    let lines = tail.lines();
    let most = text::rest(lines.len(), area.height.into());
    if let Some(problem) = tail.problem() {
        let words = format!("Cannot read the file: {}", text::clean(problem));
        put(buffer, area, 0, styled(words, theme::warning()));
    } else if lines.is_empty() {
        let words = "No output yet. Python buffers output to files; `python -u` does not.";
        put(buffer, area, 0, styled(words, theme::dim()));
    } else {
        // Scrolled upwards from the end.
        let from = text::rest(most, frame.state.scrolled);
        put_lines(buffer, area, lines.iter().skip(from).map(String::as_str));
    }
    most
}

/// Draws the notices, wrapped, newest first. Returns the number of lines that can be scrolled away.
pub(super) fn draw_notices(frame: &ViewFrame<'_>, buffer: &mut Buffer, area: Rect) -> usize {
    let area = title(frame, buffer, area, ("Notices", "newest first"), true);
    let width = usize::from(area.width);
    let lines: Vec<String> = frame
        .snapshot
        .notes
        .iter()
        .rev()
        .flat_map(|notice| wrapped(&notice_words(frame.snapshot, notice), width))
        .collect();
    if lines.is_empty() {
        put(buffer, area, 0, styled("None.", theme::dim()));
    }
    put_scrolled(buffer, area, lines, frame.state.scrolled)
}

/// Wraps a paragraph; lines after the first are indented by two spaces.
fn wrapped(words: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in words.split_whitespace() {
        if !line.trim().is_empty() && text::width(&line) + 1 + text::width(word) > width {
            lines.push(std::mem::replace(&mut line, "  ".to_owned()));
        } else if !line.trim().is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}
