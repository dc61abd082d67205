//! The last lines of the file with the command's output.
//!
//! Reads at most the last [`KEPT`] bytes, and only if the file has changed. Strips escape sequences,
//! and keeps the last version of lines overwritten with `\r` (progress bars).

use super::text;
use crate::top::output::CommandFile;
use std::fs::File;
use std::io;
use std::io::{Read as _, Seek as _};
use std::path::Path;
use std::time::SystemTime;

/// Maximum bytes read from the end of the file.
const KEPT: u64 = 64 * 1024;

/// The end of a growing file.
#[derive(Debug)]
pub(crate) struct FileTail {
    output: CommandFile,
    seen: Option<(u64, Option<SystemTime>)>,
    lines: Vec<String>,
    problem: Option<String>,
}

impl FileTail {
    /// Starts without lines; [`FileTail::refresh`] reads them.
    pub(crate) fn new(output: CommandFile) -> Self {
        Self { output, seen: None, lines: Vec::new(), problem: None }
    }

    /// Path of the shown file; `None`: a temporary file.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.output.path.as_deref()
    }

    /// The last lines as of the last refresh, oldest first; empty before it.
    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The error of the last read, if any.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Reads the file if it has changed. Returns whether the lines or the error changed.
    pub(crate) fn refresh(&mut self) -> bool {
        match self.read() {
            Ok(changed) => changed,
            Err(problem) => self.problem.replace(problem).is_none(),
        }
    }

    fn read(&mut self) -> Result<bool, String> {
        let file = self.output.file.as_ref().map_err(String::clone)?;
        let about = file.metadata().map_err(|error| error.to_string())?;
        let now = (about.len(), about.modified().ok());
        if self.seen == Some(now) {
            return Ok(false);
        }
        // A shorter file is read as a whole.
        let from = gctrace_units::beyond(about.len(), KEPT);
        let bytes = read_from(file, from).map_err(|error| error.to_string())?;
        self.lines = lines(&bytes, from > 0);
        self.seen = Some(now);
        self.problem = None;
        Ok(true)
    }
}

/// Reads at most [`KEPT`] bytes from the offset. No other thread uses the file's position.
fn read_from(mut file: &File, from: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(io::SeekFrom::Start(from))?;
    file.take(KEPT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// `cut`: the first line starts before these bytes.
fn lines(bytes: &[u8], cut: bool) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines: Vec<&str> = text.split('\n').collect();
    if lines.last() == Some(&"") {
        lines.pop();
    }
    let skipped = usize::from(cut && lines.len() > 1);
    lines.into_iter().skip(skipped).map(line).collect()
}

/// The final appearance of a line on a terminal.
fn line(raw: &str) -> String {
    let mut plain = PlainText::default();
    vte::Parser::new().advance(&mut plain, raw.as_bytes());
    let shown = plain.0.trim_end_matches('\r');
    let last = if let Some((_, last)) = shown.rsplit_once('\r') { last } else { shown };
    text::clean(&last.replace('\t', " ")).trim_end().to_owned()
}

/// The parts of a text outside ECMA-48 sequences.
#[derive(Default)]
struct PlainText(String);

impl vte::Perform for PlainText {
    fn print(&mut self, char: char) {
        self.0.push(char);
    }

    fn execute(&mut self, control: u8) {
        self.0.push(control.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn as_a_terminal_would_show_it() {
        let text =
            b"plain\n\x1b[1;31mred\x1b[0m line\n 10%\r 50%\r100%\r\n\x1b]0;title\x07after\nlast";
        assert_eq!(lines(text, false), ["plain", "red line", "100%", "after", "last"]);
        assert_eq!(lines(text, true)[0], "red line");
        assert_eq!(lines(b"\x1b[2Ja\x08b\xff", false), ["a\\x08b\u{fffd}"]);
        assert_eq!(lines(b"", false), [""; 0]);
        assert_eq!(lines(b"\x1b[", false), [""]);
    }

    #[test]
    fn follows_a_file_that_grows_and_is_cut() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("output");
        let mut file = File::create(&path).expect("a file");
        let mut tail = FileTail::new(CommandFile::at(path));
        file.write_all(b"one\ntwo").expect("written");
        assert!(tail.refresh() && tail.problem().is_none());
        assert_eq!(tail.lines(), ["one", "two"]);
        assert!(!tail.refresh());
        file.write_all(b" and a half\n").expect("written");
        assert!(tail.refresh());
        assert_eq!(tail.lines(), ["one", "two and a half"]);
        file.set_len(0).expect("cut");
        assert!(tail.refresh());
        assert!(tail.lines().is_empty());
    }

    #[test]
    fn no_more_than_the_end_is_kept() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("output");
        let long: String = (0..100_000).map(|number| format!("line {number}\n")).collect();
        std::fs::write(&path, long).expect("written");
        let mut tail = FileTail::new(CommandFile::at(path));
        tail.refresh();
        assert!(tail.lines().len() < 7000);
        assert_eq!(tail.lines().last().map(String::as_str), Some("line 99999"));
    }

    #[test]
    fn an_unreadable_file_is_reported() {
        let mut tail = FileTail::new(CommandFile {
            path: Some("/dev/zero".into()),
            file: Err("not a regular file".to_owned()),
        });
        assert!(tail.refresh());
        assert_eq!(tail.problem(), Some("not a regular file"));
        assert!(!tail.refresh());
    }
}
