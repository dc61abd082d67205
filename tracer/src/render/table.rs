//! Sections of the report, tables with aligned columns, and wrapped paragraphs, that fit the width. Escapes control
//! characters in names of the recorded program.

use crate::print::clean;
pub(crate) use crate::units::cut;
use gctrace_analysis::report::Basis;
use std::cell::Cell;
use std::ops::RangeInclusive;

/// Default width in characters, if standard output is not a terminal.
pub(crate) const WIDTH: usize = 80;
/// Tables are useless in narrower terminals, and lines unreadable in wider ones.
const WIDTHS: RangeInclusive<usize> = 40..=240;
/// Maximum characters per line of a paragraph.
const READABLE: usize = 100;

/// In lines for a page: starts the head of a table. [`clean`] escapes it in names.
pub(crate) const HEAD: char = '\u{1e}';
/// The same: starts a row, and separates cells. `<` or `>` before the text of a cell is its alignment.
pub(crate) const CELL: char = '\u{1f}';

thread_local! {
    /// Width of the report that this thread renders; saves passing it through every function.
    static CURRENT: Cell<usize> = const { Cell::new(WIDTH) };
    /// Whether it is for a page, which breaks lines itself.
    static FOR_PAGE: Cell<bool> = const { Cell::new(false) };
}

/// Has everything that this thread renders within made for a page: a paragraph is one line, and the rows of
/// a table are marked with [`HEAD`] and [`CELL`].
pub(crate) fn for_page<R>(render: impl FnOnce() -> R) -> R {
    let columns = CURRENT.replace(*WIDTHS.end());
    let before = FOR_PAGE.replace(true);
    let rendered = render();
    FOR_PAGE.set(before);
    CURRENT.set(columns);
    rendered
}

/// Sets the width for everything that this thread renders from now on.
pub(crate) fn fit(columns: usize) {
    CURRENT.set(columns.clamp(*WIDTHS.start(), *WIDTHS.end()));
}

/// Characters per line of the report that this thread renders, as set by [`fit`].
pub(crate) fn width() -> usize {
    CURRENT.get()
}

/// A table; the first row is the head. Columns are as wide as their longest cell; the last one is
/// cut to the rest of [`width`].
#[derive(Debug, Default)]
pub(crate) struct TextTable {
    rows: Vec<Vec<String>>,
    left: Vec<usize>,
}

impl TextTable {
    /// `head` names the columns; those in `left` are left-aligned, all others right-aligned.
    pub(crate) fn new(head: &[&str], left: &[usize]) -> Self {
        Self {
            rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()],
            left: left.to_vec(),
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        let clean = |cell: String| clean::line(&cell).into_owned();
        self.rows.push(cells.into_iter().map(clean).collect());
    }

    /// The lines, each indented by two spaces.
    pub(crate) fn lines(&self) -> Vec<String> {
        if FOR_PAGE.get() {
            let rows = self.rows.iter().enumerate();
            return rows.map(|(index, row)| self.marked_line(row, index == 0)).collect();
        }
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        self.rows.iter().map(|row| self.line(row, &widths)).collect()
    }

    fn marked_line(&self, row: &[String], is_head: bool) -> String {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            format!("{}{cell}", if self.left.contains(&column) { '<' } else { '>' })
        });
        let cells: Vec<String> = cells.collect();
        format!("{}{}", if is_head { HEAD } else { CELL }, cells.join(&CELL.to_string()))
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::from("  ");
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            if column > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            if self.left.contains(&column) {
                line.push_str(cell);
                line.push_str(&padding);
            } else {
                line.push_str(&padding);
                line.push_str(cell);
            }
        }
        cut(line.trim_end(), width())
    }
}

/// A table that grows by columns; `R` is what a row shows.
pub(crate) struct TableOfColumns<R> {
    rows: Vec<R>,
    table: TextTable,
}

impl<R: Copy> TableOfColumns<R> {
    /// A table with a row for each of `rows`, without columns.
    pub(crate) fn new(rows: impl IntoIterator<Item = R>) -> Self {
        let rows: Vec<R> = rows.into_iter().collect();
        let table = TextTable { rows: vec![Vec::new(); rows.len() + 1], left: Vec::new() };
        Self { rows, table }
    }

    /// Adds a right-aligned column.
    pub(crate) fn right(mut self, title: &str, cell: impl Fn(R) -> String) -> Self {
        let cells = self.rows.iter().map(|row| clean::line(&cell(*row)).into_owned());
        let column = std::iter::once(title.to_owned()).chain(cells);
        self.table.rows.iter_mut().zip(column).for_each(|(row, cell)| row.push(cell));
        self
    }

    /// Adds a left-aligned column.
    pub(crate) fn left(mut self, title: &str, cell: impl Fn(R) -> String) -> Self {
        self.table.left.extend(self.table.rows.first().map(Vec::len));
        self.right(title, cell)
    }

