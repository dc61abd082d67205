//! Whether this process created a ring, or is a fork of the one that did.

use std::sync::atomic::{AtomicU64, Ordering};

/// A mark that is wiped in forked children, however they were forked.
///
/// A shared mapping is inherited: a child would write into its parent's ring. Calling `getpid` for
/// each record would work, but is a system call; this is one load. `MADV_WIPEONFORK`: Linux 4.14.
pub struct OwnerMark(*const AtomicU64);

// SAFETY: points to memory that is never unmapped and only accessed atomically.
unsafe impl Send for OwnerMark {}
// SAFETY: as above.
unsafe impl Sync for OwnerMark {}

const PAGE: usize = 4096;
const MINE: u64 = 1;

impl OwnerMark {
    /// Marks this process. Never freed: a page for the life of the process. `None` if the kernel
    /// refuses.
    #[must_use]
    pub fn new() -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, placed by the kernel.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, rights, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the page mapped above, which only this function can access.
        if unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } != 0 {
            // SAFETY: as above.
            unsafe { libc::munmap(page, PAGE) };
            return None;
        }
        let mark = Self(page.cast());
        mark.word().store(MINE, Ordering::Relaxed);
        Some(mark)
    }

    /// Whether this process created the mark.
    #[must_use]
    #[inline]
    pub fn is_mine(&self) -> bool {
        self.word().load(Ordering::Relaxed) == MINE
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the page is never unmapped; zeroes and ones are valid.
        unsafe { &*self.0 }
    }
}
