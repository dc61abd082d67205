//! Ends this process if it keeps another one stopped for too long.
//!
//! A child that shares nothing but a pipe. The kernel resumes stopped threads when their tracer
//! dies, so a tracer that is itself stopped (SIGSTOP) or stuck is killed. The child makes system
//! calls only: it is forked, without an exec, from a process that may have several threads.

use nix::errno::Errno;
use nix::unistd::ForkResult;
use std::fs::File;
use std::io;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// How long this process may keep another one stopped, in ms.
pub(crate) const LIMIT_MS: i32 = 1800;

/// Messages for a heap and for a look at a program. The child prints them, as the killed process cannot.
const OF_HEAP: &str = "gctrace: kept the program stopped for 1.8 s, and is killed by its watchdog; the \
     program runs on unharmed. A heap without such a stop: gctrace heap --at-full N -- COMMAND\n";
const OF_STATE: &str = "gctrace: kept the program stopped for 1.8 s, and is killed by its watchdog; the \
     program runs on unharmed. The same again, when the machine has less to do: gctrace dump -p PID\n";
/// How long printing them may take, in us: a full pipe or a stopped terminal delays the end no longer.
const PATIENCE_US: i64 = 50_000;

const ARM: u8 = b'a';
const DISARM: u8 = b'd';

/// Purpose of a stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StopPurpose {
    /// Its heap is copied.
    Heap,
    /// Its threads are looked at.
    State,
}

/// The watchdog; it exits with this process, or when dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    pipe: Option<File>,
    child: nix::unistd::Pid,
}

impl Watchdog {
    /// Starts it, not armed. To be called while this process is small: a fork copies its page
    /// tables.
    pub(crate) fn start(purpose: StopPurpose) -> io::Result<Self> {
        let words = match purpose {
            StopPurpose::Heap => OF_HEAP,
            StopPurpose::State => OF_STATE,
        };
        let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        // SAFETY: getpid cannot fail.
        let watched = unsafe { libc::getpid() };
        // SAFETY: the child only makes system calls, and ends by _exit.
        match unsafe { nix::unistd::fork() }? {
            ForkResult::Child => watch(&reader, watched, words),
            ForkResult::Parent { child } => Ok(Self { pipe: Some(File::from(writer)), child }),
        }
    }

    /// From now on [`LIMIT_MS`] are left.
    pub(crate) fn arm(&self) -> io::Result<()> {
        self.send(ARM)
    }

    /// The other process runs again.
    pub(crate) fn disarm(&self) -> io::Result<()> {
        self.send(DISARM)
    }

    fn send(&self, message: u8) -> io::Result<()> {
        match &self.pipe {
            Some(pipe) => (&*pipe).write_all(&[message]),
            None => Ok(()),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.pipe = None;
        let _reaped = nix::sys::wait::waitpid(self.child, None);
    }
}

/// The child's whole life.
fn watch(reader: &OwnedFd, watched: libc::pid_t, words: &str) -> ! {
    let pipe = reader.as_raw_fd();
    // Before others when its time comes, if that is allowed; out of reach of the terminal's signals,
    // and without any other descriptor: the pipe must end with the watched process.
    // SAFETY: system calls on plain numbers.
    unsafe {
        libc::setsid();
        let mut priority: libc::sched_param = std::mem::zeroed();
        priority.sched_priority = 2;
        libc::sched_setscheduler(0, libc::SCHED_RR, &raw const priority);
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
        // Standard error stays, for the last words.
        let kept = pipe.cast_unsigned();
        for (first, last) in [(0, 1), (3, kept - 1), (kept + 1, u32::MAX)] {
            if first <= last {
                libc::syscall(libc::SYS_close_range, first, last, 0);
            }
        }
    }
    let mut timeout = -1;
    loop {
        let mut poll = libc::pollfd { fd: pipe, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        let ready = unsafe { libc::poll(&raw mut poll, 1, timeout) };
        if ready < 0 && Errno::last() == Errno::EINTR {
            continue;
        }
        if ready == 0 {
            // SAFETY: system calls on plain numbers. The parent is the watched process as long as
            // the pipe is open.
            unsafe {
                if libc::getppid() == watched {
                    print_last_words(words);
                    libc::kill(watched, libc::SIGKILL);
                }
                libc::_exit(0);
            }
        }
        let mut message = 0_u8;
        // SAFETY: one writable byte.
        let size = unsafe { libc::read(pipe, (&raw mut message).cast(), 1) };
        match (size, message) {
            (1, ARM) => timeout = LIMIT_MS,
            (1, _) => timeout = -1,
            // SAFETY: ends this process, without any of its parent's clean-up.
            _ => unsafe { libc::_exit(0) },
        }
    }
}

/// Prints why the watched process ends, if standard error takes it in time.
fn print_last_words(words: &str) {
    extern "C" fn interrupt(_signal: libc::c_int) {}
    let tick = libc::timeval { tv_sec: 0, tv_usec: PATIENCE_US };
    // Repeated, as the first signal may come before the write.
    let timer = libc::itimerval { it_interval: tick, it_value: tick };
    // SAFETY: all zeros are a valid sigaction, without SA_RESTART: the signal ends a write that waits.
    // The handler does nothing; everything that is passed is valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = interrupt as *const () as usize;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
        let mut alarm: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut alarm, libc::SIGALRM);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const alarm, std::ptr::null_mut());
        if libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) == 0 {
            libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len());
        }
    }
}
