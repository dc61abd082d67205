//! Why a process hands over no ring, where it or its parent knows: one byte each in a file beside the socket.
//!
//! For processes that must not make a ring or cannot: nothing here takes more than open(2), write(2) and close(2), which
//! every program's loader and its output need as well. The file is of the programs' user, so what it says is counted
//! and never believed further.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// The file's name, in the folder of the socket.
pub const ABSENCE_FILE: &str = "absent";

/// Why a process hands over no ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Absence {
    /// It runs under a seccomp filter that gctrace does not: a system call that the program would not have made may
    /// kill it.
    Confined = b'c',
    /// It was started with an environment without gctrace's variables.
    Environment = b'e',
    /// Its variables are those of another gctrace.
    OtherGctrace = b'g',
}

impl Absence {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Confined, Self::Environment, Self::OtherGctrace];

    /// Says so, in the file beside this socket; if that cannot be done, it is not. Allocates nothing: may be called
    /// between fork and exec.
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
        path.iter_mut()
            .zip(whole)
            .for_each(|(to, from)| *to = *from);
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

/// How often the file says what, in the order of [`Absence::ALL`].
///
/// # Errors
/// The kernel's.
pub fn absences(file: &std::fs::File) -> io::Result<[u64; Absence::ALL.len()]> {
    /// More are not counted: a program may write without end.
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
    fn what_is_said_is_counted() {
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
        assert_eq!(counts, [0, 4, 1]);
    }
}
