//! Why a process hands over no ring, if it or its parent knows: a number each in a file next to the
//! socket.
//!
//! For processes that must not or cannot create a ring. Only open(2), fstat(2), mmap(2), munmap(2) and close(2) are
//! called, as by every program's loader. Counted in shared memory, as write(2) beyond the process's limit of file sizes
//! raises SIGXFSZ. Filters of system calls may forbid opening files for writing: a confined process takes a byte out of
//! a pipe, [`CONFINED_FILE`]. The programs' user can change the files, so their numbers are not trusted further.

use std::fs::File;
use std::io;
use std::io::Write as _;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The file's name, in the socket's folder.
pub const ABSENCE_FILE: &str = "absent";

/// Name of the pipe with a byte for each process that may turn out to be confined, in the same folder.
pub const CONFINED_FILE: &str = "confined";

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
    /// It runs PyPy, with another collector.
    PyPy,
    /// Its limits (setrlimit(2)), or the system's memory, leave no room for a ring.
    Limited,
}

impl Absence {
    /// All variants, in the order of their declaration and of their counts.
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
        if self == Self::Confined {
            if let Some(pipe) = open_beside(rendezvous, CONFINED_FILE, libc::O_NONBLOCK) {
                let mut byte = 0_u8;
                // SAFETY: room for a byte, in a pipe that is not waited for.
                unsafe { libc::read(pipe.as_raw_fd(), (&raw mut byte).cast(), 1) };
            }
            return;
        }
        let flags = libc::O_RDWR | libc::O_NOFOLLOW;
        let Some(file) = open_beside(rendezvous, ABSENCE_FILE, flags) else { return };
        // SAFETY: the file is at least as long as the mapping. Only its own user can shorten it meanwhile, and that
        // user could signal this process as well.
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

/// Opens a file in the folder of a socket.
fn open_beside(rendezvous: &[u8], name: &str, flags: i32) -> Option<OwnedFd> {
    let mut path = [0_u8; 256];
    let folder = rendezvous.iter().rposition(|byte| *byte == b'/')?;
    let folder = rendezvous.get(..=folder)?;
    let whole = folder.iter().chain(name.as_bytes()).chain(&[0]);
    if folder.len() + name.len() >= path.len() {
        return None;
    }
    path.iter_mut().zip(whole).for_each(|(to, from)| *to = *from);
    // SAFETY: a C string, ended by the zero above; the descriptor is ours, closed once.
    unsafe {
        let file = libc::open(path.as_ptr().cast(), flags | libc::O_CLOEXEC);
        if file >= 0 { Some(OwnedFd::from_raw_fd(file)) } else { None }
    }
}

/// Size of the file: a number for each of [`Absence::ALL`].
const BYTES: usize = 8 * Absence::ALL.len();

/// The files where processes count themselves, as gctrace has them.
#[derive(Debug)]
pub struct AbsenceFiles {
    counts: File,
    confined: File,
    /// Bytes in the pipe at first.
    offered: u64,
}

impl AbsenceFiles {
    /// Makes new files count from 0: [`ABSENCE_FILE`] and [`CONFINED_FILE`], a pipe that is open for reading and writing
    /// and not waited for.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn begin(counts: File, mut confined: File) -> io::Result<Self> {
        counts.set_len(BYTES as u64)?;
        let mut offered = 0;
        while let Ok(written) = confined.write(&[b'.'; 4096]) {
            offered += written as u64;
        }
        Ok(Self { counts, confined, offered })
    }

    /// Number of processes per reason, in the order of [`Absence::ALL`].
    ///
    /// # Errors
    /// The kernel's error, also for a file that was shortened.
    pub fn counts(&self) -> io::Result<[u64; Absence::ALL.len()]> {
        let mut counts = [0; Absence::ALL.len()];
        for (at, count) in (0..).step_by(8).zip(&mut counts) {
            let mut bytes = [0; 8];
            self.counts.read_exact_at(&mut bytes, at)?;
            *count = u64::from_ne_bytes(bytes);
        }
        let mut left: libc::c_int = 0;
        // SAFETY: writes a number of this type.
        let asked =
            unsafe { libc::ioctl(self.confined.as_raw_fd(), libc::FIONREAD, &raw mut left) };
        if asked == 0
            && let Ok(left) = u64::try_from(left)
        {
            counts[Absence::Confined as usize] = self.offered.saturating_sub(left);
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::OpenOptionsExt as _;

    #[test]
    fn processes_are_counted() {
        let folder = std::env::temp_dir().join(format!("gctrace-absence-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join(ABSENCE_FILE);
        let socket = folder.join("socket");
        let socket = socket.as_os_str().as_encoded_bytes();
        Absence::Environment.report(socket);
        Absence::Confined.report(socket);
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let pipe = folder.join(CONFINED_FILE);
        let name = std::ffi::CString::new(pipe.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let pipe = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&pipe)
            .unwrap();
        // Shortened by the program.
        Absence::Environment.report(socket);
        let files = AbsenceFiles::begin(file, pipe).unwrap();
        Absence::Confined.report(socket);
        Absence::Environment.report(socket);
        Absence::OtherGctrace.report(socket);
        Absence::Environment.report(socket);
        Absence::Environment.report(b"socket");
        Absence::Environment.report(&[b'/'; 4000]);
        let counts = files.counts().unwrap();
        drop(files);
        // Without gctrace nothing is waited for.
        Absence::Confined.report(socket);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(counts, [1, 2, 1, 0, 0, 0]);
    }
}
