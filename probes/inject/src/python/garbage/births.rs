//! Where objects were born: the Python line of a sample of all allocations of objects, by the
//! address of the block, until it is freed. Instances among garbage are found there, and what is alive
//! is summed by line ([`alive`]).
//!
//! On where the allocators are wrapped anyway (`--alloc`) and garbage is examined, because what is
//! freed has to be forgotten. An object is found by its block if CPython allocates and frees all
//! objects of its type there ([`InstanceTypes`]); memory of types with free lists (list, dict,
//! tuple, ...) is reused without the allocator, so that an address says nothing about them.
//!
//! A fresh sample holds a reference to a code object, until the next collection that is examined;
//! then only texts remain. Inside an allocation only functions are called that read the
//! interpreter's state.
//!
//! A sample stands for 256 allocations. When there are too many, every second one that has its texts is
//! dropped, and each that stays stands for twice as many: what lives long is sampled ever more coarsely,
//! without bias, and new objects are not.

use super::layout::{TypeView, type_of};
use super::reused::ReusedBlocks;
use crate::python::api::{Object, PythonApi};
use crate::python::frames::{CodeNames, RunningLine};
use crate::python::next_random;
use crate::python::object::OwnedRef;
use crate::python::raw_frame::RawFrameLayout;
use crate::recording::guarded;
use gctrace_abi::cpython::GC_HEAD;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Mean number of allocations per sample.
const EVERY: u32 = 256;

/// Blocks remembered: the bitmap takes 4 KiB of the processor's first cache, the slots 512 KiB of
/// memory at most. A block has two slots side by side; if both are taken it is not sampled.
const SLOTS: usize = 1 << 15;

/// Samples from which on they are thinned. Both slots are taken for 2.6 % then (Poisson, 1/4 a pair).
const MOST_SAMPLES: usize = SLOTS / 8;

/// Fresh lines; samples of more are dropped.
const MAX_FRESH: usize = 1 << 9;

/// Lines kept, some hundred bytes each; samples of more are dropped.
const MAX_LINES: usize = 1 << 12;

/// In [`Slot::line`]: an index of [`Sampler::fresh`], otherwise of [`Sampler::lines`].
const FRESH: u32 = 1 << 31;

/// In [`Slot::line`], of one that has a number: an object of another line may be in the block.
const UNSURE: u32 = 1 << 30;

/// In [`Slot::line`]: how often the sample was kept when others were dropped, above the index.
const HALVINGS: u32 = 16;

/// Times that a sample is kept, at most: each stands for 2^38 allocations then.
const MOST_HALVINGS: u32 = 30;

/// A block that was sampled, and the line.
struct Slot {
    /// Address of the block; 0: none.
    block: AtomicUsize,
    line: AtomicU32,
    /// Size of the block in bytes; at most 4 GiB.
    size: AtomicU32,
}

impl Slot {
    const fn empty() -> Self {
        Self { block: AtomicUsize::new(0), line: AtomicU32::new(0), size: AtomicU32::new(0) }
    }
}

static SLOT: [Slot; SLOTS] = [const { Slot::empty() }; SLOTS];

/// A bit per slot: it has a block.
static USED: [AtomicU64; SLOTS / 64] = [const { AtomicU64::new(0) }; SLOTS / 64];

/// Allocations before the next sample. Threads that count at once lose counts, which is harmless.
static LEFT: AtomicU32 = AtomicU32::new(u32::MAX);

static SAMPLER: OnceLock<Mutex<Sampler>> = OnceLock::new();

/// A line of the program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SampledLine {
    pub(super) function: Box<str>,
    pub(super) file: Box<str>,
    pub(super) line: u32,
}

/// Samples the allocations of the main interpreter. Those of others may run at the same time.
struct Sampler {
    api: &'static PythonApi,
    raw: Option<RawFrameLayout>,
    interpreter: usize,
    names: CodeNames,
    reused: ReusedBlocks,
    random: u32,
    /// Lines sampled since the last call of [`settle`].
    fresh: Vec<RunningLine>,
    /// All slots with a fresh line, each once.
    fresh_slots: Vec<usize>,
    lines: Vec<SampledLine>,
    numbers: HashMap<SampledLine, u32>,
    /// The interpreter ended.
    is_over: bool,
}

// SAFETY: objects are only used with the interpreter's lock held, whatever the thread.
unsafe impl Send for Sampler {}

