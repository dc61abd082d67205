//! Calls of `torch.cuda.empty_cache()`: each with its lines and its time, and the memory that PyTorch's allocator has
//! from the driver before, after, and until all of it is taken again.
//!
//! The same is read before and after full collections, for the decrease of device memory in tensors.
//!
//! A function of ours stands before the C function that does the work of those calls (`builtin.rs`). The allocator's
//! memory comes from PyTorch's own builtins: C code that runs on the program's own thread and starts nothing on a GPU.
//! After a call it is read at collections and at marks of steps, ever more rarely, for 10 s at most.

use super::api::{Object, PythonApi, api};
use super::builtin::{Builtin, StandIn};
use super::frames::FrameCache;
use super::garbage::Budget;
use super::object::OwnedRef;
use crate::process_ring::{
    PythonRing, is_off, now_ns, options, process_cpu_ns, ring, thread_cpu_ns, tid,
};
use crate::recording::guarded;
use gctrace_ring::{
    PythonMessage, RingCacheMemory, RingEmptyCache, RingPauseMemory, TimeInterval, WorkKind,
};
use gctrace_units::{beyond, duration_ns};
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Devices that are asked for: more than a machine has.
const MOST_DEVICES: u32 = 64;
/// Less that is given back is not followed, in bytes.
const LEAST_BYTES: u64 = 1 << 20;
/// Time between two looks in ns, and the part of the time since the call.
const APART_NS: u64 = 1_000_000;
const APART_PART: u64 = 8;
/// Memory that is taken again after this time was free for other processes, in ns.
const LONGEST_NS: u64 = 10_000_000_000;
/// Share of the CPU time for collections, in millionths, and time beside it in ns.
const BUDGET_PPM: u32 = 2_000;
const PREPAID_NS: u64 = 20_000_000;

static CALLS: StandIn = StandIn::new(called);

/// `None` before torch is imported. Never waited for: Python code that runs while it is asked may call again.
static CACHE: Mutex<Option<DeviceCache>> = Mutex::new(None);

/// When to look next at the memory that a call gave back, in ns; [`NEVER`].
static DUE_NS: AtomicU64 = AtomicU64::new(NEVER);
const NEVER: u64 = u64::MAX;

/// PyTorch's allocator of device memory.
struct DeviceCache {
    api: &'static PythonApi,
    stats: Builtin,
    devices: Builtin,
    is_in_bad_fork: Builtin,
    frames: FrameCache,
    followed: FollowedCall,
    budget: Budget,
}

/// The latest call that gave memory back.
#[derive(Clone, Copy, Default)]
struct FollowedCall {
    end_ns: u64,
    /// Bytes before it.
    before: u64,
    /// Number of the ring with the call.
    ring: u32,
}

// SAFETY: used with the interpreter's lock held, whatever the thread.
unsafe impl Send for DeviceCache {}

/// Watches the calls. `None`: this torch is built without CUDA.
pub(super) fn watch(api: &'static PythonApi, modules: &[OwnedRef]) -> Option<()> {
    let [torch] = modules else { return None };
    let original = |function| if CALLS.is(function) { CALLS.original() } else { function };
    let find = |name| Builtin::find(api, torch, name, original);
    let empty = find(c"_cuda_emptyCache").filter(Builtin::is_writable)?;
    let cache = DeviceCache {
        api,
        stats: find(c"_cuda_memoryStats")?,
        devices: find(c"_cuda_getDeviceCount")?,
        is_in_bad_fork: find(c"_cuda_isInBadFork")?,
        frames: FrameCache::new(api),
        followed: FollowedCall::default(),
        budget: Budget::new(BUDGET_PPM, PREPAID_NS),
    };
    *CACHE.try_lock().ok()? = Some(cache);
    CALLS.stand_before(&empty);
    Some(())
}

