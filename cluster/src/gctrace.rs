//! The `gctrace` program beside this one, which reads all traces.
//!
//! A process of its own per trace or query: it can be killed for memory, and nothing of gctrace's
//! libraries has to be compiled into this program (docs/adr/0005).

use anyhow::Context as _;
use anyhow::Result;
use std::ffi::OsStr;
use std::path::Path;
use std::path::PathBuf;
use std::process::Output;
use std::process::Stdio;
use tokio::process::Command;

/// A `gctrace` that can be started.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gctrace(PathBuf);

impl Gctrace {
    /// The one that is named, or that in the directory of this program, or that of `PATH`.
    pub(crate) fn find(named: Option<&Path>) -> Self {
        let beside = || {
            let own = std::env::current_exe().ok()?;
            Some(own.with_file_name("gctrace")).filter(|path| path.is_file())
        };
        let named = named.map(Path::to_owned).or_else(beside);
        Self(named.unwrap_or_else(|| PathBuf::from("gctrace")))
    }

    /// Runs it to its end with nothing to read, and returns what it printed.
    ///
    /// # Errors
    /// It cannot be started, or its exit code is not 0: with its messages.
    pub(crate) async fn run(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Output> {
        let mut command = Command::new(&self.0);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = command.output().await.with_context(|| {
            format!(
                "{}: cannot be started; gctrace must be beside gctrace-cluster or in PATH, or name \
                 it: gctrace-cluster --gctrace PATH ...",
                self.0.display()
            )
        })?;
        let messages = String::from_utf8_lossy(&output.stderr);
        let messages = messages.trim().trim_start_matches("gctrace: ");
        anyhow::ensure!(
            output.status.success(),
            "gctrace, {}: {messages}",
            output.status
        );
        Ok(output)
    }
}