/// The first of the two slots of a block.
#[inline]
fn slots_of(block: usize) -> usize {
    /// 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, vol. 3, 6.4).
    const FIBONACCI: u64 = 0x9e37_79b9_7f4a_7c15;
    // Blocks are aligned to 16 bytes.
    let mixed = (block as u64 >> 4).wrapping_mul(FIBONACCI);
    (mixed >> (u64::BITS - SLOTS.ilog2())) as usize & !1
}

/// The slot that has a block.
#[inline]
fn find(block: usize) -> Option<usize> {
    let first = slots_of(block);
    if USED[first / 64].load(Relaxed) & (0b11 << (first % 64)) == 0 {
        return None;
    }
    [first, first + 1].into_iter().find(|at| SLOT[*at].block.load(Relaxed) == block)
}

/// Memory for an object, perhaps, was allocated.
#[inline]
pub(in crate::python) fn allocated(block: *mut c_void, size: usize) {
    match LEFT.load(Relaxed) {
        0 => sample(block.addr(), size),
        left => LEFT.store(left - 1, Relaxed),
    }
}

/// Memory is about to be freed, or to be moved: the line of its sample for [`moved`], if it has one.
#[inline]
pub(in crate::python) fn freed(block: *mut c_void) -> Option<u32> {
    find(block.addr()).map(forget)
}

/// A block that had a sample was moved, or has another size: texts and bytes are, when they are complete.
#[cold]
pub(in crate::python) fn moved(line: u32, block: *mut c_void, size: usize) {
    guarded(|| {
        if let Some(mut sampler) = sampler()
            && let Some(at) = free_slot(block.addr(), line)
        {
            sampler.place(at, block.addr(), size, line);
        }
    });
}

/// Where a sample with this line can be placed.
fn free_slot(block: usize, line: u32) -> Option<usize> {
    let first = slots_of(block);
    let is_free = |at: &usize| {
        let slot = &SLOT[*at];
        // A slot that is listed gets its line by its number among the fresh ones.
        let is_listed = slot.line.load(Relaxed) & FRESH != 0;
        slot.block.load(Relaxed) == 0 && (line & FRESH != 0 || !is_listed)
    };
    [first, first + 1].into_iter().find(is_free)
}

/// Returns its line.
#[cold]
fn forget(at: usize) -> u32 {
    USED[at / 64].fetch_and(!(1 << (at % 64)), Relaxed);
    // Its line stays, as `fresh_slots` lists it.
    SLOT[at].block.store(0, Relaxed);
    SLOT[at].line.load(Relaxed)
}

#[cold]
fn sample(block: usize, size: usize) {
    guarded(|| {
        let Some(sampler) = SAMPLER.get() else {
            return LEFT.store(u32::MAX, Relaxed);
        };
        // It is taken if it is the holder that allocates.
        if let Ok(mut sampler) = sampler.try_lock() {
            sampler.random = next_random(sampler.random);
            LEFT.store(sampler.random % (2 * EVERY - 1), Relaxed);
            sampler.sample(block, size);
        }
    });
}

/// Starts to sample; the lock of the main interpreter is held. `None`: lines cannot be read without
/// allocating.
pub(super) fn begin(api: &'static PythonApi, minor: u8, raw: Option<RawFrameLayout>) -> Option<()> {
    let is_readable = raw.is_some() || api.PyFrame_GetLasti.is_none();
    let sampler = Sampler {
        api,
        raw: is_readable.then_some(raw)?,
        interpreter: api.running_interpreter()?,
        names: CodeNames::new(api),
        reused: ReusedBlocks::new(api, minor),
        // Any number but 0.
        random: 1,
        fresh: Vec::new(),
        fresh_slots: Vec::new(),
        lines: Vec::new(),
        numbers: HashMap::new(),
        is_over: false,
    };
    SAMPLER.set(Mutex::new(sampler)).ok()?;
    LEFT.store(EVERY, Relaxed);
    Some(())
}

/// Reads the names of fresh lines and releases their code; whether there were any. The lock of the
/// main interpreter is held, and no exception is set.
pub(super) fn settle() -> bool {
    let Some(mut sampler) = sampler().filter(|sampler| !sampler.fresh.is_empty()) else {
        return false;
    };
    let fresh = sampler.settle();
    drop(sampler);
    // May run the program's code, which allocates.
    drop(fresh);
    true
}

