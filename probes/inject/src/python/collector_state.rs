//! Numbers in the collector's state, read from memory: how many objects there are, how many the last
//! full collection left (`long_lived_total`, as with probes), and how many collections ran.
//!
//! The state is found without a symbol. It contains the lists `gc.garbage` and `gc.callbacks`, one after the other, and
//! the numbers lie at distances from them that depend on the version (`struct _gc_runtime_state`; as in
//! probes/src/python/layout.rs). Free-threaded builds have it in the interpreter. In others an object that was just
//! tracked is the last of the youngest generation. So the next one on that list is the list's head, a part of the
//! state.

use super::api::{Object, PythonApi};
use super::object::OwnedRef;
use crate::confined::is_noticed;
use std::ffi::{c_int, c_void};

/// Number of words from the youngest generation on that are searched for the two lists.
const WORDS: usize = 64;
/// The same from the start of a free-threaded interpreter. Its state is at 7.5 kB (3.13 to 3.15); the interpreter is
/// larger than that many words.
const FREE_THREADED_WORDS: usize = 2048;

/// Where the numbers of one interpreter are; `None`: this build has none, or they are not as known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CollectorState {
    oldest: Option<usize>,
    statistics: Option<Statistics>,
}

/// The counters behind `gc.get_stats()`, of each generation.
#[derive(Clone, Copy, Debug)]
enum Statistics {
    /// At this address, three numbers each; the first counts collections.
    Inline(usize),
    /// From 3.15 on: behind the pointer at this address, a ring of records each.
    Rings { pointer: usize, lengths: [usize; 3] },
}

impl CollectorState {
    /// Finds the numbers. `collections` is the sum in `gc.get_stats()`, to be found in memory again. The lock is held.
    pub(crate) fn find(api: &'static PythonApi, gc: &OwnedRef, collections: Option<u64>) -> Self {
        let (Some(version), Some(lists)) = (version(api), lists(api, gc)) else {
            return Self::default();
        };
        let statistics = statistics(version, api.is_free_threaded(), lists);
        // SAFETY: in the state of the running interpreter.
        let is_right = |statistics: &Statistics| unsafe {
            statistics.is_mapped() && statistics.read() == collections
        };
        Self {
            oldest: if api.is_free_threaded() { None } else { oldest(version, lists + 8) },
            statistics: statistics.filter(is_right),
        }
    }

    /// The objects in the oldest generation; `None` if unknown: the incremental collector (3.14) leaves 0 there. The
    /// lock is held.
    pub(crate) fn oldest_objects(self) -> Option<u32> {
        // SAFETY: in the state of the running interpreter.
        let count = unsafe { word(self.oldest?) };
        if count > 0 { Some(gctrace_units::u32_or_most(count)) } else { None }
    }

    /// Objects that the last full collection left (`long_lived_total`), and survivors of collections of
    /// generation 1 since (`long_lived_pending`, the word after it); `None` if unknown. The lock is held.
    pub(crate) fn long_lived(self) -> Option<(u64, u64)> {
        let oldest = self.oldest?;
        // SAFETY: in the state of the running interpreter.
        Some(unsafe { (word(oldest) as u64, word(oldest + 8) as u64) })
    }

    /// The collections of all generations; `None` if unknown. Calls no function of the interpreter: it may be about to
    /// end.
    pub(crate) fn collections(self) -> Option<u64> {
        let statistic = self.statistics?;
        // SAFETY: in the state of the interpreter; it is not freed before its list of callbacks.
        unsafe { statistic.read() }
    }
}

/// Address of the number of objects in the oldest generation, from the address of the list of
/// callbacks.
fn oldest(version: (u32, u32), callbacks: usize) -> Option<usize> {
    let distance = match version {
        (8..=13, _) => 8,
        (14, 5..) => 32,
        (15, _) => 16,
        _ => return None,
    };
    Some(callbacks + distance)
}

/// The statistics, from the address of the list of garbage. `None` if they do not count every collection: the
/// incremental collector's omit collections that only mark.
fn statistics(version: (u32, u32), is_free_threaded: bool, garbage: usize) -> Option<Statistics> {
    match version {
        (14, ..5) if !is_free_threaded => None,
        (8..=14, _) => Some(Statistics::Inline(garbage - 80)),
        (15, _) => Some(Statistics::Rings {
            pointer: garbage - 24,
            lengths: if is_free_threaded { [1, 1, 1] } else { [11, 3, 3] },
        }),
        _ => None,
    }
}

impl Statistics {
    /// # Safety
    /// There are words at its address.
    unsafe fn is_mapped(self) -> bool {
        const PAGE: usize = 4096;
        let Self::Rings { pointer, .. } = self else { return true };
        if is_noticed() {
            return false;
        }
        // SAFETY: as the caller promises; mincore only looks at the mappings.
        unsafe {
            let page = std::ptr::without_provenance_mut(word(pointer) & !(PAGE - 1));
            let mut is_resident = 0;
            libc::mincore(page, PAGE, &raw mut is_resident) == 0
        }
    }

