//! Where the command's output goes while its figures are shown.
//!
//! Never into a pipe or terminal of gctrace's own: the command must be able to write when gctrace is gone,
//! killed even.

use crate::launch::Invoker;
use crate::launch::LaunchPlan;
use crate::launch::Streams;
use crate::launch::create_output;
use crate::launch::create_temporary_output;
use crate::launch::remove_output;
use anyhow::Context as _;
use std::fs::File;
use std::io::Read as _;
use std::io::Seek as _;
use std::io::SeekFrom;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::path::PathBuf;

/// Directory for temporary files where the command's environment names none (hier(7)).
const TEMPORARY: &str = "/tmp";

/// Of a command that failed, so many lines and bytes of its output are repeated at most.
const LAST_LINES: usize = 10;
const LAST_BYTES: i64 = 4096;

/// The file that the command writes into, if that is a file of ours.
#[derive(Debug, Default)]
pub(super) struct CommandOutput {
    file: Option<PathBuf>,
    /// Of a temporary file: who made it.
    maker: Option<Invoker>,
}

impl CommandOutput {
    /// Opens what was `asked` for, or what fits how figures are shown, and has the command write there.
    pub(super) fn open(
        asked: Option<&Path>,
        on_screen: bool,
        launch: &mut LaunchPlan,
        invoker: &Invoker,
    ) -> anyhow::Result<Self> {
        let (opened, output) = match asked {
            Some(path) => {
                let opened = create_output(path, invoker)?;
                let output = Self {
                    file: Some(path.to_owned()),
                    maker: None,
                };
                (Some(opened), output)
            }
            None if on_screen => {
                let (opened, path) = create_temporary_output(&temporary(launch), invoker)?;
                let output = Self {
                    file: Some(path),
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

    /// The file, if the output goes to one.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// What the user should know when nothing is shown any more: where the output is, and of a command that
    /// `failed` the end of it. A temporary file that is empty is removed, unless the command `goes_on`.
    pub(super) fn farewell(&self, goes_on: bool, failed: bool) -> Vec<String> {
        let Some(path) = &self.file else {
            return Vec::new();
        };
        let is_empty = std::fs::metadata(path).is_ok_and(|file| file.len() == 0);
        if let (Some(maker), true, false) = (&self.maker, is_empty, goes_on) {
            let _ = remove_output(path, maker);
            return Vec::new();
        }
        let mut sentences = vec![format!("the command's output is in {}", path.display())];
        if failed && let Some(end) = end_of(path) {
            sentences.push(format!("its end:\n{end}"));
        }
        sentences
    }
}

/// On the screen, keys are meant for the view and not for the command. Printed figures have standard output for
/// themselves.
fn streams(opened: Option<File>, on_screen: bool) -> std::io::Result<Streams> {
    let input = on_screen.then(|| File::open("/dev/null")).transpose()?;
    let (output, error) = match opened {
        Some(file) => (file.try_clone()?, Some(file)),
        None => {
            let stderr = std::io::stderr().as_fd().try_clone_to_owned()?;
            (File::from(stderr), None)
        }
    };
    Ok(Streams {
        input,
        output: Some(output),
        error,
    })
}

fn temporary(launch: &LaunchPlan) -> PathBuf {
    let named = launch.variable("TMPDIR").map(PathBuf::from);
    named
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| PathBuf::from(TEMPORARY))
}

/// The last lines, indented; of a line that was written over (`\r`) what was written last.
fn end_of(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let is_short = file.seek(SeekFrom::End(-LAST_BYTES)).is_err();
    if is_short {
        file.rewind().ok()?;
    }
    let mut bytes = Vec::new();
    file.take(LAST_BYTES.unsigned_abs())
        .read_to_end(&mut bytes)
        .ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().skip(usize::from(!is_short)).collect();
    let last = lines.get(lines.len().saturating_sub(LAST_LINES)..)?;
    let shown = last.iter().map(|line| {
        let line = line.trim_end_matches('\r');
        format!("    {}", line.rsplit('\r').next().unwrap_or(line))
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
        std::fs::write(&path, "one\nstep 1\rstep 2\r\nthree").expect("written");
        assert_eq!(
            end_of(&path).as_deref(),
            Some("    one\n    step 2\n    three")
        );
        let many: String = (0..2000).map(|number| format!("line {number}\n")).collect();
        std::fs::write(&path, many).expect("written");
        let end = end_of(&path).expect("an end");
        assert_eq!(end.lines().count(), LAST_LINES);
        assert!(end.starts_with("    line 1990\n") && end.ends_with("line 1999"));
        std::fs::write(&path, "").expect("written");
        assert_eq!(end_of(&path), None);
    }
}
