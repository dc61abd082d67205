//! Whether this process may be killed for a system call that gctrace makes and the program would
//! not.
//!
//! What a seccomp filter does with a call cannot be queried, and trying it in a child needs system
//! calls of its own. But filters are inherited and never removed: a process with as many as gctrace
//! has the same ones, and gctrace made the same calls and survived. That also holds in containers,
//! whose filter applies to gctrace as well.

use std::io::Read;

/// Whether there are filters that do not apply to gctrace, or their number is unknown.
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
