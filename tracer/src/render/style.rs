//! Emphasis and width of what is printed.

use super::table::WIDTH;
use crate::print;

/// Whether to use colour, and how wide lines may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    colour: bool,
    width: usize,
}

impl Style {
    /// No escape sequences, for any reader.
    pub(crate) const OF_FILES: Self = Self {
        colour: false,
        width: WIDTH,
    };

    /// As standard output wants it.
    pub(crate) fn of_output() -> Self {
        Self {
            colour: print::colors_wanted(print::on_terminal()),
            width: print::columns().unwrap_or(WIDTH),
        }
    }

    /// Colour whatever the terminal; for tests.
    #[cfg(test)]
    pub(crate) const COLOURED: Self = Self {
        colour: true,
        width: WIDTH,
    };

    /// Characters of a line.
    pub(crate) fn width(self) -> usize {
        self.width
    }

    /// A heading.
    pub(crate) fn bold(self, text: &str) -> String {
        self.wrapped(text, "1")
    }

    /// What is worse than it should be.
    pub(crate) fn bad(self, text: &str) -> String {
        self.wrapped(text, "1;31")
    }

    /// What deserves attention.
    pub(crate) fn warning(self, text: &str) -> String {
        self.wrapped(text, "1;33")
    }

    /// What is as it should be.
    pub(crate) fn good(self, text: &str) -> String {
        self.wrapped(text, "1;32")
    }

    /// Lines to copy.
    pub(crate) fn code(self, text: &str) -> String {
        self.wrapped(text, "36")
    }

    /// SGR sequences of ECMA-48, line by line, so that pagers keep them.
    fn wrapped(self, text: &str, sgr: &str) -> String {
        if !self.colour {
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
        assert_eq!(Style::COLOURED.bad("x"), "\x1b[1;31mx\x1b[0m");
        assert_eq!(
            Style::COLOURED.bold("a\n\nb"),
            "\x1b[1ma\x1b[0m\n\n\x1b[1mb\x1b[0m"
        );
    }
}
