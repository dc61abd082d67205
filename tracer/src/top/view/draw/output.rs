//! The panes with text: output of the command, and notices.

use super::ViewFrame;
use super::notice_words;
use super::put;
use super::styled;
use super::title;
use super::top;
use crate::top::view::text;
use crate::top::view::theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Draws the end of the command's output. Returns the number of lines that can be scrolled away.
pub(super) fn draw(frame: &ViewFrame<'_>, buffer: &mut Buffer, mut area: Rect) -> usize {
    let Some(tail) = frame.tail else {
        title(frame, buffer, top(&mut area, 1), "Output", "", true);
        let words = "gctrace did not start this process and does not see its output.";
        put(buffer, area, 0, Line::from(styled(words, theme::dim())));
        return 0;
    };
    let path = text::clean(&tail.path().display().to_string());
    let heading = format!("Output of the command: {path}");
    title(frame, buffer, top(&mut area, 1), &heading, "", true);
    let lines = tail.lines();
    let most = lines.len().saturating_sub(usize::from(area.height));
    if let Some(problem) = tail.problem() {
        let words = format!("Cannot read the file: {}", text::clean(problem));
        put(buffer, area, 0, Line::from(styled(words, theme::warning())));
    } else if lines.is_empty() {
        let words = "No output yet. Python buffers output to files; `python -u` does not.";
        put(buffer, area, 0, Line::from(styled(words, theme::dim())));
    } else {
        // Scrolled upwards from the end.
        let from = most.saturating_sub(frame.state.scrolled.min(most));
        for (line, row) in lines.iter().skip(from).zip(0..area.height) {
            put(buffer, area, row, Line::from(line.as_str()));
        }
    }
    most
}

/// Draws the notices, wrapped, newest first. Returns the number of lines that can be scrolled away.
pub(super) fn draw_notices(frame: &ViewFrame<'_>, buffer: &mut Buffer, mut area: Rect) -> usize {
    title(
        frame,
        buffer,
        top(&mut area, 1),
        "Notices",
        "newest first",
        true,
    );
    let width = usize::from(area.width);
    let lines: Vec<String> = frame
        .snapshot
        .notes
        .iter()
        .rev()
        .flat_map(|notice| wrapped(&notice_words(frame.snapshot, notice), width))
        .collect();
    if lines.is_empty() {
        put(buffer, area, 0, Line::from(styled("None.", theme::dim())));
    }
    let most = lines.len().saturating_sub(usize::from(area.height));
    let scrolled = frame.state.scrolled.min(most);
    for (line, row) in lines.into_iter().skip(scrolled).zip(0..area.height) {
        put(buffer, area, row, Line::from(line));
    }
    most
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