/// Ends it: the main interpreter ends, whose lock is held.
pub(super) fn end() {
    let Some(mut sampler) = sampler() else {
        return;
    };
    sampler.is_over = true;
    let fresh = std::mem::take(&mut sampler.fresh);
    drop(sampler);
    drop(fresh);
}

fn sampler() -> Option<MutexGuard<'static, Sampler>> {
    SAMPLER.get()?.try_lock().ok()
}

/// The line at which the block at this address was allocated, if it is one of the sample: a number
/// for [`line()`].
#[inline]
pub(super) fn birth(block: usize) -> Option<u32> {
    let line = SLOT[find(block)?].line.load(Relaxed);
    (line & FRESH == 0).then_some(number_of(line))
}

/// The number of a line that has one.
fn number_of(line: u32) -> u32 {
    line & ((1 << HALVINGS) - 1)
}

fn halvings(line: u32) -> u32 {
    (line & !(FRESH | UNSURE)) >> HALVINGS
}

/// How many allocations the sample with this line stands for.
fn allocations_of(line: u32) -> u64 {
    u64::from(EVERY) << halvings(line)
}

/// All slots that are taken and whose lines have texts, with the line.
fn settled() -> impl Iterator<Item = (usize, u32)> {
    let taken = USED.iter().enumerate().flat_map(|(word, bits)| {
        let bits = bits.load(Relaxed);
        (0..64).filter(move |bit| bits & (1 << bit) != 0).map(move |bit| word * 64 + bit)
    });
    let line = |at: usize| (at, SLOT[at].line.load(Relaxed));
    taken.map(line).filter(|(_, line)| line & FRESH == 0)
}

/// Estimates what is alive of what was allocated since the sampling began: by line the objects and
/// their bytes, without types that have free lists; of at most so many lines those with most objects, in this order. The lock of the main
/// interpreter is held.
pub(super) fn alive(most: usize) -> Vec<(SampledLine, u64, u64)> {
    let Some(sampler) = sampler().filter(|sampler| !sampler.is_over) else {
        return Vec::new();
    };
    let mut sums = vec![(0u64, 0u64); sampler.lines.len()];
    for (at, line) in settled().filter(|(_, line)| line & UNSURE == 0) {
        if let Some((objects, bytes)) = sums.get_mut(number_of(line) as usize) {
            let stands_for = allocations_of(line);
            *objects = objects.saturating_add(stands_for);
            let of_all = stands_for.saturating_mul(SLOT[at].size.load(Relaxed).into());
            *bytes = bytes.saturating_add(of_all);
        }
    }
    let lines = sampler.lines.iter().zip(sums).filter(|(_, (objects, _))| *objects > 0);
    let mut lines: Vec<(&SampledLine, (u64, u64))> = lines.collect();
    lines.sort_by_key(|(_, (objects, _))| std::cmp::Reverse(*objects));
    let most = lines.into_iter().take(most);
    most.map(|(line, (objects, bytes))| (line.clone(), objects, bytes)).collect()
}

/// The line of a number.
pub(super) fn line(number: u32) -> Option<SampledLine> {
    sampler()?.lines.get(number as usize).cloned()
}

impl Sampler {
    fn sample(&mut self, block: usize, size: usize) {
        let is_own = self.api.running_interpreter() == Some(self.interpreter);
        if self.is_over || !is_own {
            return;
        }
        let Some(at) = free_slot(block, FRESH) else {
            return;
        };
        let Some(line) = RunningLine::innermost(self.api, self.raw) else {
            return;
        };
        let known = self.fresh.iter().position(|fresh| fresh.is_same(&line));
        let fresh = match known {
            Some(known) => known,
            None if self.fresh.len() < MAX_FRESH => {
                self.fresh.push(line);
                self.fresh.len() - 1
            }
            None => return,
        };
        self.place(at, block, size, fresh as u32 | FRESH);
    }

    /// Remembers a block in a [`free_slot`] for its line.
    fn place(&mut self, at: usize, block: usize, size: usize, line: u32) {
        let slot = &SLOT[at];
        let is_listed = slot.line.load(Relaxed) & FRESH != 0;
        if line & FRESH != 0 && !is_listed {
            self.fresh_slots.push(at);
        }
        slot.line.store(line, Relaxed);
        slot.size.store(u32::try_from(size).unwrap_or(u32::MAX), Relaxed);
        slot.block.store(block, Relaxed);
        USED[at / 64].fetch_or(1 << (at % 64), Relaxed);
    }

