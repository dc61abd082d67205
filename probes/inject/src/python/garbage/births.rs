//! Where objects were born: the Python line of a sample of all allocations of objects, by the address of the block,
//! until it is freed. Instances among garbage are found there, and live objects are summed by line ([`alive`]).
//!
//! On where the allocators are wrapped anyway (`--alloc`) and garbage is examined: freed blocks have to be forgotten.
//! An object is found by its block if CPython allocates and frees all objects of its type there ([`InstanceTypes`]);
//! memory of types with free lists (list, dict, tuple, ...) is reused without the allocator, so an address says nothing
//! about them.
//!
//! A fresh sample holds a reference to a code object, until the next collection that is examined;
//! then only texts remain. Inside an allocation only functions are called that read the
//! interpreter's state.
//!
//! A sample stands for 256 allocations, or more once others were dropped ([`Samples`]): long-lived objects are sampled
//! ever more coarsely, without bias, and new objects are not.

use super::layout::{TypeView, type_of};
use super::reused::ReusedBlocks;
use super::samples::{
    EVERY, FRESH, MOST_SAMPLES, Samples, UNSURE, index_of, stands_for, with_index,
};
use crate::memory::Map;
use crate::python::api::{Object, PythonApi};
use crate::python::frames::{CodeNames, RunningLine};
use crate::python::next_random;
use crate::python::object::OwnedRef;
use crate::python::raw_frame::RawFrameLayout;
use crate::recording::guarded;
use gctrace_cpython::offsets::GC_HEAD;
use gctrace_units::{add_to, times};
use std::ffi::c_void;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Fresh lines; samples of more are dropped. From half of them on they get their texts at the next collection.
const MAX_FRESH: usize = 1 << 9;

/// Lines kept, some hundred bytes each; beyond this number, lines without a sample are forgotten.
const MAX_LINES: usize = 2 * MOST_SAMPLES;

// The remaining lines and the fresh ones then fit.
const _: () = assert!(MOST_SAMPLES + MAX_FRESH <= MAX_LINES);

static SAMPLES: Samples = Samples::new();

/// Allocations before the next sample. Threads that count at once lose counts; that is harmless.
static LEFT: AtomicU32 = AtomicU32::new(u32::MAX);

static SAMPLER: OnceLock<Mutex<Sampler>> = OnceLock::new();

/// A line of the program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SampledLine {
    pub(super) function: Box<str>,
    pub(super) file: Box<str>,
    pub(super) line: u32,
}

/// Samples the allocations of the main interpreter. Other interpreters may allocate at the same time.
struct Sampler {
    api: &'static PythonApi,
    raw: Option<RawFrameLayout>,
    interpreter: usize,
    names: CodeNames,
    reused: ReusedBlocks,
    random: u32,
    /// Lines sampled since the last call of [`settle`].
    fresh: Vec<RunningLine>,
    lines: Vec<SampledLine>,
    numbers: Map<SampledLine, u32>,
    /// The interpreter ended.
    is_over: bool,
}

// SAFETY: objects are only used with the interpreter's lock held, whatever the thread.
unsafe impl Send for Sampler {}

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
    SAMPLES.find(block.addr()).map(|at| SAMPLES.forget(at))
}

/// A block that had a sample was moved, or has another size: texts and bytes are, when they are complete.
#[cold]
pub(in crate::python) fn moved(line: u32, block: *mut c_void, size: usize) {
    guarded(|| {
        if let Some(mut sampler) = sampler() {
            SAMPLES.place(block.addr(), size, line, &mut sampler.random);
        }
    });
}

