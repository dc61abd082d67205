//! The lock of a recorder on its output; others find the recorder by it.

use super::open_regular;
use super::segments::LOCK;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use std::fs::File;
use std::io;
use std::path::Path;

/// Whether this process has the lock now. It ends with the process, also by a kill, and when the process closes any
/// descriptor of the file.
pub fn take(file: &File) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_SETLK(&whole_file())) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The process that writes a trace, a file or a directory, now; `None`: none does, as far as is known here. The
/// inner one is `None` in another pid namespace.
pub fn writer_of(trace: &Path) -> Option<Option<u32>> {
    let file = if trace.is_dir() { open_regular(&trace.join(LOCK)) } else { open_regular(trace) };
    holder(&file.ok()?).ok().flatten()
}

/// The process that has the lock, as this process knows it; `None`: none has. The inner one is `None` in another pid
/// namespace.
///
/// # Errors
/// The kernel's.
pub fn holder(file: &File) -> io::Result<Option<Option<u32>>> {
    let mut asked = whole_file();
    // A file opened for reading can only have a lock for reading.
    asked.l_type = libc::F_RDLCK as libc::c_short;
    fcntl(file, FcntlArg::F_GETLK(&mut asked))?;
    if i32::from(asked.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    Ok(Some(u32::try_from(asked.l_pid).ok().filter(|pid| *pid > 0)))
}

fn whole_file() -> libc::flock {
    // SAFETY: all fields are numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}