    /// Returns references to release.
    fn settle(&mut self) -> Vec<RunningLine> {
        let fresh = std::mem::take(&mut self.fresh);
        let numbers: Vec<Option<u32>> = fresh.iter().map(|line| self.number(line)).collect();
        let can_read = self.reused.can_read();
        for at in std::mem::take(&mut self.fresh_slots) {
            let slot = &SLOT[at];
            let line = (slot.line.load(Relaxed) & !FRESH) as usize;
            match numbers.get(line).copied().flatten() {
                Some(number) => {
                    let (block, size) = (slot.block.load(Relaxed), slot.size.load(Relaxed));
                    // SAFETY: the block is not freed: its slot would be free.
                    let is_sure =
                        can_read && block != 0 && !unsafe { self.reused.has(block, size as usize) };
                    slot.line.store(if is_sure { number } else { number | UNSURE }, Relaxed);
                }
                None => {
                    slot.line.store(0, Relaxed);
                    forget(at);
                }
            }
        }
        self.thin();
        fresh
    }

    /// Drops every second sample if there are too many.
    fn thin(&mut self) {
        let taken = USED.iter().map(|bits| bits.load(Relaxed).count_ones() as usize);
        if taken.sum::<usize>() <= MOST_SAMPLES {
            return;
        }
        for (at, line) in settled() {
            self.random = next_random(self.random);
            if self.random >> 31 == 0 || halvings(line) >= MOST_HALVINGS {
                forget(at);
            } else {
                SLOT[at].line.store(line + (1 << HALVINGS), Relaxed);
            }
        }
    }

    /// The number of a line; `None` if there are too many.
    fn number(&mut self, line: &RunningLine) -> Option<u32> {
        let (function, file) = self.names.of(line.code(), |text| Box::from(text));
        let line = SampledLine { function, file, line: line.line(self.api, self.raw) };
        if let Some(known) = self.numbers.get(&line) {
            return Some(*known);
        }
        if self.lines.len() >= MAX_LINES {
            return None;
        }
        let number = self.lines.len() as u32;
        self.lines.push(line.clone());
        self.numbers.insert(line, number);
        Some(number)
    }
}

/// Recognizes the types whose objects CPython allocates and frees one by one: those made by a class
/// statement, and not only those of extensions.
pub(super) struct InstanceTypes {
    /// `subtype_dealloc`, which no header names.
    deallocate: usize,
    allocate: usize,
    free: usize,
}

impl InstanceTypes {
    /// The lock is held. `None` in builds that lack one of them.
    pub(super) fn new(api: &'static PythonApi) -> Option<Self> {
        // A class statement of importlib, which is part of every interpreter.
        let class = OwnedRef::import(api, c"_frozen_importlib")?.attribute(c"ModuleSpec")?;
        // SAFETY: alive, an object; if it is a type its fields are where they were verified to be.
        let view = unsafe {
            let is_class = TypeView::new(type_of(class.object())).is_metatype();
            is_class.then(|| TypeView::new(class.object()))?
        };
        let functions = Self {
            deallocate: view.deallocate(),
            allocate: api.PyType_GenericAlloc? as usize,
            free: api.PyObject_GC_Del? as usize,
        };
        functions.distance(view).is_some().then_some(functions)
    }

    /// Bytes from the block of an object of this type to the object; `None` if it may be in memory
    /// that was not allocated for it. The collector's head is before an object, and from 3.11 on two
    /// words for its dict and weak references, if its type has them (`_PyType_PreHeaderSize`,
    /// Include/internal/pycore_object.h).
    pub(super) fn distance(&self, class: TypeView) -> Option<usize> {
        const WORDS: usize = 16;
        let is_one_by_one = class.is_heap()
            && class.is_collected()
            && class.deallocate() == self.deallocate
            && class.allocate() == self.allocate
            && class.free() == self.free;
        let words = if class.has_words_before() { WORDS } else { 0 };
        is_one_by_one.then_some(GC_HEAD as usize + words)
    }
}

/// Address of the block of an object at that distance.
pub(super) fn block_of(object: Object, distance: usize) -> usize {
    object.addr().wrapping_sub(distance)
}
