//! Blocks of a document as HTML.

use crate::document::{Block, Cell, WIDEST};
use crate::print::clean;
use askama::Template;

/// A block; displays as its HTML.
#[derive(Template)]
#[template(path = "block.html")]
pub(super) struct BlockHtml<'a> {
    block: &'a Block,
}

impl<'a> BlockHtml<'a> {
    pub(super) fn of(block: &'a Block) -> Self {
        Self { block }
    }

    fn text(&self, text: impl AsRef<str>) -> String {
        figures_together(text.as_ref())
    }

    fn cell(&self, cell: &Cell) -> String {
        self.text(cell.text(WIDEST))
    }

    /// Several lines without characters that would look like others.
    fn code(&self, code: &str) -> String {
        let lines: Vec<_> = code.lines().map(clean::line).collect();
        lines.join("\n")
    }
}

/// A sentence without line breaks between a number and its unit.
pub(super) fn figures_together(sentence: &str) -> String {
    const UNITS: [&str; 12] =
        ["%", "ns", "µs", "ms", "s", "min", "h", "bytes", "KiB", "MiB", "GiB", "M"];
    let sentence = clean::line(sentence);
    let mut text = String::with_capacity(sentence.len());
    let mut words = sentence.split(' ').peekable();
    while let Some(word) = words.next() {
        // A line would end after its hyphen.
        text.push_str(if word == "->" { "→" } else { word });
        if let Some(next) = words.peek() {
            let unit = next.trim_end_matches(|char: char| ".,;:)".contains(char));
            let number = word.ends_with(|char: char| char.is_ascii_digit());
            text.push(if number && UNITS.contains(&unit) { '\u{a0}' } else { ' ' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_with_its_unit() {
        assert_eq!(
            figures_together("40.8 % of 15.6 s, in 3 steps"),
            "40.8\u{a0}% of 15.6\u{a0}s, in 3 steps"
        );
        assert_eq!(figures_together("(2.0 ms): 7"), "(2.0\u{a0}ms): 7");
        assert_eq!(figures_together("a\u{202e}b"), r"a\u{202e}b");
    }
}
