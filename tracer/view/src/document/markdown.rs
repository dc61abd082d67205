//! Documents as Markdown, for comments on pull requests and summaries of jobs.

use super::{AdviceBlock, Block, Cell, Column, Section, Table, Tone, WIDEST};

/// The sections as Markdown: headings of the fourth level. Sections that are empty are left out.
pub fn markdown(sections: &[Section]) -> String {
    let mut text = String::new();
    for section in sections.iter().filter(|section| !section.is_empty()) {
        if !section.heading.is_empty() {
            text.push_str(&format!("#### {}\n\n", escaped(&section.heading)));
        }
        section.blocks.iter().for_each(|block| text.push_str(&block_text(block)));
    }
    text
}

/// Text without markup: names come from programs.
pub fn escaped(text: &str) -> String {
    let mut plain = String::new();
    for character in text.chars() {
        if matches!(
            character,
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '~' | '@' | '&'
        ) {
            plain.push('\\');
        }
        plain.push(if character.is_control() { ' ' } else { character });
    }
    plain
}

/// A block, and the separator before the next one.
fn block_text(block: &Block) -> String {
    match block {
        Block::Paragraph(of) => {
            let text = escaped(&format!("{}{}", of.first.trim_start(), of.text));
            let aside = if of.aside.is_empty() { "" } else { ": " };
            let text = format!("{text}{aside}{}", escaped(&of.aside));
            let mark = if of.tone == Tone::Plain { "" } else { "**" };
            if of.text.is_empty() { String::new() } else { format!("{mark}{text}{mark}\n\n") }
        }
        Block::Line(_, text) | Block::Note(text) => format!("{}\n\n", escaped(text)),
        Block::Heading(text) => format!("**{}**\n\n", escaped(text)),
        Block::Code(code) => fenced(code),
        Block::Command(what, command) => format!("{}:\n\n{}", escaped(what), fenced(command)),
        Block::Table(table) => table_text(table),
        Block::Advice(advice) => advice_text(advice),
        Block::More(summary, blocks) => {
            let blocks: String = blocks.iter().map(block_text).collect();
            format!("**{}**\n\n{blocks}", escaped(summary))
        }
        // Pictures: paragraphs and tables have the same figures.
        Block::Gap | Block::Cards(_) | Block::Bar(..) | Block::Drawing(..) => String::new(),
    }
}

/// Code in a fence that no line of it can close.
fn fenced(code: &str) -> String {
    let run = |line: &str| line.trim_start().chars().take_while(|char| *char == '`').count();
    let longest = code.lines().map(run).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{}\n{fence}\n\n", code.trim_end())
}

fn table_text(table: &Table) -> String {
    let cell = |cell: &Cell| {
        let below = if cell.below.is_empty() { "" } else { "<br>" };
        format!("{}{below}{}", escaped(&cell.text(WIDEST)), escaped(&cell.below))
    };
    let name = |column: &Column| escaped(&column.name);
    let side = |column: &Column| if column.is_left { ":--" } else { "--:" };
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let head = line(table.columns.iter().map(name).collect());
    let sides = line(table.columns.iter().map(|column| side(column).to_owned()).collect());
    let rows = table.rows.iter().map(|row| line(row.iter().map(cell).collect()));
    format!("{head}{sides}{}\n", rows.collect::<String>())
}

fn advice_text(advice: &AdviceBlock) -> String {
    let [action, why, saves] = [&advice.action, &advice.why, &advice.saves].map(|of| escaped(of));
    let mut text = format!("**{}. {action}**\n\n{why} {saves}\n\n", advice.number);
    if !advice.code.is_empty() {
        text.push_str(&fenced(&advice.code));
    }
    if !advice.risk.is_empty() {
        text.push_str(&format!("Risk: {}\n\n", escaped(&advice.risk)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::paragraph;

    #[test]
    fn names_are_no_markup() {
        let mut table = Table::new(&["name", "count"], &[0]);
        table.row(["a|b\n<b>", "1"]);
        let code = Block::Code("````\nend".to_owned());
        let sections = [Section::new("`x` @all", vec![paragraph("*a*"), table.into(), code])];
        assert_eq!(
            markdown(&sections),
            "#### \\`x\\` \\@all\n\n\\*a\\*\n\n| name | count |\n| :-- | --: |\n| a\\|b \\<b\\> | 1 |\n\n\
             `````\n````\nend\n`````\n\n"
        );
    }
}
