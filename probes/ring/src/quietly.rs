//! gctrace's work in a program raises no signal that would end the program.

use std::io;
use std::mem::MaybeUninit;

/// Writes, or sizes a file, with the signals of doing so blocked in the calling thread: SIGXFSZ beyond the program's
/// limit of file sizes (setrlimit(2), of memory files too), SIGPIPE where nothing reads. If a signal was raised, it is
/// taken away again. System calls only: may be called between fork and exec.
///
/// # Errors
/// Errors of `write`.
pub fn quietly(write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let mut before = empty_set();
    let mut pending = empty_set();
    let raised = set_of(&[libc::SIGXFSZ, libc::SIGPIPE]);
    // SAFETY: sets of this function.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const raised, &raw mut before);
        libc::sigpending(&raw mut pending);
    }
    let result = write();
    let error = result.as_ref().err().and_then(io::Error::raw_os_error);
    let signal = match error {
        Some(libc::EFBIG) => Some(libc::SIGXFSZ),
        Some(libc::EPIPE) => Some(libc::SIGPIPE),
        _ => None,
    };
    // SAFETY: as above.
    unsafe {
        if let Some(signal) = signal
            && libc::sigismember(&raw const pending, signal) == 0
        {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let set = set_of(&[signal]);
            libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
    result
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: makes it an empty set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = empty_set();
    for signal in signals {
        // SAFETY: a set of this function.
        unsafe { libc::sigaddset(&raw mut set, *signal) };
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_pipe_that_nothing_reads_raises_no_signal() {
        // SAFETY: of this process: a test that fails would end it.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let error = quietly(|| writer.write_all(b"x")).expect_err("broken");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        let mut pending = empty_set();
        // SAFETY: a set of this function.
        unsafe { libc::sigpending(&raw mut pending) };
        // SAFETY: as above.
        let is_pending = unsafe { libc::sigismember(&raw const pending, libc::SIGPIPE) };
        assert_eq!(is_pending, 0);
    }
}
