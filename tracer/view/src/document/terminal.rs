//! Documents as text: for terminals, as wide as these, and for files.

use super::{AdviceBlock, Block, Cell, Paragraph, Section, Style, Table, Tone, cut};
use crate::print::clean;

/// Maximum characters per line of a paragraph.
const READABLE: usize = 100;

/// Spaces between two columns.
const GAP: usize = 2;

/// The sections as text: an empty line between two, headings in bold. Sections that are empty are left out.
pub fn text(sections: &[Section], style: Style) -> String {
    let mut text = String::new();
    for section in sections.iter().filter(|section| !section.is_empty()) {
        if !text.is_empty() {
            text.push('\n');
        }
        if !section.heading.is_empty() {
            text.push_str(&style.bold(&clean::line(&section.heading)));
            text.push('\n');
        }
        text.push_str(&blocks_text(&section.blocks, style));
    }
    text
}

/// Blocks as text.
pub fn blocks_text(blocks: &[Block], style: Style) -> String {
    lines(blocks, style).into_iter().map(|line| line + "\n").collect()
}

/// Blocks as lines within the style's width, except for unbreakable ones.
pub fn lines(blocks: &[Block], style: Style) -> Vec<String> {
    blocks.iter().flat_map(|block| block_lines(block, style)).collect()
}

fn block_lines(block: &Block, style: Style) -> Vec<String> {
    match block {
        Block::Paragraph(paragraph) => paragraph_lines(paragraph, style),
        Block::Line(indent, text) => vec![cut(&format!("{indent}{text}"), style.width())],
        Block::Gap => vec![String::new()],
        Block::Note(text) => wrap(text, super::INDENT, super::INDENT, style),
        Block::Heading(text) => vec![style.bold(&cut(text, style.width()))],
        Block::Code(code) => {
            let indented =
                |line: &str| format!("{}{}", super::INDENT, style.code(&clean::line(line)));
            code.lines().map(indented).collect()
        }
        Block::Table(table) => table_lines(table, style),
        Block::Advice(advice) => advice_lines(advice, style),
        Block::Command(what, command) => command_lines(what, command, style),
        Block::More(summary, blocks) => {
            let heading = style.bold(&clean::line(summary));
            std::iter::once(heading).chain(lines(blocks, style)).collect()
        }
        // Pictures: paragraphs and tables have the same figures.
        Block::Cards(_) | Block::Bar(..) | Block::Drawing(..) => Vec::new(),
    }
}

fn paragraph_lines(paragraph: &Paragraph, style: Style) -> Vec<String> {
    let mut lines = wrap(&paragraph.text, &paragraph.first, paragraph.indent, style);
    if let (false, Some(last)) = (paragraph.aside.is_empty(), lines.last_mut()) {
        let aside = clean::line(&paragraph.aside);
        let used = last.chars().count() + aside.chars().count();
        match style.width().checked_sub(used) {
            Some(gap) if gap >= GAP => *last = format!("{last}{}{aside}", " ".repeat(gap)),
            _ => lines.push(format!("{}{aside}", paragraph.indent)),
        }
    }
    let colored = |line: String| match paragraph.tone {
        Tone::Plain => line,
        Tone::Strong => style.bold(&line),
        Tone::Good => style.good(&line),
        Tone::Warning => style.warning(&line),
        Tone::Bad => style.bad(&line),
    };
    lines.into_iter().map(colored).collect()
}

/// The lines of a command. A command that does not fit is broken; it can still be copied.
fn command_lines(what: &str, command: &str, style: Style) -> Vec<String> {
    const BEHIND: &str = "             ";
    let first = format!("{:<1$}", format!("{what}:"), BEHIND.len());
    let line = format!("{first}{}", clean::line(command));
    if line.chars().count() <= style.width() {
        vec![line]
    } else {
        wrap(command, &first, BEHIND, style)
    }
}

fn advice_lines(advice: &AdviceBlock, style: Style) -> Vec<String> {
    const INDENT: &str = "     ";
    let action = wrap(&advice.action, &format!("  {}. ", advice.number), INDENT, style);
    let mut lines: Vec<String> = action.iter().map(|line| style.bold(line)).collect();
    lines.extend(wrap(&advice.why, INDENT, INDENT, style));
    lines.extend(wrap(&advice.saves, INDENT, INDENT, style));
    if !advice.code.is_empty() {
        lines.push(String::new());
        let indented = |line: &str| format!("{INDENT}  {}", style.code(&clean::line(line)));
        lines.extend(advice.code.lines().map(indented));
    }
    if !advice.risk.is_empty() {
        lines.push(String::new());
        lines.extend(wrap(&format!("Risk: {}", advice.risk), INDENT, INDENT, style));
    }
    lines
}

