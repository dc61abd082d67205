//! The sentinel: an object of ours that becomes garbage in exactly one collection, and is taken
//! back while the collector still has all garbage on one list.
//!
//! A deque that contains itself. When a collection starts it is given to the collector, in the
//! youngest generation, which is part of each collection, and only it refers to itself any more. So
//! the collector finds it unreachable, and calls the callback of a weak reference to it
//! (`handle_weakrefs`), before finalizers run and anything is cleared. There its list is walked, and
//! the sentinel leaves it again: nothing of it is counted, freed or, after the collection, found.
//! (If it were freed, each collection would report one object more, and `while gc.collect()` would
//! never end.)
//!
//! During the collection a callback of the program can see it in `gc.get_objects()`, and 3.15 counts
//! it in `candidates`.

use super::layout::FLAGS;
use super::layout::GcHead;
use super::layout::head_of;
use crate::python::api::Object;
use crate::python::api::PythonApi;
use crate::python::object::OwnedRef;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering;

/// The functions that it needs.
#[derive(Clone, Copy)]
struct Functions {
    track: unsafe extern "C" fn(Object),
    untrack: unsafe extern "C" fn(Object),
    weak_reference: unsafe extern "C" fn(Object, Object) -> Object,
}

/// The sentinel of one interpreter, whose lock is held by whoever uses it.
pub(super) struct Sentinel {
    api: &'static PythonApi,
    functions: Functions,
    /// Owned by us, except while it is planted: then it refers only to itself.
    object: Object,
    /// What the collector calls.
    callback: OwnedRef,
    weak: Option<OwnedRef>,
    /// The weak reference was called, and has to be replaced.
    is_spent: bool,
    /// List of the collector's kind with the weak reference alone: on one of the collector's lists
    /// it would count as an object that survived.
    list: *mut GcHead,
}

/// The sentinel while it is planted, else null. Not behind a lock: it must be taken back.
pub(super) type Planted = AtomicPtr<std::ffi::c_void>;

impl Sentinel {
    /// An untracked sentinel. `callback` is called with the list intact, see [`take_back`].
    pub(super) fn new(api: &'static PythonApi, callback: OwnedRef) -> Option<Self> {
        let functions = Functions {
            track: api.PyObject_GC_Track?,
            untrack: api.PyObject_GC_UnTrack?,
            weak_reference: api.PyWeakref_NewRef?,
        };
        let object = OwnedRef::import(api, c"_collections")?
            .attribute(c"deque")?
            .call(None)?;
        // SAFETY: tracked, as every deque is at first; the lock is held.
        unsafe { (functions.untrack)(object.object()) };
        if super::layout::is_as_expected(&object, c"collections.deque") != Some(true) {
            return None;
        }
        object.attribute(c"append")?.call(Some(&object))?;
        Some(Self {
            api,
            functions,
            object: object.release(),
            callback,
            weak: None,
            is_spent: false,
            list: Box::into_raw(Box::new(GcHead {
                next: 0,
                previous: 0,
            })),
        })
    }

    /// Has the collection that starts find it unreachable.
    pub(super) fn plant(&mut self, planted: &Planted) -> Option<()> {
        // The end of an earlier collection may have passed unnoticed.
        self.end(planted);
        if self.is_spent || self.weak.is_none() {
            self.weak = None;
            self.weak = Some(self.weak_reference()?);
            self.is_spent = false;
        }
        // SAFETY: untracked, see `end`; the lock is held. Its own reference keeps it alive.
        unsafe {
            (self.functions.track)(self.object);
            planted.store(self.object, Ordering::Relaxed);
            (self.api.Py_DecRef)(self.object);
        }
        Some(())
    }

    fn weak_reference(&mut self) -> Option<OwnedRef> {
        // SAFETY: the lock is held, both are alive.
        let weak = unsafe {
            let make = self.functions.weak_reference;
            OwnedRef::new(self.api, make(self.object, self.callback.object()))
        }?;
        let head = head_of(weak.object());
        let list = self.list;
        // SAFETY: a weak reference is tracked from its creation on. From here on it is on our list
        // of two, from which the collector may take it; both ends outlive it.
        unsafe {
            let flags = (*head).next & FLAGS;
            (self.functions.untrack)(weak.object());
            (*head).next = list.expose_provenance() | flags;
            (*head).previous |= list.expose_provenance();
            (*list).next = head.expose_provenance();
            (*list).previous = head.expose_provenance();
        }
        Some(weak)
    }

    /// Its weak reference was called: it is on a list of the collector now.
    pub(super) fn was_called(&mut self) {
        self.is_spent = true;
    }

    /// The collection ended. Taken back if its weak reference was not called.
    pub(super) fn end(&mut self, planted: &Planted) {
        drop(take_back(self.api, planted));
        if self.is_spent
            && let Some(weak) = &self.weak
        {
            // SAFETY: alive; a second time has no effect.
            unsafe { (self.functions.untrack)(weak.object()) };
        }
    }
}

impl Drop for Sentinel {
    /// The lock is held, and it is not planted.
    fn drop(&mut self) {
        self.weak = None;
        // SAFETY: our reference, given back once; nothing is on the list any more.
        unsafe {
            let object = OwnedRef::new(self.api, self.object);
            if let Some(clear) = object.as_ref().and_then(|own| own.attribute(c"clear")) {
                clear.call(None);
            }
            drop(Box::from_raw(self.list));
        }
    }
}

/// The sentinel, taken back from the collector. Leaves the collector's list when dropped.
pub(super) struct TakenBack {
    object: Object,
    untrack: Option<unsafe extern "C" fn(Object)>,
}

/// Takes the sentinel back, with its reference, if it is planted.
pub(super) fn take_back(api: &PythonApi, planted: &Planted) -> Option<TakenBack> {
    let object = planted.swap(std::ptr::null_mut(), Ordering::Relaxed);
    if object.is_null() {
        return None;
    }
    // SAFETY: planted, so nobody has freed it; the lock is held.
    unsafe { (api.Py_IncRef)(object) };
    Some(TakenBack {
        object,
        untrack: api.PyObject_GC_UnTrack,
    })
}

impl TakenBack {
    pub(super) fn object(&self) -> Object {
        self.object
    }
}

impl Drop for TakenBack {
    fn drop(&mut self) {
        if let Some(untrack) = self.untrack {
            // SAFETY: alive, and on a list whose neighbors are linked both ways: the collector
            // restores these links before it calls anything.
            unsafe { untrack(self.object) };
        }
    }
}