/// Stands before torch's function.
unsafe extern "C-unwind" fn called(
    module: Object,
    first: *const c_void,
    second: usize,
    third: Object,
) -> Object {
    let before = guarded(before).flatten();
    let start_ns = now_ns();
    // SAFETY: called by the interpreter in its place.
    let result = unsafe { CALLS.call_original(module, first, second, third) };
    let interval = TimeInterval { start_ns, end_ns: now_ns() };
    if let Some(before) = before
        && !result.is_null()
    {
        guarded(|| after(before, interval));
    }
    result
}

/// The allocator's memory before a call, in bytes; `None` within: unknown. `None`: the call is not recorded.
fn before() -> Option<Option<u64>> {
    if is_off() || api()?.interpreter_id() != 0 {
        return None;
    }
    with(|cache, ring| {
        let devices = cache.memory();
        if DUE_NS.load(Ordering::Relaxed) != NEVER && cache.is_followed(ring) {
            write(ring, &devices);
        }
        reserved(&devices)
    })
}

fn after(before: Option<u64>, interval: TimeInterval) {
    with(|cache, ring| {
        let after = reserved(&cache.memory());
        let depth = if let Some(options) = options() { options.stack_depth } else { 0 };
        let frame = if depth > 0 { cache.frames.stack(cache.api, ring, depth) } else { 0 };
        ring.push(&PythonMessage::EmptyCache(RingEmptyCache {
            tid: tid(),
            frame,
            interval,
            before,
            after,
        }));
        if let (Some(before), Some(after)) = (before, after)
            && beyond(before, after) >= LEAST_BYTES
        {
            let end_ns = interval.end_ns;
            cache.followed = FollowedCall { end_ns, before, ring: ring.number() };
            DUE_NS.store(end_ns + APART_NS, Ordering::Relaxed);
        }
    });
}

/// Looks at the memory that the last call gave back, if it is time. The main interpreter's lock is held, and no
/// exception is set.
#[inline]
pub(super) fn look() {
    let due_ns = DUE_NS.load(Ordering::Relaxed);
    if due_ns != NEVER && now_ns() >= due_ns {
        follow();
    }
}

#[cold]
fn follow() {
    with(|cache, ring| {
        if !cache.is_followed(ring) {
            return DUE_NS.store(NEVER, Ordering::Relaxed);
        }
        let devices = cache.memory();
        write(ring, &devices);
        let (now, call) = (now_ns(), cache.followed);
        let since_ns = duration_ns(call.end_ns, now);
        let is_back = reserved(&devices).is_none_or(|reserved| reserved >= call.before);
        let next_ns = now + APART_NS.max(since_ns / APART_PART);
        let is_over = is_back || since_ns > LONGEST_NS;
        DUE_NS.store(if is_over { NEVER } else { next_ns }, Ordering::Relaxed);
    });
}

/// The allocator's memory as a full collection begins; empty: unknown. The main interpreter's lock is held.
pub(super) fn before_collection() -> Vec<RingCacheMemory> {
    let Ok(mut cache) = CACHE.try_lock() else { return Vec::new() };
    let Some(cache) = cache.as_mut() else { return Vec::new() };
    if cache.is_initialized() && cache.budget.is_due(false) { cache.timed() } else { Vec::new() }
}

/// It ended.
pub(super) fn collected(before: &[RingCacheMemory], ring: &PythonRing, interval: TimeInterval) {
    if before.is_empty() {
        return;
    }
    let mut cache = CACHE.try_lock().ok();
    let Some(Some(cache)) = cache.as_deref_mut() else { return };
    for (before, after) in before.iter().zip(cache.timed()) {
        let device = after.device;
        if before.device == device && before.reserved.max(after.reserved) > 0 {
            let freed = beyond(before.allocated, after.allocated);
            let memory = RingPauseMemory { device, tid: after.tid, interval, freed };
            ring.push(&PythonMessage::PauseMemory(memory));
            ring.push(&PythonMessage::CacheMemory(after));
        }
    }
}

