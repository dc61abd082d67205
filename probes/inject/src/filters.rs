//! Filters of system calls, noticed as the program makes them.
//!
//! The library's `prctl` and `syscall` interpose the C library's. Everything that the library needs later is made
//! before the filter is. ctypes looks functions up in the C library itself: so `dlsym` is interposed too, and returns
//! ours for these two.

use crate::arch::stand_before;
use crate::confined::{FILTER, WITHOUT_CLOCK, is_noticed, notice, take_back};
use crate::exec::NextFunction;
use crate::recording::guarded;
use crate::{memory, process_ring, python, rights};
use libc::{c_int, c_long, c_ulong};
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

// System calls and their arguments (linux/prctl.h, linux/seccomp.h).
const PR_SET_SYSCALL_USER_DISPATCH: c_long = 59;
const SECCOMP_SET_MODE_STRICT: c_long = 0;
const SECCOMP_SET_MODE_FILTER: c_long = 1;

/// The restriction that a `prctl` with these arguments imposes, if it succeeds; `None`: none. A null filter is refused:
/// programs pass it to ask whether there are filters at all.
fn forbids(option: c_long, second: c_long, third: c_long) -> Option<u32> {
    const STRICT: c_long = libc::SECCOMP_MODE_STRICT as c_long;
    const BY_FILTER: c_long = libc::SECCOMP_MODE_FILTER as c_long;
    match (option as c_int, second) {
        (libc::PR_SET_SECCOMP, STRICT) => Some(WITHOUT_CLOCK),
        (libc::PR_SET_SECCOMP, BY_FILTER) if third != 0 => Some(FILTER),
        (libc::PR_SET_TSC, second) if second == c_long::from(libc::PR_TSC_SIGSEGV) => {
            Some(WITHOUT_CLOCK)
        }
        (option, 1..) if c_long::from(option) == PR_SET_SYSCALL_USER_DISPATCH => Some(FILTER),
        _ => None,
    }
}

/// The same of a call by its number.
fn call_forbids(number: c_long, [first, second, third]: [c_long; 3]) -> Option<u32> {
    match (number, first) {
        (libc::SYS_prctl, option) => forbids(option, second, third),
        (libc::SYS_seccomp, SECCOMP_SET_MODE_STRICT) if second == 0 && third == 0 => {
            Some(WITHOUT_CLOCK)
        }
        (libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER) if third != 0 => Some(FILTER),
        _ => None,
    }
}

/// Makes a call that forbids others. Noticed before it is made: other threads may be in the middle of something.
fn confine(forbidden: u32, call: impl FnOnce() -> c_long) -> c_long {
    // SAFETY: this thread's own; a call that succeeds leaves it as it was.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    if !is_noticed() {
        guarded(|| {
            rights::give_up();
            process_ring::prepare_for_filters(python::is_found());
            memory::reserve();
        });
    }
    let is_borrowed = !is_noticed() && process_ring::shares_memory();
    notice(forbidden, is_borrowed);
    // SAFETY: as above.
    unsafe { *errno = before };
    let result = call();
    // With several threads at once (TSYNC) a positive result may be a failure, or may not.
    if result < 0 {
        take_back(forbidden, is_borrowed);
    }
    result
}

type Prctl = unsafe extern "C" fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;
type Syscall =
    unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

static PRCTL: NextFunction = NextFunction::new(c"prctl");
static SYSCALL: NextFunction = NextFunction::new(c"syscall");

/// Finds the real functions: later, between fork and exec or in a signal handler, that would be unsafe.
pub(crate) fn begin() {
    PRCTL.address();
    SYSCALL.address();
}

/// Interposes the C library's. Variadic in C, with up to four such arguments, in the same registers either way.
///
/// # Safety
/// As of prctl(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn prctl(
    option: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    // SAFETY: null, or the function of this name and type.
    let real = unsafe { std::mem::transmute::<*mut c_void, Option<Prctl>>(PRCTL.address()) };
    let Some(real) = real else { return crate::exec::NOT_THERE };
    // SAFETY: as the caller promises.
    let call = || unsafe { real(option, second, third, fourth, fifth) };
    match forbids(option.into(), second as c_long, third as c_long) {
        Some(forbidden) => confine(forbidden, || call().into()) as c_int,
        None => {
            if option == libc::PR_SET_NO_NEW_PRIVS {
                guarded(rights::give_up);
            }
            call()
        }
    }
}

/// Interposes the C library's. Jumps to it, so that a call that returns twice does (vfork); confining calls excepted.
///
/// # Safety
/// As of syscall(2).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn syscall(_number: c_long) -> c_long {
    stand_before!(before_syscall)
}

/// Returns the function to go on with.
unsafe extern "C" fn before_syscall(number: c_long, _first: c_long) -> *const c_void {
    let real = SYSCALL.address();
    match number {
        libc::SYS_seccomp | libc::SYS_prctl if !real.is_null() => {
            confining_syscall as *const c_void
        }
        _ if real.is_null() => no_syscall as *const c_void,
        _ => real,
    }
}

