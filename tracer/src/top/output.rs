//! Destination of the command's output in the live view.
//!
//! Never a pipe or terminal of gctrace: the command must be able to write after gctrace has exited
//! or was killed.

use crate::files::command_output::{
    TemporaryOutput, create_command_output, create_temporary_output, name_temporary_output,
    read_command_output, remove_command_output,
};
use crate::invoker::Invoker;
use crate::launch::{LaunchPlan, StdioFiles};
use crate::print;
use crate::print::clean;
use anyhow::Context as _;
use std::fs::File;
use std::io::{self, Seek as _};
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
    /// Where the output goes, as named by the user; `None`: a temporary file.
    pub path: Option<PathBuf>,
    /// Opened for reading, or the reason why that failed.
    pub file: Result<Arc<File>, String>,
}

impl CommandFile {
    /// Opens an existing file, for tests.
    #[cfg(test)]
    pub(super) fn at(path: PathBuf) -> Self {
        let file = File::open(&path).map(Arc::new);
        Self { path: Some(path), file: file.map_err(|error| error.to_string()) }
    }

    /// Opens the file that `writer` writes for reading.
    fn new(path: PathBuf, writer: &File, invoker: &Invoker) -> Self {
        let file = read_command_output(&path, writer, invoker);
        let file = file.map(Arc::new).map_err(|error| error.to_string());
        Self { path: Some(path), file }
    }
}

/// The file that the command writes to, if gctrace created it.
#[derive(Debug, Default)]
pub(super) struct CommandOutput {
    shown: Option<CommandFile>,
    temporary: Option<Temporary>,
}

/// The facts needed to name or remove a temporary file.
#[derive(Debug)]
struct Temporary {
    written: File,
    /// Its path, if it has one.
    path: Option<PathBuf>,
    folder: PathBuf,
    /// The user that it was created as.
    maker: Invoker,
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
                let shown = Some(CommandFile::new(path.to_owned(), &opened, invoker));
                (Some(opened), Self { shown, temporary: None })
            }
            None if on_screen => {
                let folder = temporary(launch);
                let TemporaryOutput { written, read, path } =
                    create_temporary_output(&folder, invoker)?;
                let opened = written.try_clone().context("the command's output")?;
                let shown = Some(CommandFile { path: None, file: Ok(Arc::new(read)) });
                let maker = invoker.clone();
                let temporary = Some(Temporary { written, path, folder, maker });
                (Some(opened), Self { shown, temporary })
            }
            None => (None, Self::default()),
        };
        let streams = streams(opened, on_screen).context("the command's output")?;
        launch.redirect(streams);
        Ok(output)
    }

    /// The file, if the output goes to a file.
    pub(super) fn written(&self) -> Option<&CommandFile> {
        self.shown.as_ref()
    }

    /// Repeats the contents of a temporary file on standard output, where it would have been
    /// without the view, and removes the file; if the command `continues`, it stays, and has a name
    /// from now on. Returns the path of the output, if it has one.
    pub(super) fn dismiss(&self, continues: bool) -> Option<PathBuf> {
        let shown = self.shown.as_ref()?;
        let Some(Temporary { written, path, folder, maker }) = &self.temporary else {
            return shown.path.clone();
        };
        if continues {
            return match path {
                Some(path) => Some(path.clone()),
                None => name_temporary_output(written, folder, maker)
                    .inspect_err(|error| {
                        tracing::warn!("what the command writes from now on is lost: {error}");
                    })
                    .ok(),
            };
        }
        if let Ok(file) = &shown.file {
            let mut file: &File = file;
            let repeated = file
                .rewind()
                .and_then(|()| print::exactly(|out| io::copy(&mut file, out).map(drop)));
            if let Err(error) = print::unless_closed(repeated) {
                tracing::warn!("the command's output cannot be repeated: {error}");
            }
        }
        if let Some(path) = path {
            let _ = remove_command_output(path, maker);
        }
        None
    }

    /// The last lines of a file that was asked for.
    pub(super) fn end(&self) -> Option<String> {
        if self.temporary.is_some() {
            return None;
        }
        let shown = self.shown.as_ref()?;
        end_of(shown.file.as_ref().ok()?)
    }
}

/// With the view, the command's standard input is /dev/null, as keys go to the view. Without it,
/// standard output is reserved for the figures.
fn streams(opened: Option<File>, on_screen: bool) -> std::io::Result<StdioFiles> {
    let input = if on_screen { Some(File::open("/dev/null")?) } else { None };
    let (output, error) = match opened {
        Some(file) => (file.try_clone()?, Some(file)),
        None => (File::from(print::error_descriptor()?), None),
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
    let from = gctrace_units::beyond(file.metadata().ok()?.len(), LAST_BYTES as u64);
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
    let text = shown.collect::<Vec<_>>().join("\n");
    if text.is_empty() { None } else { Some(text) }
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
