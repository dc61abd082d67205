//! Escapes characters that a terminal could interpret.
//!
//! Names of files, functions, threads and processes, and arguments of commands, are untrusted: a trace
//! may come from another machine, and root records programs of other users. Pure.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

/// SGR sequences (ECMA-48, 8.3.117) that gctrace uses: bold, underline and colors. None hides text.
const COLORS: [&str; 11] = [
    "\x1b[0m",
    "\x1b[1m",
    "\x1b[4m",
    "\x1b[31m",
    "\x1b[32m",
    "\x1b[33m",
    "\x1b[36m",
    "\x1b[1;31m",
    "\x1b[1;32m",
    "\x1b[1;33m",
    "\x1b[m",
];

/// `text` as one line: newlines and other control characters, bidirectional formatting and invisible
/// characters become escapes: `\n`, `\x1b`, `\u{202e}`.
pub fn line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        push(&mut clean, char);
    }
    Cow::Owned(clean)
}

/// A path as one escaped line.
pub fn path(path: &Path) -> String {
    line(&path.to_string_lossy()).into_owned()
}

/// `text` of several lines: like [`line()`], but keeps newlines.
pub fn lines(text: &str) -> String {
    let lines: Vec<Cow<'_, str>> = text.split('\n').map(line).collect();
    lines.join("\n")
}

/// `text` of several lines: like [`lines()`], but keeps gctrace's own colors. Text of others went through [`line()`]
/// before, as it could contain the same colors.
pub fn text(text: &str) -> Cow<'_, str> {
    if !text.contains(|char| char != '\n' && is_harmful(char)) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let escape = COLORS.iter().find(|escape| rest.starts_with(**escape));
        let length = match (escape, char) {
            (Some(escape), _) => {
                clean.push_str(escape);
                escape.len()
            }
            (None, '\n') => {
                clean.push('\n');
                1
            }
            (None, char) => {
                push(&mut clean, char);
                char.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    Cow::Owned(clean)
}

fn push(clean: &mut String, char: char) {
    match char {
        '\n' => clean.push_str("\\n"),
        '\r' => clean.push_str("\\r"),
        '\t' => clean.push_str("\\t"),
        char if !is_harmful(char) => clean.push(char),
        char if u32::from(char) < 0x100 => {
            let _ = write!(clean, "\\x{:02x}", u32::from(char));
        }
        char => {
            let _ = write!(clean, "\\u{{{:x}}}", u32::from(char));
        }
    }
}

/// Whether a character is escaped: control characters (C0, C1, DEL), line separators, and Unicode
/// format characters (category Cf) that are bidirectional (UAX #9) or invisible, as a name must not
/// look like another one.
pub fn is_harmful(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(line("a\x1b]0;t\x07\u{9b}2J\r\n\tb"), r"a\x1b]0;t\x07\x9b2J\r\n\tb");
        assert_eq!(line("evil\u{202e}yp.txt\u{200b}"), r"evil\u{202e}yp.txt\u{200b}");
        assert_eq!(line("训练 é e\u{301} 🐍.py"), "训练 é e\u{301} 🐍.py");
    }

    #[test]
    fn own_colors_stay_in_text_and_no_others() {
        let colored = "\x1b[1;31mbad\x1b[0m\nnext";
        assert_eq!(text(colored), colored);
        assert_eq!(text("\x1b[8mhidden\x1b[0m"), "\\x1b[8mhidden\x1b[0m");
        assert_eq!(text("\x1b[2J\x1b[1"), r"\x1b[2J\x1b[1");
        assert_eq!(lines("\x1b[1;31mnone\n\n"), "\\x1b[1;31mnone\n\n");
    }

    proptest! {
        #[test]
        fn nothing_harmful_comes_through(any in any::<String>()) {
            prop_assert!(!line(&any).contains(is_harmful));
            let mut left = text(&any).into_owned();
            for color in COLORS {
                left = left.replace(color, "");
            }
            prop_assert!(!left.contains(|char| char != '\n' && is_harmful(char)));
            let once = line(&any);
            prop_assert_eq!(&line(&once), &once);
        }
    }
}
