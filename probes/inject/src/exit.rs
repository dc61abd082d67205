//! The end of the process: by `exit`, and by `_exit`, unseen by the C library's exit handlers.
//!
//! The library's `_exit` interposes the C library's. It always goes on to that function, by a jump: nothing done before
//! can keep the program from exiting.

use crate::arch::stand_before;
use crate::exec::NextFunction;
use crate::python::apply;
use crate::recording::guarded;
use crate::turns;
use std::ffi::{c_int, c_void};

static REAL: NextFunction = NextFunction::new(c"_exit");

/// Finds the real function: later, between fork and exec or in a signal handler, that would be unsafe.
pub(crate) fn begin() {
    REAL.address();
}

/// Interposes the C library's.
///
/// # Safety
/// As of `_exit(2)`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _exit(_status: c_int) {
    stand_before!(before)
}

/// Returns the real function's address. May run in a signal handler, and in a child that shares its
/// parent's memory.
unsafe extern "C" fn before(
    _status: c_int,
    _second: usize,
    caller: *const c_void,
) -> *const c_void {
    guarded(|| {
        turns::process_ends();
        apply::process_exits(caller);
    });
    let real = REAL.address();
    if real.is_null() { leave as *const c_void } else { real }
}

/// Used if the C library has no such function.
unsafe extern "C" fn leave(status: c_int) {
    // SAFETY: as `_exit` does.
    unsafe { libc::syscall(libc::SYS_exit_group, status) };
}

/// Run by the loader when the program exits.
extern "C" fn end() {
    guarded(|| {
        turns::process_ends();
        apply::process_ends();
    });
}

/// Only in the library, see `BEGIN`.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
