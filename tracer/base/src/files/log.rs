//! Change logs: Markdown tables that grow by a row at a time.

use super::existing::{ExistingFile, read_small};
use super::{FileError, FileFailure, as_invoker, existing, system};
use crate::invoker::Invoker;
use std::io::Write as _;
use std::path::Path;

/// Largest log that is read to append to it, in bytes.
const LOG_BYTES: u64 = 16 << 20;
/// The option that names a log.
const OPTION: &str = "--log";

/// Appends a row to a log, as the invoker. A new log starts with `title` (existing logs are recognized by it) and
/// `head`, the lines of the table's head. If the log does not end with a table, the head is repeated.
///
/// # Errors
/// The file is something else, or cannot be written.
pub fn append_row(
    path: &Path,
    invoker: &Invoker,
    (title, head): (&str, &str),
    row: &str,
) -> Result<(), FileError> {
    let appended = as_invoker(invoker, || {
        let text = match content(path, title)? {
            None => format!("{title}\n\n{head}{row}"),
            Some(content) => {
                let newline = if content.ends_with('\n') { "" } else { "\n" };
                let last = content.lines().rfind(|line| !line.trim().is_empty());
                if matches!(last, Some(line) if line.starts_with('|')) {
                    format!("{newline}{row}")
                } else {
                    format!("{newline}\n{head}{row}")
                }
            }
        };
        let mut file = system::open(path, true)?;
        file.write_all(text.as_bytes())?;
        Ok(())
    });
    appended.map_err(|failure| failure.of(path, invoker, OPTION))
}

/// Checks that rows can be appended, so that nothing is done in vain.
///
/// # Errors
/// The file is something else than a log with this title.
pub fn check_log(path: &Path, invoker: &Invoker, title: &str) -> Result<(), FileError> {
    let checked = as_invoker(invoker, || content(path, title).map(drop));
    checked.map_err(|failure| failure.of(path, invoker, OPTION))
}

/// The log so far; `None` if there is none.
fn content(path: &Path, title: &str) -> Result<Option<String>, FileFailure> {
    match existing::look(path)? {
        ExistingFile::Nothing => Ok(None),
        ExistingFile::Stream => Err(not_a_log(title)),
        ExistingFile::Content => {
            let content = read_small(path, LOG_BYTES).ok_or_else(|| not_a_log(title))?;
            let content = String::from_utf8(content).map_err(|_| not_a_log(title))?;
            if content.lines().next() == Some(title) {
                Ok(Some(content))
            } else {
                Err(not_a_log(title))
            }
        }
    }
}

fn not_a_log(title: &str) -> FileFailure {
    FileFailure::Refused(format!(
        "exists and is no change log of gctrace (its first line is not \"{title}\"); name another \
         file"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: (&str, &str) = ("# Log", "| a |\n|---|\n");

    #[test]
    fn rows_are_appended_to_logs_only() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("log.md");
        let invoker = Invoker::detect();
        let append = |row: &str| append_row(&path, &invoker, LOG, row);
        append("| 1 |\n").expect("a new log");
        append("| 2 |\n").expect("a second row");
        let read = || std::fs::read_to_string(&path).expect("a log");
        assert_eq!(read(), "# Log\n\n| a |\n|---|\n| 1 |\n| 2 |\n");
        std::fs::write(&path, read() + "\nA remark.").expect("written");
        append("| 3 |\n").expect("a row after a remark");
        assert!(read().ends_with("\nA remark.\n\n| a |\n|---|\n| 3 |\n"), "{}", read());
        for other in ["# Notes\n", "\u{feff}# Log\n", "{\"traceEvents\":[]}"] {
            std::fs::write(&path, other).expect("written");
            let error = append("| 4 |\n").expect_err("not a log").to_string();
            assert!(error.contains("no change log"), "{error}");
            assert_eq!(read(), other);
        }
        std::fs::write(&path, [0xff, 0xfe]).expect("written");
        assert!(append("| 4 |\n").is_err());
    }
}
