//! Whether this process may be killed for a system call that gctrace makes and the program would
//! not.
//!
//! What a seccomp filter does with a call cannot be queried, and trying it in a child needs system
//! calls of its own. But filters are inherited and never removed: a process with as many as gctrace
//! has the same ones, and gctrace made the same calls and survived. That also holds in containers,
//! whose filter applies to gctrace as well.

/// Whether there are filters that do not apply to gctrace, or their number is unknown.
pub(crate) fn is_confined(filters_of_gctrace: u32) -> bool {
    if filters_of_gctrace == u32::MAX {
        return false;
    }
    own_filters().is_none_or(|filters| filters > filters_of_gctrace)
}

/// The number of filters of this process; `None`: unknown.
pub(crate) fn own_filters() -> Option<u32> {
    let mut text = [0; 4096];
    // Only calls that every program's loader makes: open, read, close. Debug builds of std::fs make
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