/// In the place of `syscall`, with its arguments.
unsafe extern "C" fn confining_syscall(
    number: c_long,
    first: c_long,
    second: c_long,
    third: c_long,
    fourth: c_long,
    fifth: c_long,
    sixth: c_long,
) -> c_long {
    // SAFETY: not null, see above, and variadic in C with such arguments.
    let call = || unsafe {
        let real = std::mem::transmute::<*mut c_void, Syscall>(SYSCALL.address());
        real(number, first, second, third, fourth, fifth, sixth)
    };
    match call_forbids(number, [first, second, third]) {
        Some(forbidden) => confine(forbidden, call),
        None => call(),
    }
}

/// Used if the C library has no such function.
unsafe extern "C" fn no_syscall() -> c_long {
    crate::exec::NOT_THERE.into()
}

/// Interposes the C library's: in a library itself, as ctypes looks, are not ours but the real functions.
///
/// # Safety
/// As of dlsym(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlsym(_library: *mut c_void, _name: *const c_char) -> *mut c_void {
    stand_before!(before_dlsym)
}

type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Returns the function to go on with: a function that returns ours, or the real one; the real one depends on its
/// caller.
unsafe extern "C" fn before_dlsym(library: *mut c_void, name: *const c_char) -> *const c_void {
    let real = real_dlsym();
    // SAFETY: null, or the function of this name and type.
    let Some(find) = (unsafe { std::mem::transmute::<*mut c_void, Option<Find>>(real) }) else {
        return not_found as *const c_void;
    };
    if matches!(library, libc::RTLD_NEXT | libc::RTLD_DEFAULT) || name.is_null() {
        return real;
    }
    // SAFETY: the program passes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let ours = [
        (c"prctl", &PRCTL, our_prctl as *const c_void),
        (c"syscall", &SYSCALL, our_syscall as *const c_void),
    ];
    let Some((_, function, ours)) = ours.into_iter().find(|(known, _, _)| *known == name) else {
        return real;
    };
    // SAFETY: as the program would call it.
    let found = unsafe { find(library, name.as_ptr()) };
    if found == function.address() { ours } else { real }
}

unsafe extern "C" fn our_prctl() -> *mut c_void {
    prctl as *mut c_void
}

unsafe extern "C" fn our_syscall() -> *mut c_void {
    syscall as *mut c_void
}

unsafe extern "C" fn not_found() -> *mut c_void {
    std::ptr::null_mut()
}

/// The next function of that name, by the version that it has had since the first of each processor.
fn real_dlsym() -> *mut c_void {
    const VERSION: &CStr =
        if cfg!(target_arch = "x86_64") { c"GLIBC_2.2.5" } else { c"GLIBC_2.17" };
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut known = REAL.load(Relaxed);
    if known.is_null() {
        // SAFETY: looks for the next function of this name.
        known = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), VERSION.as_ptr()) };
        REAL.store(known, Relaxed);
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_confine_are_known() {
        let prctl = |option: c_int, second, third| forbids(option.into(), second, third);
        assert_eq!(prctl(libc::PR_SET_SECCOMP, 2, 4096), Some(FILTER));
        assert_eq!(prctl(libc::PR_SET_SECCOMP, 1, 0), Some(WITHOUT_CLOCK));
        // They ask whether there are filters.
        assert_eq!(prctl(libc::PR_SET_SECCOMP, 2, 0), None);
        assert_eq!(prctl(libc::PR_GET_SECCOMP, 2, 4096), None);
        assert_eq!(prctl(libc::PR_SET_TSC, 2, 0), Some(WITHOUT_CLOCK));
        assert_eq!(prctl(libc::PR_SET_TSC, 1, 0), None);
        assert_eq!([0, 1].map(|on| prctl(59, on, 0)), [None, Some(FILTER)]);
        assert_eq!(call_forbids(libc::SYS_seccomp, [1, 1, 4096]), Some(FILTER));
        assert_eq!(call_forbids(libc::SYS_seccomp, [0, 0, 0]), Some(WITHOUT_CLOCK));
        // SECCOMP_GET_ACTION_AVAIL; libseccomp's question with flags that do not exist.
        assert_eq!(call_forbids(libc::SYS_seccomp, [2, 0, 4096]), None);
        assert_eq!(call_forbids(libc::SYS_seccomp, [0, 1, 0]), None);
        assert_eq!(call_forbids(libc::SYS_prctl, [22, 2, 4096]), Some(FILTER));
        assert_eq!(call_forbids(libc::SYS_getpid, [22, 2, 4096]), None);
    }

    #[test]
    fn a_call_that_fails_confines_nothing() {
        let call = |second: c_long| unsafe {
            // SAFETY: an address that no filter can have, or a question.
            libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, second, 8)
        };
        assert_eq!((call(0), is_noticed()), (-1, false));
        // SAFETY: the C library is loaded already.
        let library = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY) };
        // SAFETY: looks names up.
        let found = |name: &CStr| unsafe { libc::dlsym(library, name.as_ptr()) };
        assert_eq!(found(c"prctl"), prctl as *mut c_void);
        assert_eq!(found(c"syscall"), syscall as *mut c_void);
        assert!(!found(c"getpid").is_null());
        // SAFETY: has no arguments.
        assert_eq!(unsafe { libc::syscall(libc::SYS_getpid) }, c_long::from(std::process::id()));
    }
}
