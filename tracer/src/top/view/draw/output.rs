//! The panes of text: what the command prints, what gctrace has to say.

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

/// The last lines of the command's output; how many can be scrolled away.
pub(super) fn draw(picture: &ViewFrame<'_>, buffer: &mut Buffer, mut area: Rect) -> usize {
    let Some(tail) = picture.tail else {
        title(picture, buffer, top(&mut area, 1), "Output", "", true);
        let words = "No command was started from here: its output is where it was before.";
        put(buffer, area, 0, Line::from(styled(words, theme::dim())));
        return 0;
    };
    let path = text::clean(&tail.path().display().to_string());
    let heading = format!("Output of the command: {path}");
    title(picture, buffer, top(&mut area, 1), &heading, "", true);
    let lines = tail.lines();
    let most = lines.len().saturating_sub(usize::from(area.height));
    if let Some(problem) = tail.problem() {
        let words = format!("Cannot be read: {}", text::clean(problem));
        put(buffer, area, 0, Line::from(styled(words, theme::warning())));
    } else if lines.is_empty() {
        let words =
            "Nothing yet. Python keeps back what goes to a file; `python -u` shows it at once.";
        put(buffer, area, 0, Line::from(styled(words, theme::dim())));
    } else {
        // Scrolled upwards from the end.
        let from = most.saturating_sub(picture.state.scrolled.min(most));
        for (line, row) in lines.iter().skip(from).zip(0..area.height) {
            put(buffer, area, row, Line::from(line.as_str()));
        }
    }
    most
}

/// What gctrace has to say, the newest first, each as long as it is.
pub(super) fn draw_notices(picture: &ViewFrame<'_>, buffer: &mut Buffer, mut area: Rect) -> usize {
    title(
        picture,
        buffer,
        top(&mut area, 1),
        "Notices",
        "newest first",
        true,
    );
    let width = usize::from(area.width);
    let lines: Vec<String> = picture
        .snapshot
        .notes
        .iter()
        .rev()
        .flat_map(|notice| wrapped(&notice_words(picture.snapshot, notice), width))
        .collect();
    if lines.is_empty() {
        put(buffer, area, 0, Line::from(styled("None.", theme::dim())));
    }
    let most = lines.len().saturating_sub(usize::from(area.height));
    let scrolled = picture.state.scrolled.min(most);
    for (line, row) in lines.into_iter().skip(scrolled).zip(0..area.height) {
        put(buffer, area, row, Line::from(line));
    }
    most
}

/// A paragraph, its lines after the first set in by two.
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