/// The lines of a table, each indented by two spaces.
fn table_lines(table: &Table, style: Style) -> Vec<String> {
    let name = |column: &super::Column| clean::line(&column.name).into_owned();
    let text = |cell: &Cell| clean::line(&cell.text(style.width())).into_owned();
    let mut rows: Vec<Vec<String>> = Vec::new();
    if !table.is_headless {
        rows.push(table.columns.iter().map(name).collect());
    }
    for row in &table.rows {
        if !row.is_empty() {
            rows.push(row.iter().map(text).collect());
        }
        if row.iter().any(|cell| !cell.below.is_empty()) {
            rows.push(row.iter().map(|cell| text(&cell.below.as_str().into())).collect());
        }
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let mut lines: Vec<String> =
        rows.iter().map(|row| row_line(table, row, &widths, style)).collect();
    if let (true, Some(names)) = (table.is_strong, lines.first_mut()) {
        *names = style.bold(names);
    }
    lines
}

/// Whether text shows a part of the table only.
pub fn is_cut(table: &Table, style: Style) -> bool {
    table_lines(table, style).iter().any(|line| line.ends_with('…'))
}

fn row_line(table: &Table, row: &[String], widths: &[usize], style: Style) -> String {
    let mut line = super::INDENT.to_owned();
    for (place, ((cell, width), column)) in row.iter().zip(widths).zip(&table.columns).enumerate() {
        if place > 0 {
            line.push_str(&" ".repeat(GAP));
        }
        if column.is_left {
            line += &format!("{cell:<width$}");
        } else {
            line += &format!("{cell:>width$}");
        }
    }
    cut(line.trim_end(), style.width())
}

/// Breaks text at whitespace; the first line starts with `first`, the others with `indent`.
fn wrap(text: &str, first: &str, indent: &str, style: Style) -> Vec<String> {
    let most = style.width().min(READABLE);
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
        match words.last_mut() {
            Some(last) if is_unit && last.ends_with(|end: char| end.is_ascii_digit()) => {
                *last = format!("{last} {word}");
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{TableOf, WIDTH, hanging, plain};

    fn style(width: usize) -> Style {
        Style::of_width(width)
    }

    #[test]
    fn columns_are_aligned_and_cut() {
        let rows = [("a", "1,000", "x".repeat(100)), ("bcdefg", "2", "y".to_owned())];
        let table: TableOf<_> = Table::of(&rows)
            .left("name", |row| row.0)
            .right("count", |row| row.1)
            .left("command", |row| row.2.clone());
        let lines = lines(&[table.into()], Style::OF_FILES);
        assert_eq!(lines[0], "  name    count  command");
        assert_eq!(lines[1].chars().count(), WIDTH);
        assert!(lines[1].starts_with("  a       1,000  xxx") && lines[1].ends_with("x…"));
        assert_eq!(lines[2], "  bcdefg      2  y");
    }

    #[test]
    fn paragraphs_break_at_whitespace() {
        let wrap = |text: &str, first: &str, indent: &'static str| {
            lines(&[hanging(text, first, indent)], Style::OF_FILES)
        };
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
            let mut table = Table::new(&["name"], &[0]);
            table.row(["x".repeat(300)]);
            let widest = |block: Block| {
                lines(&[block], style(columns)).iter().map(|line| line.chars().count()).max()
            };
            (widest(table.into()), widest(plain("word ".repeat(100))))
        };
        assert_eq!(widest(60), (Some(60), Some(59)));
        assert_eq!(widest(200), (Some(200), Some(99)));
        assert_eq!(widest(3), (Some(40), Some(39)));
    }

    #[test]
    fn no_control_characters() {
        let mut table = Table::new(&["name", "count"], &[0]);
        table.row(["a\x1b[2J\n", "1"]);
        let name = "a \x1b[2J b";
        let blocks = [table.into(), plain(name), Block::Line("", name.to_owned())];
        let lines = lines(&blocks, Style::OF_FILES);
        assert_eq!(lines[1], r"  a\x1b[2J\n      1");
        assert_eq!(lines[2..], [r"a \x1b[2J b"; 2]);
        assert_eq!(cut("\x07bc", 5), r"\x07…");
    }

    #[test]
    fn a_command_that_does_not_fit_is_broken_behind_its_name() {
        let command =
            |words: &str| lines(&[Block::Command("More".to_owned(), words.to_owned())], style(40));
        assert_eq!(command("gctrace analyze t.json"), ["More:        gctrace analyze t.json"]);
        let broken = ["More:        gctrace analyze --full", "             trace.json"];
        assert_eq!(command("gctrace analyze --full trace.json"), broken);
    }

    #[test]
    fn an_aside_is_at_the_right() {
        let change = |text: &str| {
            let aside = "saves 1 s".to_owned();
            let text = text.to_owned();
            let of =
                Paragraph { text, first: "1 ".to_owned(), indent: "  ", aside, tone: Tone::Plain };
            lines(&[of.into()], style(40))
        };
        assert_eq!(change("gc.freeze()"), ["1 gc.freeze()                  saves 1 s"]);
        assert_eq!(
            change(&"x".repeat(30)),
            [format!("1 {}", "x".repeat(30)), "  saves 1 s".to_owned()]
        );
    }
}
