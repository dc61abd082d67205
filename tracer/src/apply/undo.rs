//! `gctrace apply --undo`, `gctrace auto --undo`: takes the settings back in a running program.

use super::agent_folder::AgentFolder;
use crate::print;
use anyhow::Context as _;
use gctrace_probes::proc_status;
use gctrace_settings::{CONTROL_FILE, FOLDER_VARIABLE};
use nix::unistd::Uid;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// How long an answer is awaited: programs look at each step and after collections.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Asks the program of a process to take its settings back, and waits for the answer.
///
/// # Errors
/// `gctrace apply` did not start it, or it belongs to another user.
pub(crate) fn undo(pid: u32) -> anyhow::Result<()> {
    let user = Uid::effective().as_raw();
    anyhow::ensure!(
        proc_status::status(pid)?.effective_user == Some(user),
        "process {pid} belongs to another user: run gctrace apply --undo -p {pid} as that user"
    );
    let folder = AgentFolder::of(pid, user)?.with_context(|| {
        format!(
            "process {pid} was not started by gctrace apply: {FOLDER_VARIABLE} is not set in it"
        )
    })?;
    let mut control = folder.control().context(CONTROL_FILE)?;
    control.write_all(b"1").context(CONTROL_FILE)?;
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if matches!(folder.report(), Some(report) if report.taken_back) {
            print::message(format!("process {pid} has taken its settings back"));
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    print::message(format!("process {pid} takes its settings back at its next step or collection"));
    Ok(())
}
