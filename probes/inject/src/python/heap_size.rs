//! How many objects there are, and how many the last full collection left, by the collector's own
//! count: one word of its state (`long_lived_total`, as with probes).
//!
//! The state is found without a symbol: an object that was just tracked is the last of the youngest
//! generation, so the next one on that list is the list's head, which is part of the state. So are
//! the lists `gc.garbage` and `gc.callbacks`, one after the other, and behind them the count, at a
//! distance that depends on the version (`struct _gc_runtime_state`; as in probes/src/python/layout.rs).

use super::api::{Object, PythonApi};
use super::object::OwnedRef;
use std::ffi::{c_int, c_void};

/// Words from the youngest generation on in which the two lists are searched.
const WORDS: usize = 64;

/// Where the count of one interpreter is.
#[derive(Clone, Copy)]
pub(crate) struct HeapSize(usize);

impl HeapSize {
    /// `None`: the build has no such count (free-threaded ones, 3.14.0 - 3.14.4), or its collector
    /// is not as it is known. The lock is held.
    pub(crate) fn find(api: &'static PythonApi, gc: &OwnedRef) -> Option<Self> {
        if api.is_free_threaded() {
            return None;
        }
        let distance = match version(api)? {
            (8..=13, _) => 8,
            (14, 5..) => 32,
            (15, _) => 16,
            _ => return None,
        };
        let lists = [gc.attribute(c"garbage")?, gc.attribute(c"callbacks")?];
        let wanted = lists.each_ref().map(|list| list.object().addr());
        let from = youngest_generation(api)?.next_multiple_of(8);
        let mut places = (from..).step_by(8).take(WORDS);
        // SAFETY: within the interpreter's state or, in 3.8, the runtime's.
        let garbage = places.find(|at| unsafe { [word(*at), word(*at + 8)] } == wanted)?;
        Some(Self(garbage + 8 + distance))
    }

    /// The objects. The lock is held.
    pub(crate) fn read(self) -> u32 {
        // SAFETY: in the state of the interpreter, which runs.
        let count = unsafe { word(self.0) };
        u32::try_from(count).unwrap_or(u32::MAX)
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

/// Counts an object of a free-threaded build, unless it is frozen: from 3.14.5 on, those are visited
/// too.
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

/// Length of the list with this head; `None`: it is none.
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

/// Address of the head of the youngest generation's list.
fn youngest_generation(api: &'static PythonApi) -> Option<usize> {
    // SAFETY: the lock is held; a new list is tracked.
    unsafe {
        let last = OwnedRef::new(api, (api.PyList_New?)(0))?;
        // `PyGC_Head`: next, previous; in their two lowest bits flags.
        let own = last.object().addr() - 16;
        let head = word(own) & !3;
        (head != 0 && word(head + 8) & !3 == own).then_some(head)
    }
}

/// # Safety
/// There is a word; Debian's 3.13 aligns it to four bytes.
unsafe fn word(address: usize) -> usize {
    // SAFETY: as the caller promises.
    unsafe { std::ptr::with_exposed_provenance::<usize>(address).read_unaligned() }
}
