//! When to flush: periodically on a thread of ours, and at the end of the program.

use super::find;
use super::session::CuptiSession;
use crate::process_ring::is_off;
use crate::recording::guarded;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// Interval between flushes: the most GPU work that a killed program loses, if CUPTI returns all ended work. For driver
/// calls the loss is up to twice that: they are held back once.
const INTERVAL: Duration = Duration::from_millis(250);

/// Maximum time that the end of the program waits for a flush in progress.
const PATIENCE: Duration = Duration::from_secs(2);

// Decides which thread may call CUPTI. Our thread and the thread that ends the program must not overlap there, and our
// thread must not call it afterwards, when CUDA has been torn down.
const OPEN: u8 = 0;
const FLUSHING: u8 = 1;
const ENDED: u8 = 2;

static GATE: AtomicU8 = AtomicU8::new(OPEN);
static THREAD: OnceLock<Thread> = OnceLock::new();

/// Arranges the flushes. Called during the driver's initialization: the handler runs before CUDA's own, earlier
/// registered handler.
pub(super) fn prepare(session: &'static CuptiSession) {
    stay_loaded();
    // SAFETY: a function of this library; the library stays loaded.
    unsafe { libc::atexit(at_exit) };
    start_thread(session);
}

/// Keeps this library loaded: the handler and the thread run its code.
fn stay_loaded() {
    let address = (at_exit as extern "C" fn()) as *mut c_void;
    if let Some(file) = find::file_of(address)
        && let Ok(file) = std::ffi::CString::new(file)
    {
        let flags: c_int = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: a C string; the library is loaded, so nothing is run.
        unsafe { libc::dlopen(file.as_ptr(), flags) };
    }
}

fn start_thread(session: &'static CuptiSession) {
    // Without it, buffers arrive when they are full, and at the end.
    let thread = spawn_quietly("gctrace-cupti", move || flush_regularly(session));
    if let Some(thread) = thread {
        let _ = THREAD.set(thread);
    }
}

/// Starts a thread of ours, with all signals blocked: they are for the program. `None` if the
/// kernel refuses.
pub(super) fn spawn_quietly(name: &str, work: impl FnOnce() + Send + 'static) -> Option<Thread> {
    let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both places are writable; the first is filled before it is read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let builder = std::thread::Builder::new().name(name.to_owned());
    let spawned = builder.spawn(|| guarded(work));
    // SAFETY: filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    spawned.ok().map(|handle| handle.thread().clone())
}

fn flush_regularly(session: &CuptiSession) {
    loop {
        std::thread::park_timeout(INTERVAL);
        let taken = GATE.compare_exchange(OPEN, FLUSHING, Ordering::AcqRel, Ordering::Acquire);
        if taken.is_err() {
            return;
        }
        if is_off() {
            // The gate stays closed.
            return session.disable();
        }
        session.flush(false);
        GATE.store(OPEN, Ordering::Release);
    }
}

/// The program exits by `exit` or by returning from `main`.
extern "C" fn at_exit() {
    guarded(|| {
        // Not in forked children: they inherit the handler.
        if let Some(session) = CuptiSession::current()
            && close_gate()
        {
            session.flush(true);
        }
    });
}

/// Locks the thread out for good; `false` if it does not return from CUPTI in time.
fn close_gate() -> bool {
    const STEP: Duration = Duration::from_millis(1);
    let mut waited = Duration::ZERO;
    loop {
        match GATE.compare_exchange(OPEN, ENDED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(FLUSHING) if waited < PATIENCE => {}
            Err(_) => return false,
        }
        std::thread::sleep(STEP);
        waited += STEP;
    }
}

/// CUPTI's callback for its subscriber: only that a context is about to be destroyed. Its records
/// are in our buffers and stay valid; they are fetched soon, but not here, where CUPTI may hold
/// locks.
pub(super) extern "C" fn notice(
    _data: *mut c_void,
    _domain: u32,
    _id: u32,
    _details: *const c_void,
) {
    guarded(|| {
        if let (Some(_), Some(thread)) = (CuptiSession::current(), THREAD.get()) {
            thread.unpark();
        }
    });
}