    /// The collections of all generations; `None` if the statistics are gone.
    ///
    /// # Safety
    /// There are words at its address and, if that is not null, behind its pointer.
    unsafe fn read(self) -> Option<u64> {
        /// Size of a record of a ring, and offset in it of the collections so far.
        const RECORD: (usize, usize) = (64, 16);
        let add = |sum: u64, address| {
            // SAFETY: as the caller promises.
            sum.wrapping_add(unsafe { word(address) } as u64)
        };
        match self {
            Self::Inline(first) => {
                Some((0..3).map(|generation| first + generation * 24).fold(0, add))
            }
            Self::Rings { pointer, lengths } => {
                // SAFETY: as the caller promises.
                let mut base = unsafe { word(pointer) };
                if base == 0 {
                    return None;
                }
                let mut sum = 0;
                for length in lengths {
                    let index = base + length * RECORD.0;
                    // SAFETY: as the caller promises: each ring is followed by the index of its newest
                    // record, in a word.
                    let newest = unsafe { word(index) } & 0xff;
                    sum = add(sum, base + newest.min(length - 1) * RECORD.0 + RECORD.1);
                    base = index + 8;
                }
                Some(sum)
            }
        }
    }
}

/// Bytes from the head of a generation's list to the next one's (`struct gc_generation`).
const NEXT_GENERATION: usize = 24;

/// Objects that the collector tracks, without frozen ones, as `len(gc.get_objects())` counts them;
/// `None`: unknown. Walks them; the lock is held, and no collection runs.
pub(super) fn tracked_objects(api: &'static PythonApi) -> Option<u64> {
    if api.is_free_threaded() {
        let mut count = 0_u64;
        // SAFETY: the lock is held; the callback gets a pointer to `count` and nothing else.
        unsafe { api.PyUnstable_GC_VisitObjects?(counted, (&raw mut count).cast()) };
        return Some(count);
    }
    let youngest = youngest_generation(api)?;
    let lists = [0, 1, 2].map(|generation| youngest + generation * NEXT_GENERATION);
    lists.into_iter().map(length).sum()
}

/// Counts an object of a free-threaded build, unless it is frozen: from 3.14.5 on, frozen objects are visited too.
unsafe extern "C" fn counted(object: Object, count: *mut c_void) -> c_int {
    /// `ob_gc_bits`, after `ob_tid`, `ob_flags` and `ob_mutex`.
    const BITS: usize = 11;
    /// `_PyGC_BITS_FROZEN`.
    const FROZEN: u8 = 1 << 3;
    // SAFETY: in the object's head; the count is as passed above.
    unsafe {
        if object.byte_add(BITS).cast::<u8>().read() & FROZEN == 0 {
            *count.cast::<u64>() += 1;
        }
    }
    1
}

/// Length of the list with this head; `None`: it is not a list.
fn length(list: usize) -> Option<u64> {
    let mut count = 0;
    let (mut before, mut head) = (list, list);
    loop {
        // SAFETY: a head, as its neighbor refers to it, within the interpreter's state or before an
        // object.
        head = unsafe { word(head) } & !3;
        // SAFETY: as above.
        if head == 0 || unsafe { word(head + 8) } & !3 != before {
            return None;
        }
        if head == list {
            return Some(count);
        }
        before = head;
        count += 1;
    }
}

/// Minor and micro version.
pub(super) fn version(api: &PythonApi) -> Option<(u32, u32)> {
    let text = api.version().to_str().ok()?.strip_prefix("3.")?;
    let (minor, rest) = text.split_once('.')?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit());
    let micro = rest.get(..end.unwrap_or(rest.len()))?;
    Some((minor.parse().ok()?, micro.parse().ok()?))
}

/// Address in the state where the list of garbage is, followed by the list of callbacks.
fn lists(api: &'static PythonApi, gc: &OwnedRef) -> Option<usize> {
    let lists = [gc.attribute(c"garbage")?, gc.attribute(c"callbacks")?];
    let wanted = lists.each_ref().map(|list| list.object().addr());
    let (from, words) = if api.is_free_threaded() {
        (api.running_interpreter()?, FREE_THREADED_WORDS)
    } else {
        (youngest_generation(api)?.next_multiple_of(8), WORDS)
    };
    let mut places = (from..).step_by(8).take(words);
    // SAFETY: within the interpreter's state or, in 3.8, the runtime's.
    places.find(|at| unsafe { [word(*at), word(*at + 8)] } == wanted)
}

/// Address of the head of the youngest generation's list.
fn youngest_generation(api: &'static PythonApi) -> Option<usize> {
    // SAFETY: the lock is held; a new list is tracked.
    unsafe {
        let last = OwnedRef::new(api, (api.PyList_New?)(0))?;
        // `PyGC_Head`: next, previous; in their two lowest bits flags.
        let list_head = last.object().addr() - 16;
        let head = word(list_head) & !3;
        if head != 0 && word(head + 8) & !3 == list_head { Some(head) } else { None }
    }
}

/// # Safety
/// There is a word; Debian's 3.13 aligns it to four bytes.
unsafe fn word(address: usize) -> usize {
    // SAFETY: as the caller promises.
    unsafe { std::ptr::with_exposed_provenance::<usize>(address).read_unaligned() }
}
