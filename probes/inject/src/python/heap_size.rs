//! How many objects the last full collection left, by the collector's own count: one word of its
//! state (`long_lived_total`, as with probes).
//!
//! The state is found without a symbol: an object that was just tracked is the last of the youngest
//! generation, so the next one on that list is the list's head, which is part of the state. So are
//! the lists `gc.garbage` and `gc.callbacks`, one after the other, and behind them the count, at a
//! distance that depends on the version (`struct _gc_runtime_state`; as in probes/src/python/layout.rs).

use super::api::PythonApi;
use super::object::OwnedRef;

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

/// Minor and micro version.
fn version(api: &PythonApi) -> Option<(u32, u32)> {
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
