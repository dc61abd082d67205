//! Why a process hands over no ring, if it or its parent knows: one byte each in a file next to the
//! socket.
//!
//! For processes that must not or cannot create a ring: nothing here needs more than open(2),
//! write(2) and close(2), which every program's loader and its output use as well. The programs'
//! user can write the file, so its entries are counted and not trusted further.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// The file's name, in the socket's folder.
pub const ABSENCE_FILE: &str = "absent";

/// Why a process hands over no ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Absence {
    /// It runs under a seccomp filter that gctrace does not: a system call that the program would
    /// not have made may kill it.
    Confined = b'c',
    /// It was started with an environment that lacks gctrace's variables.
    Environment = b'e',
    /// Its variables belong to another gctrace.
    OtherGctrace = b'g',
    /// The library switched recording off before it created a ring.
    SwitchedOff = b'x',
    /// It runs PyPy, which has another collector.
    PyPy = b'p',
}

impl Absence {
    /// All variants, in the order in which [`absences`] returns their counts.
    pub const ALL: [Self; 5] =
        [Self::Confined, Self::Environment, Self::OtherGctrace, Self::SwitchedOff, Self::PyPy];

    /// Appends the reason to the file next to this socket; a failure is ignored. Allocates nothing:
    /// may be called between fork and exec.
    pub fn report(self, rendezvous: &[u8]) {
        let mut path = [0_u8; 256];
        let folder = rendezvous.iter().rposition(|byte| *byte == b'/');
        let Some(folder) = folder.and_then(|end| rendezvous.get(..=end)) else {
            return;
        };
        let whole = folder.iter().chain(ABSENCE_FILE.as_bytes()).chain(&[0]);
        if folder.len() + ABSENCE_FILE.len() >= path.len() {
            return;
        }
        path.iter_mut().zip(whole).for_each(|(to, from)| *to = *from);
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: a C string, ended by the zero above; the descriptor is ours, closed once.
        unsafe {
            let file = libc::open(path.as_ptr().cast(), flags);
            if file >= 0 {
                let file = OwnedFd::from_raw_fd(file);
                let byte = self as u8;
                libc::write(file.as_raw_fd(), (&raw const byte).cast(), 1);
            }
        }
    }
}

/// Number of entries per reason, in the order of [`Absence::ALL`].
///
/// # Errors
/// The kernel's error.
pub fn absences(file: &std::fs::File) -> io::Result<[u64; Absence::ALL.len()]> {
    /// Maximum number of bytes counted: a program may write without end.
    const MAX_BYTES: u64 = 1 << 20;
    let mut counts = [0; Absence::ALL.len()];
    let mut bytes = [0; 4096];
    let mut at = 0;
    while at < MAX_BYTES {
        let length = file.read_at(&mut bytes, at)?;
        if length == 0 {
            break;
        }
        for byte in bytes.iter().take(length) {
            let which = Absence::ALL.iter().position(|one| *one as u8 == *byte);
            if let Some(count) = which.and_then(|which| counts.get_mut(which)) {
                *count += 1;
            }
        }
        at += length as u64;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_counted() {
        let folder = std::env::temp_dir().join(format!("gctrace-absence-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join(ABSENCE_FILE);
        let socket = folder.join("socket");
        let socket = socket.as_os_str().as_encoded_bytes();
        Absence::Environment.report(socket);
        std::fs::write(&path, "nonsense").unwrap();
        Absence::Environment.report(socket);
        Absence::OtherGctrace.report(socket);
        Absence::Environment.report(socket);
        Absence::Environment.report(b"socket");
        Absence::Environment.report(&[b'/'; 4000]);
        let counts = absences(&std::fs::File::open(&path).unwrap()).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        // "nonsense" has two e.
        assert_eq!(counts, [0, 4, 1, 0, 0]);
    }
}
