//! Turns of loops: what a thread of Python does between two waits for input at the same place.
//!
//! The library's functions interpose the C library's in which loops wait. A wait with a timeout of 0 is a look; it ends
//! a turn, too. Sleeps, which wait for no descriptor, are none. Not seen: system calls that the program makes itself,
//! futexes, io_uring, and what the C library waits for.
//!
//! - `thread_loops`: the loops of one thread; `counts`: one loop.
//!
//! Only threads that CPython knows have loops, and only in a process that has its ring already: a forked child has one
//! from its first collection on. The functions let forced unwinding pass (pthread_cancel(3)): they have nothing to
//! clean up. They may run in signal handlers, and in a child that shares its parent's memory.

mod counts;
mod thread_loops;

use crate::confined::is_noticed;
use crate::exec::{NOT_THERE, next_functions};
use crate::process_ring::{existing_ring, now_ns, options};
use crate::python::api::knows_this_thread;
use crate::recording::guarded;
use gctrace_ring::{PythonMessage, WaitCall};
use gctrace_units::{sum, times};
use libc::{c_int, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use thread_loops::{Loops, ThreadLoops, WaitPlace};

/// Threads with loops; others are not counted. 60 KB each, of which a few pages are used.
const MOST_THREADS: usize = 64;
/// A thread may have a loop from its second wait on.
const LEAST_WAITS: u8 = 2;

/// Whether turns are recorded.
static ARE_WANTED: AtomicBool = AtomicBool::new(false);
/// Threads that have loops.
static THREADS: AtomicUsize = AtomicUsize::new(0);
/// The key of the C library by which ends of threads are seen.
static KEY: AtomicU32 = AtomicU32::new(0);

// Without destructors: threads end in any order.
thread_local! {
    /// Null: it has none.
    static LOOPS: Cell<*mut ThreadLoops> = const { Cell::new(std::ptr::null_mut()) };
    /// Waits of a thread without loops.
    static WAITS: Cell<u8> = const { Cell::new(0) };
}

/// Starts to record. Called before the program's own code.
pub(crate) fn begin() {
    if !options().is_some_and(|options| options.turns) {
        return;
    }
    let mut key = 0;
    // SAFETY: a variable of ours; the function is never unloaded, as the library is not.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0 {
        KEY.store(key, Relaxed);
        ARE_WANTED.store(true, Relaxed);
    }
}

/// A collection of the calling thread took this time. `cpu_ns`: `None` if it was not measured.
pub(crate) fn collected(ns: u64, cpu_ns: Option<u64>) {
    let loops = LOOPS.get();
    if !loops.is_null() {
        // SAFETY: of this thread, unmapped only when it ends.
        unsafe { &*loops }.with(|loops| loops.collected(ns, cpu_ns.unwrap_or(ns)));
    }
}

/// The process ends, by the calling thread: sends its counts. May run in a signal handler.
pub(crate) fn process_ends() {
    send(LOOPS.get());
}

fn send(loops: *mut ThreadLoops) {
    if let (false, Some(ring)) = (loops.is_null(), existing_ring::<PythonMessage>()) {
        // SAFETY: of this thread, unmapped only when it ends.
        unsafe { &*loops }.with(|loops| loops.send(now_ns(), ring));
    }
}

/// Run by the C library when a thread with loops ends.
unsafe extern "C" fn thread_ends(loops: *mut c_void) {
    let loops = loops.cast();
    guarded(|| {
        LOOPS.set(std::ptr::null_mut());
        send(loops);
        THREADS.fetch_sub(1, Relaxed);
        // SAFETY: mapped for this thread, which has forgotten it.
        unsafe { ThreadLoops::unmap(loops) };
    });
}

/// The calling thread enters a call. Returns its place if it may wait there.
#[inline(never)]
fn enters(call: WaitCall, argument: u32, timeout_ns: u64) -> Option<usize> {
    let ring = existing_ring::<PythonMessage>()?;
    let place = WaitPlace { call, argument };
    guarded(|| {
        let mut loops = LOOPS.get();
        if loops.is_null() {
            loops = first_loop()?;
            // SAFETY: as below.
            unsafe { &*loops }.with(Loops::time);
        }
        // SAFETY: of this thread, unmapped only when it ends.
        unsafe { &*loops }.with(|loops| loops.enters(place, timeout_ns, ring))?
    })?
}

