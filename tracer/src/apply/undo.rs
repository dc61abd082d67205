//! `gctrace apply --undo`, `gctrace auto --undo`: takes the settings back in a running program.

use crate::print;
use anyhow::Context as _;
use gctrace_probes::proc_status;
use gctrace_settings::{AppliedProcess, CONTROL_FILE, FOLDER_VARIABLE, MAX_REPORT, REPORT_SUFFIX};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::Uid;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

/// How long an answer is awaited: programs look at each step and after collections.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Asks the program of a process to take its settings back, and waits for the answer.
///
/// # Errors
/// `gctrace apply` did not start it, or it belongs to another user.
pub(crate) fn undo(pid: u32) -> anyhow::Result<()> {
    let status = proc_status::status(pid)?;
    let effective = Uid::effective().as_raw();
    anyhow::ensure!(
        status.effective_user == Some(effective),
        "process {pid} belongs to another user: run gctrace apply --undo -p {pid} as that user"
    );
    let environment = proc_status::environment(pid)?;
    let folder = environment.get(OsStr::new(FOLDER_VARIABLE)).with_context(|| {
        format!(
            "process {pid} was not started by gctrace apply: {FOLDER_VARIABLE} is not set in it"
        )
    })?;
    let folder = open_folder(folder, effective)
        .with_context(|| format!("the folder of process {pid}, {}", folder.display()))?;
    let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mut control = open(&folder, CONTROL_FILE, flags, effective).context(CONTROL_FILE)?;
    control.write_all(b"1").context(CONTROL_FILE)?;
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if has_taken_back(&folder, pid, effective) {
            print::message(format!("process {pid} has taken its settings back"));
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    print::message(format!("process {pid} takes its settings back at its next step or collection"));
    Ok(())
}

/// Opens gctrace's private folder, and no other user's.
fn open_folder(path: &OsStr, uid: u32) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let folder = File::from(nix::fcntl::open(path, flags, Mode::empty())?);
    let found = folder.metadata()?;
    if found.uid() == uid && found.mode() & 0o077 == 0 {
        Ok(folder)
    } else {
        Err(io::Error::other("it is not a private folder of this user"))
    }
}

fn open(folder: &File, name: &str, flags: OFlag, uid: u32) -> io::Result<File> {
    let file = File::from(nix::fcntl::openat(folder, name, flags, Mode::empty())?);
    let found = file.metadata()?;
    if found.is_file() && found.uid() == uid && found.nlink() == 1 {
        Ok(file)
    } else {
        Err(io::Error::other("it is not gctrace's file"))
    }
}

fn has_taken_back(folder: &File, pid: u32, uid: u32) -> bool {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mut bytes = Vec::new();
    let read = open(folder, &format!("{pid}{REPORT_SUFFIX}"), flags, uid)
        .and_then(|file| file.take(MAX_REPORT).read_to_end(&mut bytes));
    let report = read.ok().and_then(|_| serde_json::from_slice(&bytes).ok());
    report.is_some_and(|report: AppliedProcess| report.taken_back)
}
