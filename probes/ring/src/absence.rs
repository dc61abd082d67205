//! Why a process hands over no ring, if it or its parent knows: a number each in a file next to the
//! socket.
//!
//! For processes that must not or cannot create a ring: nothing here needs more than open(2),
//! fstat(2), mmap(2), munmap(2) and close(2), which every program's loader uses as well. Counted in
//! shared memory, as write(2) beyond the process's limit of file sizes raises SIGXFSZ. The programs'
//! user can change the file, so its numbers are not trusted further.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The file's name, in the socket's folder.
pub const ABSENCE_FILE: &str = "absent";

/// Why a process hands over no ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Absence {
    /// It runs under a seccomp filter that gctrace does not: a system call that the program would
    /// not have made may kill it.
    Confined,
    /// It was started with an environment that lacks gctrace's variables.
    Environment,
    /// Its variables belong to another gctrace.
    OtherGctrace,
    /// The library switched recording off before it created a ring.
    SwitchedOff,
    /// It runs PyPy, which has another collector.
    PyPy,
    /// Its limits (setrlimit(2)), or the system's memory, leave no room for a ring.
    Limited,
}

impl Absence {
    /// All variants, in the order of their declaration, in which [`absences`] returns their counts.
    pub const ALL: [Self; 6] = [
        Self::Confined,
        Self::Environment,
        Self::OtherGctrace,
        Self::SwitchedOff,
        Self::PyPy,
        Self::Limited,
    ];

    /// Counts itself in the file next to this socket; a failure is ignored. Allocates nothing:
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
        let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: a C string, ended by the zero above; the descriptor is ours, closed once.
        let file = unsafe {
            let file = libc::open(path.as_ptr().cast(), flags);
            if file < 0 {
                return;
            }
            OwnedFd::from_raw_fd(file)
        };
        // SAFETY: the file is at least as long as what is mapped. Whoever can shorten it meanwhile can
        // also signal this process: its own user.
        unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            let is_whole = libc::fstat(file.as_raw_fd(), &raw mut status) == 0
                && u64::try_from(status.st_size).is_ok_and(|size| size >= BYTES as u64);
            if !is_whole {
                return;
            }
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let memory = libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                access,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            if memory != libc::MAP_FAILED {
                let counts = memory.cast::<[AtomicU64; Absence::ALL.len()]>();
                if let Some(count) = (*counts).get(self as usize) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                libc::munmap(memory, BYTES);
            }
        }
    }
}

/// Size of the file: a number for each of [`Absence::ALL`].
const BYTES: usize = 8 * Absence::ALL.len();

/// Makes a new file count from 0.
///
/// # Errors
/// The kernel's error.
pub fn begin_absences(file: &std::fs::File) -> io::Result<()> {
    file.set_len(BYTES as u64)
}

/// Number of processes per reason, in the order of [`Absence::ALL`].
///
/// # Errors
/// The kernel's error, also for a file that was shortened.
pub fn absences(file: &std::fs::File) -> io::Result<[u64; Absence::ALL.len()]> {
    let mut counts = [0; Absence::ALL.len()];
    for (at, count) in (0..).step_by(8).zip(&mut counts) {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at)?;
        *count = u64::from_ne_bytes(bytes);
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_counted() {
        let folder = std::env::temp_dir().join(format!("gctrace-absence-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join(ABSENCE_FILE);
        let socket = folder.join("socket");
        let socket = socket.as_os_str().as_encoded_bytes();
        Absence::Environment.report(socket);
        let file = std::fs::File::create_new(&path).unwrap();
        // Shortened by the program.
        Absence::Environment.report(socket);
        begin_absences(&file).unwrap();
        Absence::Environment.report(socket);
        Absence::OtherGctrace.report(socket);
        Absence::Environment.report(socket);
        Absence::Environment.report(b"socket");
        Absence::Environment.report(&[b'/'; 4000]);
        let counts = absences(&std::fs::File::open(&path).unwrap()).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(counts, [0, 2, 1, 0, 0, 0]);
    }
}
