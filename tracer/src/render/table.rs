//! Text that fits: tables with aligned columns, and wrapped paragraphs.

/// Width of everything printed, in characters.
pub(crate) const WIDTH: usize = 80;

/// A table: the first line is the head. Columns are as wide as their longest cell; the last one is
/// cut to what is left of [`WIDTH`].
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    left: Vec<usize>,
}

impl Table {
    /// `head` names the columns; those in `left` are aligned to the left, all others to the right.
    pub(crate) fn new(head: &[&str], left: &[usize]) -> Self {
        Self {
            rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()],
            left: left.to_vec(),
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The lines, each indented by two.
    pub(crate) fn lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        self.rows
            .iter()
            .map(|row| self.line(row, &widths))
            .collect()
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::from("  ");
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            if column > 0 {
                line.push_str("  ");
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
        cut(line.trim_end(), WIDTH)
    }
}

/// `text` in at most `width` characters, an ellipsis where something is missing.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// `text` without control characters, which could move the terminal's cursor: names and command
/// lines in a trace are the program's.
pub(crate) fn printable(text: &str) -> String {
    let visible = |char: char| if char.is_control() { '\u{fffd}' } else { char };
    text.chars().map(visible).collect()
}

/// Breaks a paragraph at blanks; every line begins with `indent`, the first with `first`.
pub(crate) fn wrap(text: &str, first: &str, indent: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = first.to_owned();
    let mut begun = false;
    for word in text.split_whitespace() {
        let needed = line.chars().count() + usize::from(begun) + word.chars().count();
        if begun && needed > WIDTH {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
            begun = false;
        }
        if begun {
            line.push(' ');
        }
        line.push_str(word);
        begun = true;
    }
    if begun {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_cut() {
        let mut table = Table::new(&["name", "count", "command"], &[0, 2]);
        table.row(vec!["a".to_owned(), "1,000".to_owned(), "x".repeat(100)]);
        table.row(vec!["bcdefg".to_owned(), "2".to_owned(), "y".to_owned()]);
        let lines = table.lines();
        assert_eq!(lines[0], "  name    count  command");
        assert_eq!(lines[1].chars().count(), WIDTH);
        assert!(lines[1].starts_with("  a       1,000  xxx") && lines[1].ends_with("x…"));
        assert_eq!(lines[2], "  bcdefg      2  y");
    }

    #[test]
    fn paragraphs_break_at_blanks() {
        let lines = wrap(&"word ".repeat(40), "1. ", "   ");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH));
        assert!(lines[0].starts_with("1. word") && lines[1].starts_with("   word"));
        assert_eq!(wrap("", "", ""), Vec::<String>::new());
        assert_eq!(wrap(&"x".repeat(100), "", "").len(), 1);
    }

    #[test]
    fn no_control_characters() {
        assert_eq!(printable("a\x1b[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }
}
