//! Color and width of the output.

use super::WIDTH;
use crate::print;
use std::ops::RangeInclusive;

/// Tables are useless in narrower terminals, and lines unreadable in wider ones.
const WIDTHS: RangeInclusive<usize> = 40..=240;

/// Whether to use color, and the maximum width of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    color: bool,
    width: usize,
}

impl Style {
    /// For files: no escape sequences, default width.
    pub const OF_FILES: Self = Self { color: false, width: WIDTH };

    /// The style for standard output: colors if wanted there, and its width or the default.
    pub fn of_output() -> Self {
        Self {
            color: print::colors_wanted(print::on_terminal()),
            width: print::columns().unwrap_or(WIDTH),
        }
    }

    /// No color, lines of this width.
    pub fn of_width(width: usize) -> Self {
        Self { color: false, width }
    }

    /// Color regardless of the terminal, for tests.
    #[cfg(test)]
    pub const COLORED: Self = Self { color: true, width: WIDTH };

    /// Characters per line that text and tables are to fit into.
    pub fn width(self) -> usize {
        self.width.clamp(*WIDTHS.start(), *WIDTHS.end())
    }

    /// Bold, for headings and for the action of an advice.
    pub fn bold(self, text: &str) -> String {
        self.wrapped(text, "1")
    }

    /// Bold red, for a problem such as the worst verdict.
    pub fn bad(self, text: &str) -> String {
        self.wrapped(text, "1;31")
    }

    /// Bold yellow, for a warning such as a verdict that is neither good nor bad.
    pub fn warning(self, text: &str) -> String {
        self.wrapped(text, "1;33")
    }

    /// Bold green, for a good result such as a negligible cost.
    pub fn good(self, text: &str) -> String {
        self.wrapped(text, "1;32")
    }

    /// Cyan, for code that the user can copy.
    pub fn code(self, text: &str) -> String {
        self.wrapped(text, "36")
    }

    /// Wraps each line in SGR sequences (ECMA-48) of its own, as pagers reset them at line ends.
    fn wrapped(self, text: &str, sgr: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        let lines: Vec<String> = text
            .split('\n')
            .map(|line| match line {
                "" => String::new(),
                line => format!("\x1b[{sgr}m{line}\x1b[0m"),
            })
            .collect();
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_only_where_wanted() {
        assert_eq!(Style::OF_FILES.bad("x"), "x");
        assert_eq!(Style::COLORED.bad("x"), "\x1b[1;31mx\x1b[0m");
        assert_eq!(Style::COLORED.bold("a\n\nb"), "\x1b[1ma\x1b[0m\n\n\x1b[1mb\x1b[0m");
    }
}
