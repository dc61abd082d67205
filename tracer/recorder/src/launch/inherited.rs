//! State that gctrace inherited and has changed since, to pass it on unchanged.

use nix::errno::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// Limits that BPF loaders raise; the command must get the original ones.
const LIMITS: [libc::__rlimit_resource_t; 2] = [libc::RLIMIT_MEMLOCK, libc::RLIMIT_NOFILE];

static AT_START: OnceLock<InheritedState> = OnceLock::new();

/// Rust's runtime ignores SIGPIPE before `main`, so the state has to be read before that: the C
/// runtime calls the functions of this section first.
#[used]
#[unsafe(link_section = ".init_array")]
static CAPTURE: extern "C" fn() = capture;

extern "C" fn capture() {
    let _ = AT_START.set(InheritedState::now());
}

/// Signals that are ignored while gctrace records: SIGPIPE by Rust's runtime, SIGXFSZ by
/// [`ignore_size_limit`].
const IGNORED: [i32; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Makes a write beyond the file size limit fail, instead of terminating gctrace by SIGXFSZ.
pub(super) fn ignore_size_limit() {
    // SAFETY: a constant disposition; it cannot be refused for this signal.
    let _ = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Signal mask, the dispositions of signals that gctrace ignores, and limits.
#[derive(Clone, Copy)]
pub(super) struct InheritedState {
    mask: libc::sigset_t,
    ignored: [bool; IGNORED.len()],
    limits: [Option<libc::rlimit>; LIMITS.len()],
}

impl InheritedState {
    /// The state as gctrace was started with, before it changed any of it; saved once.
    pub(super) fn at_start() -> Self {
        *AT_START.get_or_init(Self::now)
    }

    fn now() -> Self {
        let mut mask = MaybeUninit::zeroed();
        // SAFETY: a null set changes nothing; the present mask is written into ours. If the call
        // failed, the zeroed set is the empty mask.
        let mask = unsafe {
            libc::sigprocmask(libc::SIG_SETMASK, std::ptr::null(), mask.as_mut_ptr());
            mask.assume_init()
        };
        Self { mask, ignored: IGNORED.map(is_ignored), limits: LIMITS.map(limit) }
    }

    /// Restores the state. For the child between fork and exec: system calls only.
    pub(super) fn restore(&self) -> io::Result<()> {
        for (resource, limit) in LIMITS.iter().zip(self.limits) {
            if let Some(limit) = limit {
                // SAFETY: the limit is a valid struct. An unchanged limit cannot be refused, and the start must not
                // fail because of a limit.
                let _ = unsafe { libc::setrlimit(*resource, &raw const limit) };
            }
        }
        for (signal, ignored) in IGNORED.into_iter().zip(self.ignored) {
            let disposition = if ignored { libc::SIG_IGN } else { libc::SIG_DFL };
            // SAFETY: a constant disposition.
            if unsafe { libc::signal(signal, disposition) } == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: a mask taken from the kernel.
        unsafe {
            Errno::result(libc::sigprocmask(
                libc::SIG_SETMASK,
                &raw const self.mask,
                std::ptr::null_mut(),
            ))?;
        }
        Ok(())
    }
}

/// Whether this process ignores a signal now.
pub(super) fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null action changes nothing; zeroed is a valid `sigaction` (the default one).
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

fn limit(resource: libc::__rlimit_resource_t) -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one struct.
    let result = unsafe { libc::getrlimit(resource, &raw mut limit) };
    if result == 0 { Some(limit) } else { None }
}
