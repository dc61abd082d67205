//! How emphasis looks, on terminals with colours and without, with Unicode and without.
//!
//! Everything is drawn with colours and Unicode; [`Theme::finish`] takes away what the terminal cannot show or
//! the user does not want. What a colour says is said by words, bold or position too.

use crate::variables::text;
use ratatui::buffer::Buffer;
use ratatui::buffer::Cell;
use ratatui::style::Color;
use ratatui::style::Modifier;
use ratatui::style::Style;

/// From this share of time on the collector is worth a look, in millionths (as the verdict of `analyze`).
pub(crate) const NOTICEABLE_PPM: u64 = 10_000;
/// From this share on it is a problem.
pub(crate) const HEAVY_PPM: u64 = 50_000;

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Theme {
    /// The eight colours of ECMA-48.
    pub(crate) colors: bool,
    /// Characters beyond ASCII.
    pub(crate) unicode: bool,
}

/// Headings.
pub(crate) fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// Labels, what is beside the point.
pub(crate) fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

/// As it should be.
pub(crate) fn good() -> Style {
    Style::new().fg(Color::Green)
}

/// Deserves attention.
pub(crate) fn warning() -> Style {
    Style::new().fg(Color::Yellow)
}

/// Worse than it should be.
pub(crate) fn bad() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
}

/// Heads of tables, the chosen row.
pub(crate) fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

/// Time on a GPU.
pub(crate) fn gpu() -> Style {
    Style::new().fg(Color::Green)
}

/// Names of keys.
pub(crate) fn key() -> Style {
    Style::new().fg(Color::Cyan)
}

/// By how much of the time is in pauses, in millionths.
pub(crate) fn by_share(ppm: u64) -> Style {
    match ppm {
        HEAVY_PPM.. => bad(),
        NOTICEABLE_PPM.. => warning(),
        _ => Style::new(),
    }
}

impl Theme {
    /// What the environment says: `NO_COLOR` (no-color.org) is the caller's; characters beyond ASCII need a
    /// UTF-8 locale (POSIX order of the variables) and another font than that of the Linux console.
    pub(crate) fn detect(colors: bool) -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(text);
        let console = text("TERM").is_some_and(|term| term == "linux");
        Self {
            colors,
            unicode: !console && locale.is_some_and(|locale| is_utf8(&locale)),
        }
    }

    /// Takes away what cannot be shown.
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

/// The nearest that ASCII has. What takes two columns leaves the second blank.
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
    fn plain_terminals_get_ascii_without_colours() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
        buffer.set_string(0, 0, "µ▁█ 训x·", bad());
        let theme = Theme {
            colors: false,
            unicode: false,
        };
        theme.finish(&mut buffer);
        let text: String = buffer.content.iter().map(Cell::symbol).collect();
        assert_eq!(text, "u_@ ? x.    ");
        assert!(buffer.content.iter().all(|cell| cell.fg == Color::Reset));
        assert!(
            buffer
                .content
                .iter()
                .any(|cell| cell.modifier.contains(Modifier::BOLD))
        );
    }

    #[test]
    fn locales() {
        assert!(is_utf8("C.UTF-8") && is_utf8("de_DE.utf8"));
        assert!(!is_utf8("C") && !is_utf8("de_DE@euro"));
    }
}
