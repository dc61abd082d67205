//! The library's own heap: nothing of ours lies on the program's. There it would keep glibc from giving
//! back the memory below it, and the program would run otherwise than without gctrace.
//!
//! Under filters of system calls (see `confined`) it uses memory reserved before, and gives nothing back.
//!
//! One heap for all threads, behind a lock. A thread that forks holds it meanwhile, so that the child
//! finds the heap whole. Programs that link this crate would have it too: none does.

use crate::confined;
use dlmalloc::Dlmalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A map that asks the kernel for no random numbers.
pub(crate) type Map<Key, Value> = HashMap<Key, Value, BuildHasherDefault<DefaultHasher>>;

/// Memory from the kernel.
struct KernelMemory;

/// The unused rest of the reserved memory: its start and its end.
static RESERVED: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// More than names and stacks have needed, in bytes; none of it is used before it is needed.
const RESERVE: usize = 8 << 20;
const PAGE: usize = 4096;

/// Reserves memory for the time when the kernel must not be asked. Only where the library is active.
pub(crate) fn reserve() {
    let [start, end] = &RESERVED;
    if HAS_BEGUN.load(Relaxed) && start.load(Relaxed) == 0 {
        let memory = map(RESERVE);
        if !memory.is_null() {
            end.store(memory.addr() + RESERVE, Relaxed);
            start.store(memory.expose_provenance(), Relaxed);
        }
    }
}

/// A part of the reserved memory; null: there is too little.
fn reserved(size: usize) -> *mut u8 {
    let [start, end] = &RESERVED;
    let end = end.load(Relaxed);
    let taken = start.fetch_update(Relaxed, Relaxed, |start| {
        start.checked_add(size.next_multiple_of(PAGE)).filter(|next| *next <= end)
    });
    taken.map_or(std::ptr::null_mut(), std::ptr::with_exposed_provenance_mut)
}

fn map(size: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, placed by the kernel.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), size, rights, flags, -1, 0) };
    if memory == libc::MAP_FAILED { std::ptr::null_mut() } else { memory.cast() }
}

// SAFETY: mappings of the kernel, in zeroed pages.
unsafe impl dlmalloc::Allocator for KernelMemory {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let mut memory = std::ptr::null_mut();
        if confined::is_noticed() {
            memory = reserved(size);
        }
        if memory.is_null() {
            // Without memory the process would end: nearly every program may ask for some.
            memory = map(size);
        }
        (memory, size, 0)
    }

    fn remap(&self, memory: *mut u8, old: usize, new: usize, can_move: bool) -> *mut u8 {
        if confined::is_noticed() {
            return std::ptr::null_mut();
        }
        let flags = if can_move { libc::MREMAP_MAYMOVE } else { 0 };
        // SAFETY: a mapping of ours.
        let moved = unsafe { libc::mremap(memory.cast(), old, new, flags) };
        if moved == libc::MAP_FAILED { std::ptr::null_mut() } else { moved.cast() }
    }

    fn free_part(&self, memory: *mut u8, old: usize, new: usize) -> bool {
        // SAFETY: the end of a mapping of ours.
        !confined::is_noticed() && unsafe { libc::munmap(memory.add(new).cast(), old - new) } == 0
    }

    fn free(&self, memory: *mut u8, size: usize) -> bool {
        // SAFETY: a mapping of ours.
        !confined::is_noticed() && unsafe { libc::munmap(memory.cast(), size) } == 0
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

struct OwnHeap {
    blocks: Mutex<Dlmalloc<KernelMemory>>,
    /// `pthread_self` of the thread that has the lock; 0: none.
    user: AtomicUsize,
    /// The lock, while that thread forks.
    forking: UnsafeCell<Option<MutexGuard<'static, Dlmalloc<KernelMemory>>>>,
}

// SAFETY: `forking` is only used by the thread in `user`; that thread has the lock.
unsafe impl Sync for OwnHeap {}

#[cfg_attr(not(test), global_allocator)]
static HEAP: OwnHeap = OwnHeap {
    blocks: Mutex::new(Dlmalloc::new_with_allocator(KernelMemory)),
    user: AtomicUsize::new(0),
    forking: UnsafeCell::new(None),
};

/// The forking thread's handle is the same in the child.
fn this_thread() -> usize {
    // SAFETY: always succeeds.
    unsafe { libc::pthread_self() as usize }
}

impl OwnHeap {
    fn with<T>(&self, work: impl FnOnce(&mut Dlmalloc<KernelMemory>) -> T) -> T {
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

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// To be called at the start: forks from now on leave the child a heap that is whole.
pub(crate) fn begin() {
    HAS_BEGUN.store(true, Relaxed);
    // SAFETY: the handlers are never unloaded, as the library is not. Without memory for them, a
    // child may wait for a thread that it does not have, as it might of any library.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
}

/// Whether no thread uses the heap: a signal handler that finds it so has not interrupted its own thread there.
pub(crate) fn is_free() -> bool {
    HEAP.blocks.try_lock().is_ok()
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
