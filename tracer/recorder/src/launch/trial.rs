//! Loads the injected library once, before it is preloaded into a program, to see if the loader
//! accepts it.
//!
//! Its code runs in a child with the command's user and without capabilities, never in gctrace: gctrace may have more
//! rights than the user that chose the file. The child is gctrace again: between fork and exec, a process with threads
//! may only make system calls.

use crate::invoker::Credentials;
use crate::launch::LaunchPlan;
use crate::{privileges, wait};
use anyhow::bail;
use std::ffi::{CStr, CString};
use std::io;
use std::io::Read as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

/// A library is loaded in milliseconds.
const PATIENCE_MS: u16 = 10_000;

/// Maximum length of the loader's message, in bytes: fits into a pipe, so the child never blocks.
const MESSAGE: u64 = 4096;

/// Checks that the loader accepts the library, in a child as the command's user; returns the reason
/// if not.
pub(super) fn loads(path: &Path, launch: &LaunchPlan) -> Result<(), String> {
    let failed = |error: io::Error| format!("loading it could not be tried: {error}");
    let mut child = start(path, launch).map_err(failed)?;
    let stderr = child.stderr.take();
    let ended = wait(&mut child).map_err(failed)?;
    match ended {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(match status.signal() {
            Some(signal) => format!("loading it was terminated by signal {signal}"),
            None => message(stderr),
        }),
        None => Err(format!("loading it did not finish within {} s", PATIENCE_MS / 1000)),
    }
}

fn start(path: &Path, launch: &LaunchPlan) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("gctrace")
        .arg(crate::args::LOAD_LIBRARY)
        .arg(path)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // Where the loader will look for the library's dependencies.
    let search = "LD_LIBRARY_PATH";
    command.envs(launch.variable(search).map(|folders| (search, folders)));
    let identity = launch.identity.as_ref().map(Credentials::of);
    // SAFETY: the closure only makes system calls; it neither allocates nor locks.
    unsafe {
        command.pre_exec(move || renounce(identity.as_ref()));
    }
    command.spawn()
}

/// Assumes the identity, then drops every right beyond that user's. Between fork and exec.
fn renounce(identity: Option<&Credentials>) -> io::Result<()> {
    identity.map_or(Ok(()), Credentials::assume)?;
    privileges::renounce()
}

/// How the child ended; `None`, and it is killed, if it takes too long.
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let pidfd = crate::platform::pidfd(child.id())?;
    if wait::readable([pidfd.as_fd()], PATIENCE_MS)? {
        return child.wait().map(Some);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// The child's message, as far as available: a process that it started may keep the pipe open.
fn message(stderr: Option<ChildStderr>) -> String {
    let mut bytes = Vec::new();
    if let Some(stderr) = stderr {
        // SAFETY: flags of a descriptor that we own.
        unsafe { libc::fcntl(stderr.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        // If reading fails, the message is the part read before.
        let _ = stderr.take(MESSAGE).read_to_end(&mut bytes);
    }
    let printed = String::from_utf8_lossy(&bytes);
    let line = printed.split('\n').next().unwrap_or(&printed);
    match line.trim_start_matches("gctrace: ") {
        "" => "the loader rejects it".to_owned(),
        reason => reason.to_owned(),
    }
}

/// The child: loads the library. Its constructor does nothing without the variables that request
/// it. Rights are dropped here as well: the hidden subcommand can be run by hand.
///
/// # Errors
/// The loader's.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that loads a library, in a process without privileges"
)]
pub fn load(path: &Path) -> anyhow::Result<()> {
    privileges::renounce()?;
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a C string; whatever runs in the constructor runs with the user's own rights.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !handle.is_null() {
        return Ok(());
    }
    // SAFETY: the loader's text lives until its next call on this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        bail!("the loader rejects it");
    }
    // SAFETY: not null, and a C string (dlerror(3)).
    bail!("{}", unsafe { CStr::from_ptr(text) }.to_string_lossy())
}
