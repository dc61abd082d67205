//! Destination of the command's output in the live view.
//!
//! Never a pipe or terminal of gctrace: the command must be able to write after gctrace has exited
//! or was killed.

use crate::files::command_output::{
    create_command_output, create_temporary_output, read_command_output, remove_command_output,
};
use crate::launch::{Invoker, LaunchPlan, StdioFiles};
use crate::print;
use crate::print::clean;
use anyhow::Context as _;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Default directory for temporary files (hier(7)).
const TEMPORARY: &str = "/tmp";

/// Maximum lines and bytes of output repeated for a command that failed.
const LAST_LINES: usize = 10;
const LAST_BYTES: usize = 4096;

/// The file with the command's output.
#[derive(Clone, Debug)]
pub(super) struct CommandFile {
    /// Where the output goes, as named by the user or created in a temporary directory.
    pub path: PathBuf,
    /// Opened for reading, or the reason why that failed.
    pub file: Result<Arc<File>, String>,
}

impl CommandFile {
    /// Opens an existing file, for tests.
    #[cfg(test)]
    pub(super) fn at(path: PathBuf) -> Self {
        let file = File::open(&path).map(Arc::new);
        Self { path, file: file.map_err(|error| error.to_string()) }
    }

    /// Opens the file that `writer` writes for reading.
    fn new(path: PathBuf, writer: &File, invoker: &Invoker) -> Self {
        let file = read_command_output(&path, writer, invoker);
        Self { path, file: file.map(Arc::new).map_err(|error| error.to_string()) }
    }
}

/// The file that the command writes to, if gctrace created it.
#[derive(Debug, Default)]
pub(super) struct CommandOutput {
    written: Option<CommandFile>,
    /// For a temporary file: the user that it was created as.
    maker: Option<Invoker>,
}

impl CommandOutput {
    /// Opens the file `asked` for, or the default for the display, and redirects the command to it.
    pub(super) fn open(
        asked: Option<&Path>,
        on_screen: bool,
        launch: &mut LaunchPlan,
        invoker: &Invoker,
    ) -> anyhow::Result<Self> {
        let (opened, output) = match asked {
            Some(path) => {
                let opened = create_command_output(path, invoker, &launch.words())?;
                let output = Self {
                    written: Some(CommandFile::new(path.to_owned(), &opened, invoker)),
                    maker: None,
                };
                (Some(opened), output)
            }
            None if on_screen => {
                let (opened, path) = create_temporary_output(&temporary(launch), invoker)?;
                let output = Self {
                    written: Some(CommandFile::new(path, &opened, invoker)),
                    maker: Some(invoker.clone()),
                };
                (Some(opened), output)
            }
            None => (None, Self::default()),
        };
        let streams = streams(opened, on_screen).context("the command's output")?;
        launch.redirect(streams);
        Ok(output)
    }

    /// The file, if the output goes to a file.
    pub(super) fn written(&self) -> Option<&CommandFile> {
        self.written.as_ref()
    }

    /// The closing messages: the path of the output, and its last lines if the command `failed`.
    /// Removes an empty temporary file, unless the command `continues`.
    pub(super) fn dismissal(
        &self,
        continues: bool,
        failed: bool,
    ) -> (Option<String>, Option<String>) {
        let Some(CommandFile { path, file }) = &self.written else {
            return (None, None);
        };
        let length = file.as_ref().ok().and_then(|file| file.metadata().ok());
        let is_empty = length.is_some_and(|about| about.len() == 0);
        if let (Some(maker), true, false) = (&self.maker, is_empty, continues) {
            let _ = remove_command_output(path, maker);
            return (None, None);
        }
        let end = file.as_ref().ok().filter(|_| failed);
        let place = format!("the command's output is in {}", path.display());
        (Some(place), end.and_then(|file| end_of(file)))
    }
}

/// With the view, the command's standard input is /dev/null, as keys go to the view. Without it,
/// standard output is reserved for the figures.
fn streams(opened: Option<File>, on_screen: bool) -> std::io::Result<StdioFiles> {
    let input = on_screen.then(|| File::open("/dev/null")).transpose()?;
    let (output, error) = match opened {
        Some(file) => (file.try_clone()?, Some(file)),
        None => (File::from(print::descriptors::error_descriptor()?), None),
    };
    Ok(StdioFiles { input, output: Some(output), error })
}

fn temporary(launch: &LaunchPlan) -> PathBuf {
    let named = launch.variable("TMPDIR").map(PathBuf::from);
    named.filter(|path| path.is_absolute()).unwrap_or_else(|| PathBuf::from(TEMPORARY))
}

/// The last lines, indented; of a line overwritten with `\r`, the last version.
fn end_of(file: &File) -> Option<String> {
    // A shorter file is read as a whole.
    let from = file.metadata().ok()?.len().saturating_sub(LAST_BYTES as u64);
    let mut bytes = vec![0; LAST_BYTES];
    let read = file.read_at(&mut bytes, from).ok()?;
    bytes.truncate(read);
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().skip(usize::from(from > 0)).collect();
    let last = lines.rchunks(LAST_LINES).next()?;
    let shown = last.iter().map(|line| {
        let line = line.trim_end_matches('\r');
        let last = line.rsplit('\r').next().unwrap_or(line);
        format!("    {}", clean::line(last))
    });
    Some(shown.collect::<Vec<_>>().join("\n")).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_output() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("out");
        let file = File::create_new(&path).and_then(|_| File::open(&path));
        let file = file.expect("a file");
        std::fs::write(&path, "one\nstep 1\rstep 2\r\nthree").expect("written");
        assert_eq!(end_of(&file).as_deref(), Some("    one\n    step 2\n    three"));
        let many: String = (0..2000).map(|number| format!("line {number}\n")).collect();
        std::fs::write(&path, many).expect("written");
        let end = end_of(&file).expect("an end");
        assert_eq!(end.lines().count(), LAST_LINES);
        assert!(end.starts_with("    line 1990\n") && end.ends_with("line 1999"));
        std::fs::write(&path, "").expect("written");
        assert_eq!(end_of(&file), None);
    }
}
