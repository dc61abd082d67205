//! Styles, and their reduction for terminals without colors or Unicode.
//!
//! Everything is drawn with colors and Unicode; [`Theme::finish`] removes styles and characters that the terminal
//! cannot show or the user does not want. No information is conveyed by color alone.

use crate::variables::text;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier, Style};

/// Minimum share of time in pauses for a warning, in ppm (as in the verdict of `analyze`).
pub(crate) const NOTICEABLE_PPM: u64 = 10_000;
/// Minimum share of time in pauses for a problem, in ppm.
pub(crate) const HEAVY_PPM: u64 = 50_000;

/// Capabilities of the terminal; finished frames are reduced to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Theme {
    /// Whether it shows the eight colors of ECMA-48.
    pub(crate) colors: bool,
    /// Whether it shows characters beyond ASCII.
    pub(crate) unicode: bool,
}

/// Style of headings: bold, so that it does not depend on colors.
pub(crate) fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// Style of labels and secondary text.
pub(crate) fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

/// Style of a value that needs no attention.
pub(crate) fn good() -> Style {
    Style::new().fg(Color::Green)
}

/// Style of a value that may need attention.
pub(crate) fn warning() -> Style {
    Style::new().fg(Color::Yellow)
}

/// Style of a value that shows a problem.
pub(crate) fn bad() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
}

/// Heads of tables and the selected row.
pub(crate) fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

/// Style of a GPU's busy time.
pub(crate) fn gpu() -> Style {
    Style::new().fg(Color::Green)
}

/// Style of the names of keys, where keys are listed.
pub(crate) fn key() -> Style {
    Style::new().fg(Color::Cyan)
}

/// Style for a share of time in pauses, in ppm.
pub(crate) fn by_share(ppm: u64) -> Style {
    match ppm {
        HEAVY_PPM.. => bad(),
        NOTICEABLE_PPM.. => warning(),
        _ => Style::new(),
    }
}

impl Theme {
    /// Detects Unicode support: it needs a UTF-8 locale (variables in POSIX order), and not the font
    /// of the Linux console. The caller handles `NO_COLOR` (no-color.org).
    pub(crate) fn detect(colors: bool) -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(text);
        let console = text("TERM").as_deref() == Some("linux");
        Self { colors, unicode: !console && matches!(locale, Some(locale) if is_utf8(&locale)) }
    }

    /// Removes styles and characters that the terminal cannot show.
    pub(crate) fn finish(self, buffer: &mut Buffer) {
        if self.colors && self.unicode {
            return;
        }
        for cell in &mut buffer.content {
            if !self.colors {
                cell.fg = Color::Reset;
                cell.bg = Color::Reset;
            }
            if !self.unicode && !cell.symbol().is_ascii() {
                to_ascii(cell);
            }
        }
    }
}

fn is_utf8(locale: &str) -> bool {
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Replaces the symbol by the closest ASCII character. The second column of a wide one stays blank.
fn to_ascii(cell: &mut Cell) {
    let ascii = match cell.symbol() {
        "▁" => "_",
        "▂" => ".",
        "▃" => "-",
        "▄" => "=",
        "▅" => "+",
        "▆" => "*",
        "▇" => "#",
        "█" => "@",
        "─" => "-",
        "│" => "|",
        "┌" | "┐" | "└" | "┘" | "├" | "┤" => "+",
        "▼" | "↓" => "v",
        "▲" | "↑" => "^",
        "←" | "‹" => "<",
        "→" | "›" => ">",
        "µ" => "u",
        "≤" => "<",
        "·" => ".",
        "…" => "~",
        "×" => "x",
        _ => "?",
    };
    cell.set_symbol(ascii);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;

    #[test]
    fn plain_terminals_get_ascii_without_colors() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
        buffer.set_string(0, 0, "µ▁█ 训x·", bad());
        let theme = Theme { colors: false, unicode: false };
        theme.finish(&mut buffer);
        let text: String = buffer.content.iter().map(Cell::symbol).collect();
        assert_eq!(text, "u_@ ? x.    ");
        assert!(buffer.content.iter().all(|cell| cell.fg == Color::Reset));
        assert!(buffer.content.iter().any(|cell| cell.modifier.contains(Modifier::BOLD)));
    }

    #[test]
    fn locales() {
        assert!(is_utf8("C.UTF-8") && is_utf8("de_DE.utf8"));
        assert!(!is_utf8("C") && !is_utf8("de_DE@euro"));
    }
}
