//! What a page is made of: sections of blocks.
//!
//! Owns how the lines of a section of the text report become paragraphs and tables.

use crate::print::clean;
use crate::render::table::{CELL, HEAD, ReportSection};
use askama::Template;

/// A part of the page with a heading.
pub(super) struct Section {
    /// For links to it.
    pub(super) id: &'static str,
    pub(super) heading: String,
    /// Beside the heading; may be empty.
    pub(super) about: String,
    /// Of the first section: how good or bad its heading is.
    pub(super) badge: Option<Badge>,
    pub(super) blocks: Vec<Block>,
}

/// A word in a color.
pub(super) struct Badge {
    pub(super) name: String,
    /// `good`, `warn` or `bad`.
    pub(super) class: &'static str,
}

/// A part of a section.
#[derive(Template)]
#[template(path = "block.html")]
pub(super) enum Block {
    Text(String),
    /// In smaller letters.
    Note(String),
    Heading(String),
    Cards(Vec<Card>),
    Table(Table),
    /// A whole in parts, its name first.
    Bar(String, Vec<BarPart>),
    Advice(AdviceBlock),
    /// A command or a program, with what it is for.
    Code(String, String),
    /// What is folded at first, its summary first.
    More(String, Vec<Block>),
    /// What the script draws of a run: its kind, and the place of the run in the data.
    Drawing(&'static str, usize),
}

/// A figure with its name.
pub(super) struct Card {
    pub(super) figure: String,
    pub(super) name: String,
}

/// A change to make.
pub(super) struct AdviceBlock {
    pub(super) number: usize,
    pub(super) action: String,
    pub(super) why: String,
    /// Each may be empty.
    pub(super) saves: String,
    pub(super) code: String,
    pub(super) risk: String,
}

/// A part of a bar.
pub(super) struct BarPart {
    pub(super) name: String,
    /// Its share as the report states it.
    pub(super) share: String,
    /// Its width, in percent.
    pub(super) width: String,
    /// Which of the page's colors, from 0.
    pub(super) color: usize,
}

/// A table.
#[derive(Default)]
pub(super) struct Table {
    /// Empty: without a head.
    pub(super) head: Vec<Cell>,
    pub(super) rows: Vec<Vec<Cell>>,
    /// Whether its rows can be sorted: all cells that are not text have values.
    pub(super) sortable: bool,
}

/// A cell of a table.
#[derive(Clone, Default)]
pub(super) struct Cell {
    pub(super) text: String,
    /// Below it, smaller; may be empty.
    pub(super) below: String,
    /// What it is sorted by; empty: by its text.
    pub(super) value: String,
    /// Width of the bar behind it, in percent; empty without one.
    pub(super) bar: String,
    /// The color beside it.
    pub(super) color: Option<usize>,
    /// Whether it is aligned at the left.
    pub(super) left: bool,
    /// Whether narrow screens leave it out.
    pub(super) wide_only: bool,
}

impl Cell {
    /// Text, aligned at the left.
    pub(super) fn left(text: impl Into<String>) -> Self {
        Self { text: text.into(), left: true, ..Self::default() }
    }

    /// A figure, and what it is sorted by.
    #[expect(clippy::cast_precision_loss, reason = "only to sort by")]
    pub(super) fn figure(text: impl Into<String>, value: u64) -> Self {
        Self { text: text.into(), value: (value as f64).to_string(), ..Self::default() }
    }

    /// A share of 1 as its text, with a bar behind it that is as wide as its part of the largest.
    pub(super) fn share(text: impl Into<String>, ratio: f64, largest: f64) -> Self {
        let width = if largest > 0.0 { ratio / largest * 60.0 } else { 0.0 };
        Self {
            text: text.into(),
            value: ratio.to_string(),
            bar: format!("{width:.1}"),
            ..Self::default()
        }
    }

    /// The same, left out on narrow screens.
    pub(super) fn wide(self) -> Self {
        Self { wide_only: true, ..self }
    }
}

impl Section {
    pub(super) fn new(id: &'static str, heading: &str, blocks: Vec<Block>) -> Self {
        Self { id, heading: heading.to_owned(), about: String::new(), badge: None, blocks }
    }

    pub(super) fn about(self, about: impl Into<String>) -> Self {
        Self { about: about.into(), ..self }
    }
}

/// A section of the text report under its heading; nothing if it is empty.
pub(super) fn evidence(section: ReportSection) -> Vec<Block> {
    let mut all = blocks(&section.lines);
    if !all.is_empty() {
        all.insert(0, Block::Heading(section.heading.to_owned()));
    }
    all
}

/// Lines of a section of the text report, made [for a page](super::super::table::for_page).
pub(super) fn blocks(lines: &[String]) -> Vec<Block> {
    let mut all: Vec<Block> = Vec::new();
    for line in lines {
        if let Some(head) = line.strip_prefix(HEAD) {
            all.push(Block::Table(Table {
                head: head.split(CELL).map(cell).collect(),
                ..Table::default()
            }));
        } else if let Some(row) = line.strip_prefix(CELL) {
            let row = row.split(CELL).map(cell).collect();
            match all.last_mut() {
                Some(Block::Table(table)) => table.rows.push(row),
                _ => all.push(Block::Table(Table { rows: vec![row], ..Table::default() })),
            }
        } else if !line.trim().is_empty() {
            all.push(Block::Text(figures_together(line.trim())));
        }
    }
    all
}

/// The first character is its alignment.
fn cell(text: &str) -> Cell {
    let (left, text) = match text.strip_prefix('<') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('>').unwrap_or(text)),
    };
    Cell { text: figures_together(text), left, ..Cell::default() }
}

/// A sentence in which no line breaks between a number and its unit.
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
