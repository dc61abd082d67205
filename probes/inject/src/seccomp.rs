//! Whether this process may be killed for a system call that gctrace makes and the program would not.
//!
//! What a seccomp filter does with a call cannot be asked, and trying it in a child needs calls of its own. But
//! filters are inherited and never go: a process that has as many as gctrace has the same ones, and gctrace made the
//! same calls and lives. That holds in containers, whose filter gctrace is under as well.

use std::io::Read;

/// Whether there are filters that gctrace is not under, or that cannot be known.
pub(crate) fn is_confined(filters_of_gctrace: u32) -> bool {
    if filters_of_gctrace == u32::MAX {
        return false;
    }
    // Only calls that every program's loader makes: open, read, close.
    let mut text = [0; 4096];
    let read =
        std::fs::File::open("/proc/self/status").and_then(|mut status| status.read(&mut text));
    let Ok(length) = read else {
        return true;
    };
    let text = text.get(..length).unwrap_or_default();
    gctrace_ring::seccomp_filters(text).is_none_or(|filters| filters > filters_of_gctrace)
}
