//! Whether a system call that the program does not make may kill it.
//!
//! The effect of a seccomp filter on a call cannot be queried, and asking whether there is a filter is itself a call.
//! So filters are noticed as they are made (`filters`). From then on the library makes only system calls of the
//! kernel's vDSO; forked children inherit that.
//!
//! Filters that a program inherits by exec are counted as it starts, by calls that its loader has made before.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Filters that were made here or inherited; [`WITHOUT_CLOCK`] for each that forbids reading the clock too.
static NOTICED: AtomicU32 = AtomicU32::new(0);

/// A filter.
pub(crate) const FILTER: u32 = 1;
/// Also without an instruction that the vDSO needs: it would raise SIGSEGV.
pub(crate) const WITHOUT_CLOCK: u32 = 1 << 16;

/// Whether no system call may be made any more.
#[inline]
pub(crate) fn is_noticed() -> bool {
    NOTICED.load(Relaxed) != 0
}

/// Whether not even the clock may be read.
#[inline]
pub(crate) fn is_without_clock() -> bool {
    NOTICED.load(Relaxed) >= WITHOUT_CLOCK
}

/// Whether this process may be killed for a system call that gctrace makes and the program would not. To be called
/// before any other system call: if no filter was noticed, it asks the kernel.
///
/// Filters are inherited and never removed: a process with as many filters as gctrace has the same filters, and gctrace
/// made the same calls and survived. That also holds in containers: their filter applies to gctrace as well.
/// `u32::MAX`: gctrace's number is unknown, and only noticed filters count.
pub(crate) fn is_confined(filters_of_gctrace: u32) -> bool {
    is_noticed()
        || (filters_of_gctrace != u32::MAX
            && own_filters().is_none_or(|filters| filters > filters_of_gctrace))
}

/// Whether the program has started under filters that gctrace does not have; then they are noticed.
pub(crate) fn begins_confined(filters_of_gctrace: u32) -> bool {
    let is_confined = is_confined(filters_of_gctrace);
    if is_confined {
        NOTICED.fetch_add(FILTER, Relaxed);
    }
    is_confined
}

/// The number of filters of this process; `None`: unknown.
pub(crate) fn own_filters() -> Option<u32> {
    let mut text = [0; 4096];
    // Only calls that every program's loader makes: open to read, read, close. Debug builds of std::fs make
    // another one.
    // SAFETY: a C string, and at most as many bytes as there is room for.
    let length = unsafe {
        let status = libc::open(c"/proc/self/status".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if status < 0 {
            return None;
        }
        let length = libc::read(status, text.as_mut_ptr().cast(), text.len());
        libc::close(status);
        length
    };
    gctrace_ring::seccomp_filters(text.get(..usize::try_from(length).ok()?)?)
}

/// Restrictions that a child sharing its parent's memory (vfork) has put on itself, until it executes a program.
static UNTIL_EXEC: AtomicU32 = AtomicU32::new(0);

/// A program is about to be executed. If a child executes it, the child's restrictions do not apply to its parent.
pub(crate) fn execs() {
    NOTICED.fetch_sub(UNTIL_EXEC.swap(0, Relaxed), Relaxed);
}

/// The program is about to make a call that forbids others. `is_borrowed`: in a child that shares its parent's memory;
/// the parent is not restricted.
pub(crate) fn notice(forbidden: u32, is_borrowed: bool) {
    NOTICED.fetch_add(forbidden, Relaxed);
    if is_borrowed {
        UNTIL_EXEC.store(forbidden, Relaxed);
    }
}

/// The call has failed.
pub(crate) fn take_back(forbidden: u32, is_borrowed: bool) {
    NOTICED.fetch_sub(forbidden, Relaxed);
    if is_borrowed {
        UNTIL_EXEC.store(0, Relaxed);
    }
}
