//! The library's own heap: nothing of ours lies on the program's. There it would keep glibc from giving
//! back the memory below it, and the program would run otherwise than without gctrace.
//!
//! One heap for all threads, behind a lock. A thread that forks holds it meanwhile, so that the child
//! finds the heap whole. Programs that link this crate would have it too: none does.

use dlmalloc::Dlmalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

struct OwnHeap {
    blocks: Mutex<Dlmalloc>,
    /// `pthread_self` of the thread that has the lock; 0: none.
    user: AtomicUsize,
    /// The lock, while that thread forks.
    forking: UnsafeCell<Option<MutexGuard<'static, Dlmalloc>>>,
}

// SAFETY: `forking` is only used by the thread in `user`, which has the lock.
unsafe impl Sync for OwnHeap {}

#[cfg_attr(not(test), global_allocator)]
static HEAP: OwnHeap = OwnHeap {
    blocks: Mutex::new(Dlmalloc::new()),
    user: AtomicUsize::new(0),
    forking: UnsafeCell::new(None),
};

/// The forking thread's handle is the same in the child.
fn this_thread() -> usize {
    // SAFETY: always succeeds.
    unsafe { libc::pthread_self() as usize }
}

impl OwnHeap {
    fn with<T>(&self, work: impl FnOnce(&mut Dlmalloc) -> T) -> T {
        if self.user.load(Relaxed) == this_thread()
            // SAFETY: this thread has the lock.
            && let Some(blocks) = unsafe { &mut *self.forking.get() }
        {
            // In others' handlers of a fork.
            return work(blocks);
        }
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        self.user.store(this_thread(), Relaxed);
        let result = work(&mut blocks);
        self.user.store(0, Relaxed);
        result
    }
}

// SAFETY: all calls go to one heap, with the lock.
unsafe impl GlobalAlloc for OwnHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        self.with(|blocks| unsafe { blocks.malloc(layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        self.with(|blocks| unsafe { blocks.calloc(layout.size(), layout.align()) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (old_size, align) = (layout.size(), layout.align());
        // SAFETY: as the caller promises.
        self.with(|blocks| unsafe { blocks.realloc(block, old_size, align, size) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        self.with(|blocks| unsafe { blocks.free(block, layout.size(), layout.align()) });
    }
}

/// To be called at the start: forks from now on leave the child a heap that is whole.
pub(crate) fn begin() {
    // SAFETY: the handlers are never unloaded, as the library is not. Without memory for them, a
    // child may wait for a thread that it does not have, as it might of any library.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
}

extern "C" fn before_fork() {
    // A signal handler that forks within an allocation: that ends in parent and child.
    if HEAP.user.load(Relaxed) == this_thread() {
        return;
    }
    let blocks = HEAP.blocks.lock().unwrap_or_else(PoisonError::into_inner);
    HEAP.user.store(this_thread(), Relaxed);
    // SAFETY: this thread has the lock.
    unsafe { *HEAP.forking.get() = Some(blocks) };
}

extern "C" fn after_fork() {
    if HEAP.user.load(Relaxed) != this_thread() {
        return;
    }
    // SAFETY: this thread has the lock.
    let blocks = unsafe { (*HEAP.forking.get()).take() };
    if blocks.is_some() {
        HEAP.user.store(0, Relaxed);
    }
    drop(blocks);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn use_it(size: usize) {
        let layout = Layout::from_size_align(size, 16).unwrap();
        // SAFETY: a block that is used within its layout.
        unsafe {
            let block = HEAP.alloc(layout);
            assert!(!block.is_null());
            block.write_bytes(1, size);
            let more = Layout::from_size_align(size * 2, 16).unwrap();
            let block = HEAP.realloc(block, layout, more.size());
            assert_eq!(block.add(size - 1).read(), 1);
            HEAP.dealloc(block, more);
        }
    }

    #[test]
    fn forked_children_find_the_heap_whole() {
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        begin();
        let others: Vec<_> = (1..4)
            .map(|thread| {
                std::thread::spawn(move || {
                    while !IS_OVER.load(Relaxed) {
                        use_it(thread * 1_000);
                    }
                })
            })
            .collect();
        for _ in 0..300 {
            // SAFETY: the child uses its own heap, and a signal ends it if it waits for its lock.
            unsafe {
                match libc::fork() {
                    0 => {
                        libc::alarm(10);
                        use_it(100_000);
                        libc::_exit(0)
                    }
                    child => {
                        let mut status = 0;
                        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                        assert_eq!(status, 0);
                    }
                }
            }
        }
        IS_OVER.store(true, Relaxed);
        others.into_iter().for_each(|other| other.join().unwrap());
    }
}