/// The main interpreter ends: gives the place back.
pub(super) fn end() {
    CALLS.withdraw();
    DUE_NS.store(NEVER, Ordering::Relaxed);
    let cache = CACHE.try_lock().ok().and_then(|mut cache| cache.take());
    drop(cache);
}

/// As [`end`], of an interpreter that is gone: its objects are not released.
pub(super) fn forget() {
    CALLS.withdraw();
    DUE_NS.store(NEVER, Ordering::Relaxed);
    std::mem::forget(CACHE.try_lock().ok().and_then(|mut cache| cache.take()));
}

/// Counts the time as the library's.
fn with<T>(work: impl FnOnce(&mut DeviceCache, &PythonRing) -> T) -> Option<T> {
    let begun_ns = thread_cpu_ns();
    let mut cache = CACHE.try_lock().ok()?;
    let cache = cache.as_mut()?;
    let ring = ring::<PythonMessage>()?;
    let result = work(cache, ring);
    ring.spend(WorkKind::Step, begun_ns);
    Some(result)
}

impl DeviceCache {
    /// Whether the call that is followed was this process's: a forked child has no GPU of its parent, and a
    /// lock of the allocator may be held in it for ever.
    fn is_followed(&self, ring: &PythonRing) -> bool {
        self.followed.ring == ring.number()
    }

    /// Whether the program uses a GPU, and may. Before it does, torch would take the mere question for use of the GPUs.
    /// After that, forked children must not use any (`poison_fork` in torch/csrc/cuda/Module.cpp). In a child of a
    /// program that does, locks of the allocator may be held for ever.
    fn is_initialized(&self) -> bool {
        let api = self.api;
        // SAFETY: the lock is held; the interpreter has its modules until `end`.
        let modules = unsafe { OwnedRef::share(api, (api.PyImport_GetModuleDict)()) };
        let value = |of: &OwnedRef, name| of.value(&OwnedRef::interned(api, name)?);
        let state = || {
            let names = value(&modules, c"torch.cuda")?.attribute(c"__dict__")?;
            value(&names, c"_initialized")?.number()
        };
        let may = || self.is_in_bad_fork.call(api, &[])?.number();
        state() == Some(1) && may() == Some(0)
    }

    /// As [`DeviceCache::memory`], within the budget of collections.
    fn timed(&mut self) -> Vec<RingCacheMemory> {
        let begun_ns = thread_cpu_ns();
        let memory = self.memory();
        self.budget.spend(duration_ns(begun_ns, thread_cpu_ns()), process_cpu_ns);
        memory
    }

    /// The allocator's memory on each device that the program uses.
    fn memory(&self) -> Vec<RingCacheMemory> {
        if !self.is_initialized() {
            return Vec::new();
        }
        let count = || u32::try_from(self.devices.call(self.api, &[])?.number()?).ok();
        let count = count().unwrap_or(0);
        let of = |device| {
            let stats = self.stats.call(self.api, &[device])?;
            let all = OwnedRef::interned(self.api, c"all")?;
            let current = OwnedRef::interned(self.api, c"current")?;
            let bytes = |name| {
                let kind = stats.value(&OwnedRef::interned(self.api, name)?)?;
                u64::try_from(kind.value(&all)?.value(&current)?.number()?).ok()
            };
            let (allocated, reserved) = (bytes(c"allocated_bytes")?, bytes(c"reserved_bytes")?);
            Some(RingCacheMemory { device, tid: tid(), at_ns: now_ns(), allocated, reserved })
        };
        (0..count.min(MOST_DEVICES)).filter_map(of).collect()
    }
}

fn write(ring: &PythonRing, devices: &[RingCacheMemory]) {
    for device in devices {
        ring.push(&PythonMessage::CacheMemory(*device));
    }
}

/// The memory of all devices together, in bytes; `None`: unknown.
fn reserved(devices: &[RingCacheMemory]) -> Option<u64> {
    let all = devices.iter().map(|device| device.reserved);
    all.reduce(u64::saturating_add)
}
