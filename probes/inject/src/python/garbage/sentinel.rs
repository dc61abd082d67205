//! The sentinel: two objects of ours that become garbage in exactly one collection, and are taken
//! back while the collector still has all garbage on one list.
//!
//! A bound method and a list: each will have the only reference to the other. When a collection starts they are given
//! to the collector, in the youngest generation (part of each collection), and our own reference is dropped. So the
//! collector finds them unreachable, and calls the callback of a weak reference to the method (`handle_weakrefs`),
//! before finalizers run and before anything is cleared. There its list is walked, and the two leave it again: they are
//! not counted, not freed and, after the collection, not found. (If they were freed, each collection would report two
//! objects more, and `while gc.collect()` would never end.)
//!
//! During the collection a callback of the program can see them in `gc.get_objects()`, and 3.15 counts them in
//! `candidates`. In increments of 3.14.0 - 3.14.4 that free nothing they are untracked at the end of the increment; the
//! first number of `gc.get_count()` is two less then.

use super::layout::{FLAGS, GcHead, head_of, is_as_expected, unlink};
use crate::python::api::{Object, PythonApi};
use crate::python::object::OwnedRef;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The functions that it needs.
#[derive(Clone, Copy)]
struct Functions {
    track: unsafe extern "C" fn(Object),
    untrack: unsafe extern "C" fn(Object),
    weak_reference: unsafe extern "C" fn(Object, Object) -> Object,
}

/// The sentinel of one interpreter. Every user holds the interpreter's lock.
pub(super) struct Sentinel {
    api: &'static PythonApi,
    functions: Functions,
    /// The bound method. Ours, except while it is planted: then only the list refers to it.
    method: Object,
    /// Its `__self__`, a list with it.
    list: Object,
    /// Called by the collector.
    callback: OwnedRef,
    weak: Option<OwnedRef>,
    /// The weak reference was called, and has to be replaced.
    is_spent: bool,
    /// Head of a list of the collector's kind with the weak reference alone: on one of the
    /// collector's lists it would count as an object that survived.
    private_list: *mut GcHead,
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
        // SAFETY: the lock is held; both are new references.
        let (method, list) = unsafe {
            let list = OwnedRef::new(api, (api.PyList_New?)(0))?;
            let make = api.PyMethod_New?;
            let method = OwnedRef::new(api, make(callback.object(), list.object()))?;
            (functions.untrack)(list.object());
            (method, list)
        };
        // SAFETY: alive; every method is tracked at first, and when it is freed.
        unsafe { (functions.untrack)(method.object()) };
        let is_known = is_as_expected(&method, c"method") == Some(true)
            && is_as_expected(&list, c"list") == Some(true);
        // SAFETY: as above, and untracked.
        unsafe { (functions.track)(method.object()) };
        // SAFETY: both are alive.
        if !is_known || unsafe { (api.PyList_Append)(list.object(), method.object()) } != 0 {
            // SAFETY: the lock is held.
            unsafe { (api.PyErr_Clear)() };
            return None;
        }
        let method = method.release();
        // SAFETY: as above.
        unsafe { (functions.untrack)(method) };
        Some(Self {
            api,
            functions,
            method,
            list: list.object(),
            callback,
            weak: None,
            is_spent: false,
            private_list: Box::into_raw(Box::new(GcHead { next: 0, previous: 0 })),
        })
    }

    /// Has the collection that starts find it unreachable.
    pub(super) fn plant(&mut self, planted: &Planted) -> Option<()> {
        // The end of an earlier collection may have passed unnoticed.
        self.end(planted);
        if self.is_spent || self.weak.is_none() {
            self.release_weak();
            self.weak = Some(self.weak_reference()?);
            self.is_spent = false;
        }
        // SAFETY: untracked, see `end`; the lock is held. The list keeps it alive.
        unsafe {
            (self.functions.track)(self.list);
            (self.functions.track)(self.method);
            planted.store(self.method, Ordering::Relaxed);
            (self.api.Py_DecRef)(self.method);
        }
        Some(())
    }

    fn weak_reference(&mut self) -> Option<OwnedRef> {
        // SAFETY: the lock is held, both are alive.
        let weak = unsafe {
            let make = self.functions.weak_reference;
            OwnedRef::new(self.api, make(self.method, self.callback.object()))
        }?;
        let head = head_of(weak.object());
        let list = self.private_list;
        // SAFETY: a weak reference is tracked from its creation on. From here on it is on our list of two. The
        // collector may take it from there; the list outlives it.
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

    /// Releases the weak reference.
    fn release_weak(&mut self) {
        if let Some(weak) = self.weak.take() {
            // SAFETY: on our list, on one of the collector's, or on none.
            unsafe { unlink(head_of(weak.object())) };
        }
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
            // SAFETY: alive, and on one of the collector's lists, with neighbors linked both ways; a second time it is
            // on none.
            unsafe { unlink(head_of(weak.object())) };
        }
    }
}

impl Drop for Sentinel {
    /// The lock is held, and it is not planted.
    fn drop(&mut self) {
        self.release_weak();
        // SAFETY: our reference, given back once, to a method that is tracked as all are when they are
        // freed; nothing is on our own list any more.
        unsafe {
            (self.functions.track)(self.method);
            let list = OwnedRef::share(self.api, self.list);
            if let Some(clear) = list.attribute(c"clear") {
                clear.call(None);
            }
            (self.api.Py_DecRef)(self.method);
            drop(Box::from_raw(self.private_list));
        }
    }
}

/// The sentinel, taken back from the collector. Leaves the collector's list when dropped.
pub(super) struct TakenBack {
    method: Object,
    list: Object,
    untrack: unsafe extern "C" fn(Object),
}

/// Takes the sentinel back, with a reference of ours, if it is planted.
pub(super) fn take_back(api: &PythonApi, planted: &Planted) -> Option<TakenBack> {
    let method = planted.swap(std::ptr::null_mut(), Ordering::Relaxed);
    if method.is_null() {
        return None;
    }
    // Without them there is no sentinel.
    let (untrack, method_self) = (api.PyObject_GC_UnTrack?, api.PyMethod_Self?);
    // SAFETY: planted, so it has not been freed; the lock is held.
    let list = unsafe {
        (api.Py_IncRef)(method);
        method_self(method)
    };
    Some(TakenBack { method, list, untrack })
}

impl TakenBack {
    /// Its two objects; the weak reference was to the first.
    pub(super) fn objects(&self) -> [Object; 2] {
        [self.method, self.list]
    }
}

impl Drop for TakenBack {
    fn drop(&mut self) {
        // SAFETY: alive, and on a list with neighbors linked both ways: the collector restores these links before it
        // calls anything.
        unsafe {
            (self.untrack)(self.method);
            (self.untrack)(self.list);
        }
    }
}
