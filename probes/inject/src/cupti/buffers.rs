//! The buffers that CUPTI fills: provided and returned without waiting, from any thread.
//!
//! They are zeroed before reuse, so that CUPTI need not do it on the program's threads (its
//! attribute 5).

use crate::confined::is_noticed;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Size of a buffer in bytes. At a flush CUPTI returns a buffer only if everything in it has ended, so while the GPU is
/// busy buffers are returned when full: 256 KiB are about 1,000 launches with their kernel (40 + 40 + 200 bytes), a few
/// tens of milliseconds of a busy program and little to lose. NVIDIA's samples use 8 MB; a killed program would lose
/// all of it.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// Buffers kept for reuse: 4 MiB. Beyond that they are unmapped.
const KEPT: usize = 16;

/// Unused buffers.
pub(super) struct BufferPool([AtomicPtr<u8>; KEPT]);

impl BufferPool {
    pub(super) const fn new() -> Self {
        Self([const { AtomicPtr::new(std::ptr::null_mut()) }; KEPT])
    }

    /// A buffer of [`BUFFER_BYTES`] zeroes, page-aligned (CUPTI requires 8 bytes). Null only if the
    /// kernel is out of memory.
    pub(super) fn take(&self) -> *mut u8 {
        let mut slots = self.0.iter();
        let kept = slots.find_map(|slot| {
            let buffer = slot.swap(std::ptr::null_mut(), Ordering::Acquire);
            if buffer.is_null() { None } else { Some(buffer) }
        });
        kept.unwrap_or_else(map)
    }

    /// Returns a buffer to the pool.
    ///
    /// # Safety
    /// It comes from [`take`](Self::take), and is no longer used elsewhere.
    pub(super) unsafe fn give_back(&self, buffer: *mut u8) {
        // SAFETY: this many bytes were mapped for it, and it is exclusively ours.
        unsafe { buffer.write_bytes(0, BUFFER_BYTES) };
        let is_kept = self.0.iter().any(|slot| {
            let empty = std::ptr::null_mut();
            let stored = slot.compare_exchange(empty, buffer, Ordering::Release, Ordering::Relaxed);
            stored.is_ok()
        });
        if !is_kept && !is_noticed() {
            // SAFETY: mapped by `map` with this length, and exclusively ours.
            unsafe { libc::munmap(buffer.cast(), BUFFER_BYTES) };
        }
    }
}

fn map() -> *mut u8 {
    if is_noticed() {
        return std::ptr::null_mut();
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, placed by the kernel.
    let buffer = unsafe { libc::mmap(std::ptr::null_mut(), BUFFER_BYTES, rights, flags, -1, 0) };
    if buffer == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    buffer.cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_aligned_and_used_again() {
        let pool = BufferPool::new();
        let buffers: Vec<_> = (0..KEPT + 3).map(|_| pool.take()).collect();
        for buffer in &buffers {
            assert!(!buffer.is_null() && buffer.addr().is_multiple_of(8));
            // SAFETY: from this pool, and of this length; not used elsewhere.
            unsafe {
                buffer.write_bytes(0xa5, BUFFER_BYTES);
                pool.give_back(*buffer);
            }
        }
        let again = pool.take();
        assert!(buffers.contains(&again));
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(again, BUFFER_BYTES) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}
