//! Blocks that objects of other lines may be in: blocks of types with free lists.
//!
//! CPython keeps the memory of such objects when they die, and makes new ones of it without the allocator:
//! lists, dicts and their tables of keys, tuples, floats, bound methods, frames
//! (`Include/internal/pycore_freelist_state.h` of 3.14, before it `*_MAXFREELIST` in Objects/).

use crate::python::api::{MemAllocator, OBJECTS, Object, PythonApi};
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// `malloc` and `free` of the wrapper around the allocator of objects.
static WRAPPER: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

fn functions(allocator: &MemAllocator) -> [usize; 2] {
    [allocator.malloc as *const () as usize, allocator.free as *const () as usize]
}

/// The allocator of objects is about to be this one.
pub(in crate::python) fn wrapped_by(allocator: &MemAllocator) {
    for (known, function) in WRAPPER.iter().zip(functions(allocator)) {
        known.store(function, Relaxed);
    }
}

/// Reads the kind of a block, for blocks allocated since about the last collection.
pub(super) struct ReusedBlocks {
    api: &'static PythonApi,
    /// Types behind a collector's head.
    collected: [Object; 7],
    /// Types of objects that the collector does not know; null: none.
    others: [Object; 2],
    minor: u8,
}

impl ReusedBlocks {
    pub(super) fn new(api: &'static PythonApi, minor: u8) -> Self {
        let collected = [
            api.PyDict_Type,
            api.PyList_Type,
            api.PyTuple_Type,
            api.PyMethod_Type,
            api.PyCFunction_Type,
            api.PyFrame_Type,
            api.PyAsyncGen_Type,
        ];
        // Integers have a free list from 3.14 on.
        let long = if minor >= 14 { api.PyLong_Type } else { std::ptr::null_mut() };
        Self { api, collected, others: [api.PyFloat_Type, long], minor }
    }

    /// Whether blocks may be read: the allocator is ours, so that none was freed unseen.
    pub(super) fn can_read(&self) -> bool {
        let Some(get) = self.api.PyMem_GetAllocator else { return false };
        let mut now = MaybeUninit::<MemAllocator>::uninit();
        // SAFETY: the domain exists since 3.5, and its allocator is always set.
        let now = unsafe {
            get(OBJECTS, now.as_mut_ptr());
            now.assume_init()
        };
        let known = WRAPPER.iter().map(|known| known.load(Relaxed));
        known.eq(functions(&now))
    }

    /// Whether an object of another line may be in a block. A block that is not initialized may be taken for any.
    ///
    /// # Safety
    /// The block has as many bytes and is not freed; the lock is held.
    pub(super) unsafe fn has(&self, block: usize, bytes: usize) -> bool {
        /// The collector's head is two words.
        const BEHIND_HEAD: usize = 16;
        /// Size of a float (Include/cpython/floatobject.h).
        const FLOAT: usize = 24;
        /// `ob_type` is the second word.
        const TYPE: usize = 8;
        let word = |at: usize| {
            let place = std::ptr::with_exposed_provenance::<usize>(block + at);
            // SAFETY: within the block; blocks are aligned to 16 bytes.
            if bytes >= at + size_of::<usize>() { Some(unsafe { place.read() }) } else { None }
        };
        let Some(second) = word(TYPE) else { return false };
        // A table of keys of the smallest size, 8: it has `dk_log2_size` and `dk_log2_index_bytes` there, before
        // 3.11 `dk_size` (Objects/dict-common.h). No type has such an address.
        let is_table = match self.minor {
            ..=10 => second == 8,
            _ => second & 0xffff == 0x0303,
        };
        let is = |types: &[Object], address: usize| {
            types.iter().any(|known| !known.is_null() && known.addr() == address)
        };
        // A float in the free list has the next one there until 3.12, and nothing else is as large.
        is_table
            || bytes == FLOAT
            || is(&self.others, second)
            || matches!(word(BEHIND_HEAD + TYPE), Some(address) if is(&self.collected, address))
    }
}
