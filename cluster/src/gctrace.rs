//! The `gctrace` program beside this one, which reads all traces.
//!
//! A process of its own per trace or query: it can be killed for memory, and nothing of gctrace's
//! libraries has to be compiled into this program (docs/adr/0005).

use anyhow::{Context as _, Result};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// A `gctrace` that can be started.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gctrace(PathBuf);

impl Gctrace {
    /// The named one, or the one in the directory of this program, or else the first in `PATH`.
    pub(crate) fn find(named: Option<&Path>) -> Self {
        // It is started in other directories.
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let beside = || {
            let executable = std::env::current_exe().ok()?;
            Some(executable.with_file_name("gctrace")).filter(|path| path.is_file())
        };
        let named = named.map(absolute).or_else(beside);
        Self(named.unwrap_or_else(|| PathBuf::from("gctrace")))
    }

    /// Runs it in `directory` to its end, with nothing to read. Returns its messages.
    ///
    /// # Errors
    /// It cannot be started, or its exit code is not 0: with its messages.
    pub(crate) async fn run(
        &self,
        directory: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<String> {
        let mut command = Command::new(&self.0);
        let command = command.current_dir(directory).args(arguments);
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
        let output = output.with_context(|| self.cannot_start())?;
        let messages = String::from_utf8_lossy(&output.stderr);
        let messages = messages.lines().map(|line| line.trim_start_matches("gctrace: "));
        let messages = messages.collect::<Vec<_>>().join("\n");
        anyhow::ensure!(output.status.success(), "gctrace, {}: {messages}", output.status);
        Ok(messages)
    }

    /// Runs it in this process's place: with its output and its messages. Returns its exit code.
    ///
    /// # Errors
    /// It cannot be started, or is killed.
    pub(crate) async fn show(&self, arguments: Vec<OsString>) -> Result<u8> {
        let status = Command::new(&self.0).args(arguments).status().await;
        let status = status.with_context(|| self.cannot_start())?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        code.with_context(|| format!("gctrace, {status}"))
    }

    fn cannot_start(&self) -> String {
        format!(
            "{}: cannot be started; gctrace must be beside gctrace-cluster or in PATH, or name it: \
             gctrace-cluster --gctrace PATH ...",
            self.0.display()
        )
    }
}