    /// Adds a right-aligned column if the condition holds.
    pub(crate) fn right_if(self, shown: bool, title: &str, cell: impl Fn(R) -> String) -> Self {
        if shown { self.right(title, cell) } else { self }
    }

    /// The table, for rows of another kind.
    pub(crate) fn table(self) -> TextTable {
        self.table
    }

    /// The lines of the table.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.table.lines()
    }
}

/// Breaks a paragraph at whitespace; the first line starts with `first`, the others with `indent`.
pub(crate) fn wrap(text: &str, first: &str, indent: &str) -> Vec<String> {
    let most = if FOR_PAGE.get() { usize::MAX } else { width().min(READABLE) };
    let mut lines = Vec::new();
    let mut line = first.to_owned();
    let mut started = false;
    for word in words(text).iter().map(|word| clean::line(word)) {
        let needed = line.chars().count() + usize::from(started) + word.chars().count();
        if started && needed > most {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
            started = false;
        }
        if started {
            line.push(' ');
        }
        line.push_str(&word);
        started = true;
    }
    if started {
        lines.push(line);
    }
    lines
}

/// The words of a paragraph, each number with its unit: `16.2 %`.
fn words(text: &str) -> Vec<String> {
    const UNITS: [&str; 11] = ["%", "ns", "µs", "ms", "s", "min", "h", "B", "KiB", "MiB", "GiB"];
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_unit = UNITS.contains(&word.trim_end_matches(|end| ".,:;)".contains(end)));
        match words
            .last_mut()
            .filter(|last| is_unit && last.ends_with(|end: char| end.is_ascii_digit()))
        {
            Some(number) => *number = format!("{number} {word}"),
            None => words.push(word.to_owned()),
        }
    }
    words
}

/// Spaces between two columns.
pub(crate) const GAP: usize = 2;

/// The indent of a section's lines.
pub(crate) const INDENT: &str = "  ";

/// A section of the report: a heading and its lines. Without lines it is omitted.
pub(crate) struct ReportSection {
    pub(crate) heading: &'static str,
    pub(crate) lines: Vec<String>,
}

impl ReportSection {
    pub(crate) fn new(heading: &'static str, lines: Vec<String>) -> Self {
        Self { heading, lines }
    }
}

/// A paragraph of a section.
pub(crate) fn paragraph(sentence: &str) -> Vec<String> {
    wrap(sentence, INDENT, INDENT)
}

/// The mark after a figure: ` (inferred)` or ` (predicted)`, empty if it was measured.
pub(crate) fn mark(basis: Basis) -> &'static str {
    match basis {
        Basis::Measured => "",
        Basis::Inferred => " (inferred)",
        Basis::Predicted => " (predicted)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_cut() {
        let mut table = TextTable::new(&["name", "count", "command"], &[0, 2]);
        table.row(vec!["a".to_owned(), "1,000".to_owned(), "x".repeat(100)]);
        table.row(vec!["bcdefg".to_owned(), "2".to_owned(), "y".to_owned()]);
        let lines = table.lines();
        assert_eq!(lines[0], "  name    count  command");
        assert_eq!(lines[1].chars().count(), WIDTH);
        assert!(lines[1].starts_with("  a       1,000  xxx") && lines[1].ends_with("x…"));
        assert_eq!(lines[2], "  bcdefg      2  y");
    }

    #[test]
    fn paragraphs_break_at_whitespace() {
        let lines = wrap(&"word ".repeat(40), "1. ", "   ");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH));
        assert!(lines[0].starts_with("1. word") && lines[1].starts_with("   word"));
        assert_eq!(wrap("", "", ""), Vec::<String>::new());
        let number = wrap(&format!("{} 16.2 %), 3", "x".repeat(WIDTH - 6)), "", "");
        assert_eq!(number[1], "16.2 %), 3");
        assert_eq!(wrap(&"x".repeat(100), "", "").len(), 1);
    }

    #[test]
    fn lines_fit_the_terminal() {
        let widest = |columns| {
            fit(columns);
            let mut table = TextTable::new(&["name"], &[0]);
            table.row(vec!["x".repeat(300)]);
            let paragraph = wrap(&"word ".repeat(100), "", "");
            let widest = |lines: Vec<String>| lines.iter().map(|line| line.chars().count()).max();
            (widest(table.lines()), widest(paragraph))
        };
        assert_eq!(widest(60), (Some(60), Some(59)));
        assert_eq!(widest(200), (Some(200), Some(99)));
        assert_eq!(widest(3), (Some(40), Some(39)));
        fit(WIDTH);
    }

    #[test]
    fn no_control_characters() {
        let mut table = TextTable::new(&["name", "count"], &[0]);
        table.row(vec!["a\x1b[2J\n".to_owned(), "1".to_owned()]);
        assert_eq!(table.lines()[1], r"  a\x1b[2J\n      1");
        assert_eq!(wrap("a \x1b[2J b", "", ""), [r"a \x1b[2J b"]);
        assert_eq!(cut("\x07bc", 5), r"\x07…");
    }
}