/// Memory for the loops of the calling thread, from its second wait on; `None`: CPython does not know it, or there is
/// none.
#[cold]
fn first_loop() -> Option<*mut ThreadLoops> {
    let waits = WAITS.get() + 1;
    if waits < LEAST_WAITS {
        WAITS.set(waits);
        return None;
    }
    let is_known = !is_noticed() && knows_this_thread();
    if !is_known || THREADS.fetch_add(1, Relaxed) >= MOST_THREADS {
        if is_known {
            THREADS.fetch_sub(1, Relaxed);
        }
        return None;
    }
    // SAFETY: this thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let mut loops = ThreadLoops::map();
    // SAFETY: the key was made at the start.
    if loops.is_null() || unsafe { libc::pthread_setspecific(KEY.load(Relaxed), loops.cast()) } != 0
    {
        THREADS.fetch_sub(1, Relaxed);
        loops = std::ptr::null_mut();
    }
    LOOPS.set(loops);
    // SAFETY: as above.
    unsafe { *errno = before };
    if loops.is_null() { None } else { Some(loops) }
}

/// The call at this place has returned.
#[inline(never)]
fn returned(place: usize, result: c_int) {
    // SAFETY: this thread's own.
    let is_interrupted = result < 0 && unsafe { *libc::__errno_location() } == libc::EINTR;
    let loops = LOOPS.get();
    if !loops.is_null() {
        // SAFETY: of this thread, unmapped only when it ends.
        guarded(|| unsafe { &*loops }.with(|loops| loops.returned(place, is_interrupted)));
    }
}

/// How long a call waits.
trait Timeout {
    /// In ns; the largest number: for ever.
    ///
    /// # Safety
    /// A pointer is null or valid.
    unsafe fn ns(self) -> u64;
}

/// Milliseconds.
impl Timeout for c_int {
    unsafe fn ns(self) -> u64 {
        if let Ok(timeout) = u64::try_from(self) { times(timeout, 1_000_000) } else { u64::MAX }
    }
}

impl Timeout for *const timespec {
    unsafe fn ns(self) -> u64 {
        // SAFETY: as the caller promises.
        let timeout = unsafe { self.as_ref() };
        timeout.map_or(u64::MAX, |timeout| of_seconds(timeout.tv_sec, timeout.tv_nsec))
    }
}

impl Timeout for *mut timeval {
    unsafe fn ns(self) -> u64 {
        // SAFETY: as the caller promises.
        let timeout = unsafe { self.as_ref() };
        if let Some(timeout) = timeout {
            of_seconds(timeout.tv_sec, timeout.tv_usec.saturating_mul(1000))
        } else {
            u64::MAX
        }
    }
}

fn of_seconds(seconds: i64, ns: i64) -> u64 {
    let [seconds, ns] = [seconds, ns].map(|number| u64::try_from(number).unwrap_or(u64::MAX));
    sum([times(seconds, 1_000_000_000), ns])
}

/// The first descriptor that is waited for: a program may wait for the same ones in a new array each time.
///
/// # Safety
/// Points to an element, or is null.
unsafe fn first_of(files: *const pollfd) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { files.as_ref() }.map_or(0, |file| file.fd)
}

/// Functions that interpose the C library's of the same name and type: with their timeout, whether there is a descriptor
/// to wait for, and the argument that identifies their place.
macro_rules! waits {
    ($(
        $call:ident $name:ident($first:ident: $first_type:ty, $($argument:ident: $type:ty),*)
        until $timeout:ident, if $has_input:expr, at $place:expr;
    )*) => {
        $(
            #[doc = concat!("Interposes the C library's ", stringify!($name), ".")]
            ///
            /// # Safety
            /// As of that function.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C-unwind" fn $name($first: $first_type, $($argument: $type),*) -> c_int {
                let mut place = None;
                if ARE_WANTED.load(Relaxed) && $has_input {
                    // SAFETY: as the caller promises.
                    let (timeout_ns, argument) = unsafe { ($timeout.ns(), $place) };
                    place = enters(WaitCall::$call, argument as u32, timeout_ns);
                }
                let address = real::$name.address();
                if address.is_null() {
                    return NOT_THERE;
                }
                // SAFETY: as the caller promises; the real function has this type.
                let result = unsafe {
                    std::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C-unwind" fn($first_type, $($type),*) -> c_int,
                    >(address)($first, $($argument),*)
                };
                if let Some(place) = place {
                    returned(place, result);
                }
                result
            }
        )*

        next_functions!(resolve: $($name)*);
    };
}

waits! {
    EpollWait epoll_wait(epoll: c_int, events: *mut libc::epoll_event, most: c_int, timeout: c_int)
        until timeout, if true, at epoll;
    EpollPwait epoll_pwait(epoll: c_int, events: *mut libc::epoll_event, most: c_int, timeout: c_int,
        signals: *const sigset_t)
        until timeout, if true, at epoll;
    Poll poll(files: *mut pollfd, count: nfds_t, timeout: c_int)
        until timeout, if count > 0, at first_of(files);
    Ppoll ppoll(files: *mut pollfd, count: nfds_t, timeout: *const timespec, signals: *const sigset_t)
        until timeout, if count > 0, at first_of(files);
    Select select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval)
        until timeout, if count > 0, at count;
    Pselect pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, signals: *const sigset_t)
        until timeout, if count > 0, at count;
}
