//! All output of gctrace to standard output and standard error.
//!
//! Guarantees three properties, so no other module may print (enforced by `clippy.toml` and the lints in `main.rs`). A
//! closed pipe or terminal never panics: the exit code is the command's. Text contains no control characters except
//! newlines and gctrace's own colors, whatever names programs use (`gctrace_analysis::clean`). A blocked reader of
//! standard error cannot block the thread that records and resumes stopped programs.
//!
//! The exception is the full-screen view: it writes to its terminal by itself (`top/view/terminal_device.rs`).

#![expect(
    clippy::disallowed_methods,
    reason = "the one place that writes to standard output and standard error"
)]

pub use gctrace_analysis::clean;

use self::clean::is_harmful;
use crate::platform;
use crate::variables::text;
use anyhow::Context as _;
use serde::Serialize;
use std::fmt::Display;
use std::io;
use std::io::{IsTerminal as _, Write};
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use terminal_size::{Width, terminal_size_of};

/// Prefix of each message: distinguishes it from the command's own output.
pub const PREFIX: &str = "gctrace: ";

/// How long a message waits for standard error to become writable. Stopped programs wait as long.
const PATIENCE_MS: u16 = 500;
/// Bytes per write: a writable pipe accepts this number without blocking (`PIPE_BUF`, pipe(7)).
const AT_ONCE: usize = 4096;

/// Whether the last write to standard error timed out; then gctrace does not wait again.
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

/// Writes escaped text. Drops text that cannot be written: there is no other place to report the failure.
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
pub fn answer(text: &str) -> anyhow::Result<()> {
    exact_answer(&clean::lines(text))
}

/// The same with gctrace's own colors; other programs' names were cleaned before.
///
/// # Errors
/// The write failed.
pub fn styled_answer(text: &str) -> anyhow::Result<()> {
    exact_answer(&clean::text(text))
}

/// Prints escaped content to standard output: a document, [`json`], a page.
///
/// # Errors
/// The write failed.
pub fn exact_answer(content: &str) -> anyhow::Result<()> {
    written_answer(|out| out.write_all(content.as_bytes()))
}

/// Prints content too large for memory at once, unchanged. A closed pipe, as by `head`, is no error.
///
/// # Errors
/// The write failed.
pub fn written_answer(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    unless_closed(exactly(write)).context("cannot write to standard output")
}

/// Writes bytes to standard output unchanged. A closed pipe is an error.
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

/// Duplicates standard output for the view; the view bypasses `print.rs`.
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

/// A value as indented JSON and a newline, without characters that are harmful to a terminal.
///
/// # Errors
/// It has no form in JSON.
pub fn json(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(escaped_json(&serde_json::to_string_pretty(value)?) + "\n")
}

/// JSON with characters harmful to a terminal (such as U+009B, the start of a control sequence) as `\u` escapes (RFC
/// 8259, section 7). These occur only in strings. Newlines stay.
pub fn escaped_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len() + 1);
    for char in json.chars() {
        if char == '\n' || !is_harmful(char) {
            escaped.push(char);
            continue;
        }
        for unit in char.encode_utf16(&mut [0; 2]) {
            escaped += &format!("\\u{unit:04x}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_values_are_the_same(text in any::<String>(), key in any::<String>()) {
            let harmful = "\u{9b}\u{202e}\u{e0001}\x1b\n\u{200b}";
            let value = serde_json::json!({ key: [text, harmful] });
            let json = json(&value).expect("JSON");
            prop_assert!(!json.contains(|char| char != '\n' && is_harmful(char)));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&json).expect("JSON"), value);
        }
    }
}
