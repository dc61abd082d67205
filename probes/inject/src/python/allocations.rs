//! Counting allocations by size class (`--alloc`): wrappers around the allocators of the domains MEM and OBJ.
//!
//! An allocation is a block returned by `malloc`, `calloc` or `realloc`; `realloc` also counts as a free of the old
//! block. So allocations minus frees is the net number of blocks since the start. The domain RAW is left out: requests
//! of the other two domains to it would count twice. Objects from CPython's free lists are not allocated, and not
//! counted.
//!
//! Code that sets allocators later (tracemalloc, debug hooks) wraps ours, as ours wraps the
//! previous ones.

use super::api::{MemAllocator, OBJECTS, PythonApi};
use super::garbage::{allocated, freed, moved, wrapped_by};
use crate::process_ring;
use crate::process_ring::{now_ns, ring};
use crate::recording::guarded;
use gctrace_ring::{HookState, NO_TEXT, PythonMessage, RingProducer};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

/// `PYMEM_DOMAIN_MEM`.
const MEMORY: i32 = 1;

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// No two threads count at once: all interpreters share one lock. From 3.12 on a subinterpreter may
/// have its own, so from the first subinterpreter on counting is atomic.
static ALONE: AtomicBool = AtomicBool::new(false);

/// Starts counting, in the first interpreter; the lock is held, and nothing else runs yet.
pub(super) fn install(api: &'static PythonApi) {
    if INSTALLED.swap(true, Ordering::Relaxed) {
        ALONE.store(false, Ordering::Relaxed);
        return;
    }
    let Some(ring) = ring::<PythonMessage>() else {
        return;
    };
    super::report_interpreter(api, ring);
    ALONE.store(!api.is_free_threaded(), Ordering::Relaxed);
    let (state, detail) = match wrap(api) {
        Some(()) => (HookState::CountingAllocations, NO_TEXT),
        None => {
            let reason = "it has no PyMem_SetAllocator";
            (HookState::NotCountingAllocations, ring.text(reason))
        }
    };
    ring.push(&PythonMessage::Hook {
        at_ns: now_ns(),
        state,
        interpreter: api.interpreter_id(),
        detail,
        count: 0,
    });
}

fn wrap(api: &PythonApi) -> Option<()> {
    let (get, set) = (api.PyMem_GetAllocator?, api.PyMem_SetAllocator?);
    let wrapped = [MEMORY, OBJECTS].map(|domain| {
        let mut before = MaybeUninit::<MemAllocator>::uninit();
        // SAFETY: the domains exist since 3.5, and their allocators are always set; the previous
        // ones live on in memory that is never freed.
        let before: &'static mut MemAllocator = unsafe {
            get(domain, before.as_mut_ptr());
            Box::leak(Box::new(before.assume_init()))
        };
        let context = std::ptr::from_mut(before).cast();
        let wrapper = match domain {
            OBJECTS => wrapper::<OBJECTS>(context),
            _ => wrapper::<MEMORY>(context),
        };
        (domain, *before, wrapper)
    });
    let [_, (_, before, wrapper)] = &wrapped;
    // SAFETY: the allocators of a domain, with the lock held.
    let [plain_ps, counting_ps] = [before, wrapper].map(|allocator| unsafe { time(allocator) });
    process_ring::count_allocations(gctrace_units::beyond(counting_ps, plain_ps).max(1));
    let [_, (_, _, objects)] = &wrapped;
    wrapped_by(objects);
    for (domain, _, wrapper) in wrapped {
        // SAFETY: it calls the previous one.
        unsafe { set(domain, &raw const wrapper) };
    }
    Some(())
}

/// Time of an allocation and its free, in ps: the mean of the fastest of a few turns.
///
/// # Safety
/// `allocator`: its lock is held.
unsafe fn time(allocator: &MemAllocator) -> u64 {
    const TURNS: usize = 8;
    const PAIRS: u64 = 64;
    /// A small object.
    const BYTES: usize = 64;
    let turn = |_| {
        let begun_ns = now_ns();
        for _ in 0..PAIRS {
            // SAFETY: as the caller promises; after a failed allocation nothing is freed.
            unsafe {
                let memory = (allocator.malloc)(allocator.context, BYTES);
                (allocator.free)(allocator.context, memory);
            }
        }
        gctrace_units::duration_ns(begun_ns, now_ns()) * 1000 / PAIRS
    };
    (0..TURNS).map(turn).min().unwrap_or(0)
}

fn wrapper<const DOMAIN: i32>(context: *mut c_void) -> MemAllocator {
    MemAllocator {
        context,
        malloc: malloc::<DOMAIN>,
        calloc: calloc::<DOMAIN>,
        realloc: realloc::<DOMAIN>,
        free: free::<DOMAIN>,
    }
}

/// Counts in the ring; a forked child's is created when it first allocates. `alone`: as in
/// [`RingProducer::count_allocation`].
#[inline]
fn count_in_ring(count: impl FnOnce(&RingProducer<PythonMessage>, bool)) {
    guarded(|| {
        if let Some(ring) = ring::<PythonMessage>() {
            count(ring.producer(), ALONE.load(Ordering::Relaxed));
        }
    });
}

#[inline]
fn count(memory: *mut c_void, size: usize) {
    if !memory.is_null() {
        count_in_ring(|ring, alone| ring.count_allocation(size, alone));
    }
}

/// Counts a block that is not an older one, moved.
#[inline]
fn count_new<const DOMAIN: i32>(memory: *mut c_void, size: usize) {
    count(memory, size);
    if DOMAIN == OBJECTS && !memory.is_null() {
        allocated(memory, size);
    }
}

#[inline]
fn count_free() {
    count_in_ring(RingProducer::count_free);
}

/// The wrapped allocator.
///
/// # Safety
/// The context that `wrap` set.
#[inline]
unsafe fn before(context: *mut c_void) -> &'static MemAllocator {
    // SAFETY: as the caller promises; it is never freed.
    unsafe { &*context.cast::<MemAllocator>() }
}

unsafe extern "C" fn malloc<const DOMAIN: i32>(context: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: called by CPython with our context; passed on as it came.
    let memory = unsafe {
        let before = before(context);
        (before.malloc)(before.context, size)
    };
    count_new::<DOMAIN>(memory, size);
    memory
}

unsafe extern "C" fn calloc<const DOMAIN: i32>(
    context: *mut c_void,
    number: usize,
    size: usize,
) -> *mut c_void {
    // SAFETY: as for malloc.
    let memory = unsafe {
        let before = before(context);
        (before.calloc)(before.context, number, size)
    };
    // The product of a block that exists fits.
    count_new::<DOMAIN>(memory, number.wrapping_mul(size));
    memory
}

unsafe extern "C" fn realloc<const DOMAIN: i32>(
    context: *mut c_void,
    old: *mut c_void,
    size: usize,
) -> *mut c_void {
    let sampled = if DOMAIN == OBJECTS { freed(old) } else { None };
    // SAFETY: as for malloc.
    let memory = unsafe {
        let before = before(context);
        (before.realloc)(before.context, old, size)
    };
    if let Some(line) = sampled
        && !memory.is_null()
    {
        moved(line, memory, size);
    }
    count(memory, size);
    if !old.is_null() && !memory.is_null() {
        count_free();
    }
    memory
}

unsafe extern "C" fn free<const DOMAIN: i32>(context: *mut c_void, memory: *mut c_void) {
    if DOMAIN == OBJECTS {
        freed(memory);
    }
    // SAFETY: as for malloc.
    unsafe {
        let before = before(context);
        (before.free)(before.context, memory);
    }
    if !memory.is_null() {
        count_free();
    }
}