#[cold]
fn sample(block: usize, size: usize) {
    guarded(|| {
        let Some(sampler) = SAMPLER.get() else { return LEFT.store(u32::MAX, Relaxed) };
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
    if raw.is_none() && api.PyFrame_GetLasti.is_some() {
        return None;
    }
    let sampler = Sampler {
        api,
        raw,
        interpreter: api.running_interpreter()?,
        names: CodeNames::new(api),
        reused: ReusedBlocks::new(api, minor),
        // Any number but 0.
        random: 1,
        fresh: Vec::new(),
        lines: Vec::new(),
        numbers: Map::default(),
        is_over: false,
    };
    SAMPLER.set(Mutex::new(sampler)).ok()?;
    LEFT.store(EVERY, Relaxed);
    Some(())
}

/// Whether there are so many fresh lines that they have to be read at once.
pub(super) fn is_crowded() -> bool {
    let Some(sampler) = sampler() else { return false };
    sampler.fresh.len() >= MAX_FRESH / 2
}

/// Reads the names of fresh lines and releases their code; whether there were any. The lock of the
/// main interpreter is held, and no exception is set.
pub(super) fn settle() -> bool {
    let mut sampler = match sampler() {
        Some(sampler) if !sampler.fresh.is_empty() => sampler,
        _ => return false,
    };
    let fresh = sampler.settle();
    drop(sampler);
    // May run the program's code, and that may allocate.
    drop(fresh);
    true
}

/// Ends the sampling: the main interpreter ends. Its lock is held.
pub(super) fn end() {
    let Some(mut sampler) = sampler() else { return };
    sampler.is_over = true;
    let fresh = std::mem::take(&mut sampler.fresh);
    drop(sampler);
    drop(fresh);
}

/// As [`end`], of an interpreter that is gone: its objects are not released.
pub(in crate::python) fn forget() {
    if let Some(mut sampler) = sampler() {
        sampler.is_over = true;
        std::mem::forget(std::mem::take(&mut sampler.fresh));
    }
}

fn sampler() -> Option<MutexGuard<'static, Sampler>> {
    SAMPLER.get()?.try_lock().ok()
}

/// The line that allocated the block at this address, if the block was sampled: a number for [`line()`], and the number
/// of samples that it stands for.
#[inline]
pub(super) fn birth(block: usize) -> Option<(u32, u32)> {
    let line = SAMPLES.line(SAMPLES.find(block)?);
    if line & FRESH == 0 { Some((index_of(line), stands_for(line))) } else { None }
}

/// Estimates the live objects allocated since the sampling began, and their bytes, by line, without types that have
/// free lists. At most `most` lines, with most objects first. The lock of the main interpreter is held.
pub(super) fn alive(most: usize) -> Vec<(SampledLine, u64, u64)> {
    let Some(sampler) = sampler().filter(|sampler| !sampler.is_over) else { return Vec::new() };
    let mut sums = vec![(0u64, 0u64); sampler.lines.len()];
    for (at, line) in SAMPLES.all().filter(|(_, line)| line & (FRESH | UNSURE) == 0) {
        if let Some((objects, bytes)) = sums.get_mut(index_of(line) as usize) {
            let allocations = u64::from(EVERY) * u64::from(stands_for(line));
            add_to(objects, allocations);
            let of_all = times(allocations, SAMPLES.block(at).1.into());
            add_to(bytes, of_all);
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
        let Some(line) = RunningLine::innermost(self.api, self.raw) else { return };
        let known = self.fresh.iter().position(|fresh| fresh.is_same(&line));
        let fresh = match known {
            Some(known) => known,
            None if self.fresh.len() < MAX_FRESH => {
                self.fresh.push(line);
                self.fresh.len() - 1
            }
            None => return,
        };
        SAMPLES.place(block, size, fresh as u32 | FRESH, &mut self.random);
    }

    /// Returns references to release.
    fn settle(&mut self) -> Vec<RunningLine> {
        let fresh = std::mem::take(&mut self.fresh);
        if self.lines.len() + fresh.len() > MAX_LINES {
            self.forget_lines();
        }
        let numbers: Vec<u32> = fresh.iter().map(|line| self.number(line)).collect();
        let can_read = self.reused.can_read();
        for (at, line) in SAMPLES.take_fresh() {
            let number = numbers.get(index_of(line) as usize);
            let (block, size) = SAMPLES.block(at);
            // SAFETY: the block is not freed: its slot would be free.
            let is_reused = || can_read && unsafe { self.reused.has(block, size as usize) };
            match number {
                // No instance has such memory, and other objects there count for no line.
                Some(_) if is_reused() => _ = SAMPLES.forget(at),
                Some(number) if can_read => SAMPLES.set_line(at, with_index(line, *number)),
                Some(number) => SAMPLES.set_line(at, with_index(line, *number) | UNSURE),
                None => _ = SAMPLES.forget(at),
            }
        }
        fresh
    }

    /// Forgets the lines that no sample has; the others get new numbers.
    fn forget_lines(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        self.numbers.clear();
        for (at, line) in SAMPLES.all() {
            if line & FRESH == 0
                && let Some(known) = lines.get(index_of(line) as usize)
            {
                let number = self.number_of(known.clone());
                SAMPLES.set_line(at, with_index(line, number));
            }
        }
    }

    /// The number of a line.
    fn number(&mut self, line: &RunningLine) -> u32 {
        let (function, file) = self.names.of(line.code(), |text| Box::from(text));
        self.number_of(SampledLine { function, file, line: line.line(self.api, self.raw) })
    }

    fn number_of(&mut self, line: SampledLine) -> u32 {
        if let Some(known) = self.numbers.get(&line) {
            return *known;
        }
        let number = self.lines.len() as u32;
        self.lines.push(line.clone());
        self.numbers.insert(line, number);
        number
    }
}

/// Recognizes types with objects that CPython allocates and frees one by one: types made by a class statement, and
/// types of extensions with the same functions.
pub(super) struct InstanceTypes {
    /// `subtype_dealloc`: no header names it.
    deallocate: usize,
    allocate: usize,
    free: usize,
}

impl InstanceTypes {
    /// The lock is held. `None` in builds that lack one of them.
    pub(super) fn new(api: &'static PythonApi) -> Option<Self> {
        // A class statement of importlib; every interpreter has it.
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
        if functions.distance(view).is_some() { Some(functions) } else { None }
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
        if is_one_by_one { Some(GC_HEAD as usize + words) } else { None }
    }
}

/// Address of the block of an object at that distance.
pub(super) fn block_of(object: Object, distance: usize) -> usize {
    object.addr().wrapping_sub(distance)
}
