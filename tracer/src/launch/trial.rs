//! Loading the injected library once, before it is preloaded into a program: does the loader accept it?
//!
//! Its code runs in a child that has the command's user and no capability at all, never in gctrace, which
//! may have more rights than whoever chose the file. The child is gctrace again: between fork and exec of a
//! process with threads nothing but system calls is allowed.

use crate::launch::LaunchPlan;
use crate::launch::invoker::Credentials;
use crate::privileges;
use anyhow::bail;
use nix::errno::Errno;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::poll::PollTimeout;
use std::ffi::CStr;
use std::ffi::CString;
use std::io;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Child;
use std::process::ChildStderr;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;

/// A library is loaded in milliseconds.
const PATIENCE_MS: u16 = 10_000;

/// Most bytes of the loader's message that are shown; a pipe holds them, so that the child never waits.
const MESSAGE: u64 = 4096;

/// Whether the loader takes the library, in a child as the command's user; why not, in words.
pub(super) fn loads(path: &Path, launch: &LaunchPlan) -> Result<(), String> {
    let failed = |error: io::Error| format!("loading it cannot be tried: {error}");
    let mut child = start(path, launch).map_err(failed)?;
    let stderr = child.stderr.take();
    let ended = wait(&mut child).map_err(failed)?;
    match ended {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(match status.signal() {
            Some(signal) => format!("loading it was ended by signal {signal}"),
            None => message(stderr),
        }),
        None => Err(format!(
            "loading it did not end within {} s",
            PATIENCE_MS / 1000
        )),
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
    // Where the loader will look for what the library needs.
    let search = "LD_LIBRARY_PATH";
    command.envs(launch.variable(search).map(|folders| (search, folders)));
    let identity = launch.identity.as_ref().map(Credentials::of);
    // SAFETY: the closure makes system calls only; it neither allocates nor locks.
    unsafe {
        command.pre_exec(move || renounce(identity.as_ref()));
    }
    command.spawn()
}

/// Takes on the identity, then gives up every right beyond that user's. Between fork and exec.
fn renounce(identity: Option<&Credentials>) -> io::Result<()> {
    identity.map_or(Ok(()), Credentials::take_on)?;
    privileges::renounce()
}

/// How the child ended; `None`, and it is killed, if it takes too long.
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let pidfd = crate::launch::pidfd_of(child)?;
    let mut ends = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    loop {
        match nix::poll::poll(&mut ends, PollTimeout::from(PATIENCE_MS)) {
            Ok(0) => {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            Ok(_) => return child.wait().map(Some),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// What the child said, as far as it is there: what it started may still hold the pipe.
fn message(stderr: Option<ChildStderr>) -> String {
    let mut bytes = Vec::new();
    if let Some(stderr) = stderr {
        // SAFETY: flags of a descriptor that we own.
        unsafe { libc::fcntl(stderr.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        // What was read before a failure is the message.
        let _ = stderr.take(MESSAGE).read_to_end(&mut bytes);
    }
    let printed = String::from_utf8_lossy(&bytes);
    let line = printed.lines().next().unwrap_or_default();
    match line.trim_start_matches("gctrace: ") {
        "" => "the loader refuses it".to_owned(),
        reason => reason.to_owned(),
    }
}

/// The child: loads the library. Its constructor does nothing without the variables that ask it to. Rights are
/// given up here as well: whoever types the hidden subcommand gets the same.
///
/// # Errors
/// The loader's.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that loads a library, in a process without rights"
)]
pub(crate) fn load(path: &Path) -> anyhow::Result<()> {
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
        bail!("the loader refuses it");
    }
    // SAFETY: not null, and a C string (dlerror(3)).
    bail!("{}", unsafe { CStr::from_ptr(text) }.to_string_lossy())
}
