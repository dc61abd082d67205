//! Emphasis on terminals.

use crate::print;

/// Whether to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    colour: bool,
}

impl Style {
    /// No escape sequences; for tests.
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { colour: false };

    /// As standard output wants it.
    pub(crate) fn of_output() -> Self {
        Self {
            colour: print::colors_wanted(print::on_terminal()),
        }
    }

    /// Colour whatever the terminal; for tests.
    #[cfg(test)]
    pub(crate) const COLOURED: Self = Self { colour: true };

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
        assert_eq!(Style::PLAIN.bad("x"), "x");
        assert_eq!(Style::COLOURED.bad("x"), "\x1b[1;31mx\x1b[0m");
        assert_eq!(
            Style::COLOURED.bold("a\n\nb"),
            "\x1b[1ma\x1b[0m\n\n\x1b[1mb\x1b[0m"
        );
    }
}
