//! All output of gctrace to standard output and standard error.
//!
//! Guarantees three properties, which is why no other module may print (enforced by `clippy.toml` and
//! the lints in `main.rs`). A closed pipe or terminal never panics: the exit code is the command's.
//! Text contains no control characters except newlines and gctrace's own colors, whatever names
//! programs use (`gctrace_analysis::clean`). A blocked reader of standard error cannot block the thread that
//! records and resumes stopped programs.
//!
//! The exception is the full-screen view, which writes to its terminal by itself
//! (`top/view/terminal_device.rs`).

#![expect(
    clippy::disallowed_methods,
    reason = "the one place that writes to standard output and standard error"
)]

pub use gctrace_analysis::clean;

use self::clean::is_harmful;
use crate::platform;
use crate::variables::text;
use std::fmt::Display;
use std::io;
use std::io::{IsTerminal as _, Write};
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use terminal_size::{Width, terminal_size_of};

/// Prefix of each message, by which it differs from the command's own output.
pub const PREFIX: &str = "gctrace: ";

/// How long a message waits for standard error to become writable. Stopped programs wait as long.
const PATIENCE_MS: u16 = 500;
/// Bytes per write: a writable pipe accepts this number without blocking (`PIPE_BUF`, pipe(7)).
const AT_ONCE: usize = 4096;

/// Whether the last write to standard error timed out, in which case gctrace does not wait again.
static STUCK: AtomicBool = AtomicBool::new(false);

/// Prints a message to standard error as one line: `gctrace: TEXT`.
pub fn message(text: impl Display) {
    let line = format!("{PREFIX}{}\n", clean::line(&text.to_string()));
    error_bytes(line.as_bytes());
}

/// Prints lines to standard error without the prefix, as a continuation of a message.
pub fn lines(text: &str) {
    styled_lines(&clean::lines(text));
}

/// The same with gctrace's own colors.
pub fn styled_lines(text: &str) {
    let text = clean::text(text);
    error_bytes(text.as_bytes());
    if !text.ends_with('\n') {
        error_bytes(b"\n");
    }
}

/// Writes escaped text. Drops what cannot be written, as there is no other place to report it.
fn error_bytes(bytes: &[u8]) {
    let mut stderr = io::stderr().lock();
    for part in bytes.chunks(AT_ONCE) {
        let patience = if STUCK.load(Ordering::Relaxed) { 0 } else { PATIENCE_MS };
        let stuck = !platform::is_writable_within(&stderr, patience);
        STUCK.store(stuck, Ordering::Relaxed);
        if stuck || stderr.write_all(part).is_err() {
            return;
        }
    }
}

/// Prints text to standard output, escaped.
///
/// # Errors
/// The write failed.
pub fn answer(text: &str) -> io::Result<()> {
    exactly(|out| answer_to(out, text))
}

/// The same with gctrace's own colors, of which others' names were cleaned before.
///
/// # Errors
/// The write failed.
pub fn styled_answer(text: &str) -> io::Result<()> {
    exactly(|out| out.write_all(clean::text(text).as_bytes()))
}

/// Writes text to a file, escaped, as it may be shown on a terminal later.
///
/// # Errors
/// The write failed.
pub fn answer_to(out: &mut dyn Write, text: &str) -> io::Result<()> {
    out.write_all(clean::lines(text).as_bytes())
}

/// Writes bytes to standard output unchanged: JSON (see [`JsonEscaper`]), SVG, completion scripts.
///
/// # Errors
/// The write failed.
pub fn exactly(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    write(&mut out)?;
    out.flush()
}

/// Ignores a closed pipe, as by `head`.
///
/// # Errors
/// All other errors.
pub fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Whether standard output is a terminal.
pub fn on_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Columns of the terminal on standard output; `None` if it is not a terminal, or unknown.
pub fn columns() -> Option<usize> {
    terminal_size_of(io::stdout()).map(|(Width(columns), _)| columns.into())
}

/// Whether standard error is a terminal.
pub fn errors_on_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Whether to use colors: on a terminal that supports them, unless `NO_COLOR` (no-color.org) is set.
pub fn colors_wanted(on_terminal: bool) -> bool {
    let dumb = text("TERM").is_none_or(|term| term == "dumb");
    on_terminal && text("NO_COLOR").is_none() && !dumb
}

/// Duplicates standard output, for the view, which bypasses `print.rs`.
///
/// # Errors
/// Too many open files.
#[cfg(target_os = "linux")]
pub fn output_descriptor() -> io::Result<OwnedFd> {
    io::stdout().as_fd().try_clone_to_owned()
}

/// Duplicates standard error, for the command.
///
/// # Errors
/// Too many open files.
#[cfg(target_os = "linux")]
pub fn error_descriptor() -> io::Result<OwnedFd> {
    io::stderr().as_fd().try_clone_to_owned()
}

/// Passes JSON on, with characters that are harmful to a terminal (such as U+009B, which starts a
/// control sequence) as `\u` escapes (RFC 8259, section 7). These occur only in strings. Newlines
/// stay.
#[derive(Debug)]
pub struct JsonEscaper<W>(pub W);

impl<W: Write> Write for JsonEscaper<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // serde_json writes valid UTF-8; other bytes are passed on unchanged.
        let Ok(text) = std::str::from_utf8(bytes) else {
            self.0.write_all(bytes)?;
            return Ok(bytes.len());
        };
        let mut rest = text;
        while let Some((position, char)) =
            rest.char_indices().find(|(_, char)| *char != '\n' && is_harmful(*char))
        {
            let (before, after) = rest.split_at(position);
            self.0.write_all(before.as_bytes())?;
            let mut units = [0; 2];
            for unit in char.encode_utf16(&mut units) {
                write!(self.0, "\\u{unit:04x}")?;
            }
            rest = &after[char.len_utf8()..];
        }
        self.0.write_all(rest.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(value: &serde_json::Value) -> String {
        let mut bytes = Vec::new();
        serde_json::to_writer_pretty(JsonEscaper(&mut bytes), value).expect("JSON");
        String::from_utf8(bytes).expect("text")
    }

    proptest! {
        #[test]
        fn the_values_are_the_same(text in any::<String>(), key in any::<String>()) {
            let harmful = "\u{9b}\u{202e}\u{e0001}\x1b\n\u{200b}";
            let value = serde_json::json!({ key: [text, harmful] });
            let json = written(&value);
            prop_assert!(!json.contains(|char| char != '\n' && is_harmful(char)));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&json).expect("JSON"), value);
        }
    }
}
