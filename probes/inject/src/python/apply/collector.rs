//! The functions of the module gc: called directly, and watched when the program calls them.
//!
//! No attribute is replaced. CPython keeps the C function of a builtin in the method table of its
//! module (`struct PyMethodDef`, the same in 3.8 to 3.15) and reads it at each call; for those that
//! change settings, ours stands there and calls the original one with the same arguments. So the
//! builtins, their types, signatures and the frames remain the program's; what happened is noted
//! afterwards.

use super::calls;
use super::calls::WatchedFunction;
use crate::loaded::place_of;
use crate::python::api::{NULL, Object, PythonApi};
use crate::python::object::{OwnedRef, object_head};
use crate::recording::guarded;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// `struct PyMethodDef` of the interpreter.
#[repr(C)]
struct NativeMethod {
    name: *const c_char,
    function: AtomicPtr<c_void>,
    flags: c_int,
    doc: *const c_char,
}

/// A C function behind a builtin. It takes two to four arguments, depending on its flags; passing on
/// more than it takes changes nothing in the calling conventions of x86-64 and aarch64.
type Native = unsafe extern "C-unwind" fn(Object, *const c_void, usize, Object) -> Object;

// Flags of methods (Include/methodobject.h).
const VARARGS: c_int = 0x1;
const KEYWORDS: c_int = 0x2;
const NOARGS: c_int = 0x4;
const FASTCALL: c_int = 0x80;

/// What is in a method table, and what was there.
struct Watch {
    method: AtomicPtr<NativeMethod>,
    original: AtomicPtr<c_void>,
    ours: Native,
}

macro_rules! watches {
    ($($at:literal),*) => {
        [$(Watch {
            method: AtomicPtr::new(std::ptr::null_mut()),
            original: AtomicPtr::new(std::ptr::null_mut()),
            ours: called::<$at>,
        }),*]
    };
}

/// In the order of [`WatchedFunction::ALL`]. One for all interpreters: they share the method tables.
static WATCHES: [Watch; 6] = watches!(0, 1, 2, 3, 4, 5);

/// Stands before a function in the method table. Unwinds where a thread ends within the call
/// (`pthread_exit`, as CPython has it when the interpreter ends).
unsafe extern "C-unwind" fn called<const AT: usize>(
    module: Object,
    first: *const c_void,
    second: usize,
    third: Object,
) -> Object {
    let before = guarded(calls::before).flatten();
    // SAFETY: set before this function was put in its place, and of this type.
    let result = unsafe {
        let original = WATCHES[AT].original.load(Ordering::Acquire);
        let original = std::mem::transmute::<*mut c_void, Native>(original);
        original(module, first, second, third)
    };
    if let (Some(before), false) = (before, result.is_null()) {
        guarded(|| calls::after(WatchedFunction::ALL[AT], &before));
    }
    result
}

/// A builtin of the module gc.
struct Builtin {
    method: *mut NativeMethod,
    native: Native,
    flags: c_int,
    /// Its first argument, which the builtin keeps alive.
    module: Object,
    _builtin: OwnedRef,
}

impl Builtin {
    /// `None`: it is no builtin of this name.
    fn find(api: &'static PythonApi, gc: &OwnedRef, name: &CStr) -> Option<Self> {
        let builtin = gc.attribute(name)?;
        // SAFETY: the lock is held, the object alive.
        let class = unsafe { OwnedRef::new(api, (api.PyObject_Type)(builtin.object())) }?;
        if class.object() != api.PyCFunction_Type {
            return None;
        }
        let head = object_head(api)?;
        // SAFETY: `PyCFunctionObject`: after the object's head come `m_ml` and `m_self`.
        let (method, module) = unsafe {
            let fields = builtin.object().byte_add(head);
            (fields.cast::<*mut NativeMethod>().read(), fields.cast::<Object>().add(1).read())
        };
        // SAFETY: lives as long as the interpreter's code.
        let entry = unsafe { method.as_ref() }?;
        // SAFETY: a C string, as of every method.
        if entry.name.is_null() || unsafe { CStr::from_ptr(entry.name) } != name {
            return None;
        }
        let function = original(entry.function.load(Ordering::Acquire));
        if function.is_null() {
            return None;
        }
        Some(Self {
            method,
            // SAFETY: a function, which is called as its flags demand.
            native: unsafe { std::mem::transmute::<*mut c_void, Native>(function) },
            flags: entry.flags & (VARARGS | KEYWORDS | NOARGS | FASTCALL),
            module,
            _builtin: builtin,
        })
    }

    /// Calls it, unseen by [`called`]. May run any Python code if it collects, else none. An exception
    /// is cleared.
    fn call(&self, api: &'static PythonApi, numbers: &[u32]) -> Option<OwnedRef> {
        let arguments: Vec<OwnedRef> = numbers
            .iter()
            .map(|number| OwnedRef::integer(api, i64::from(*number)))
            .collect::<Option<_>>()?;
        let objects: Vec<Object> = arguments.iter().map(OwnedRef::object).collect();
        let (first, count) = (objects.as_ptr().cast::<c_void>(), objects.len());
        // SAFETY: the lock is held; arguments are alive, and passed as the flags demand.
        unsafe {
            let result = match self.flags {
                NOARGS => (self.native)(self.module, NULL, 0, NULL),
                FASTCALL => (self.native)(self.module, first, count, NULL),
                flags if flags == FASTCALL | KEYWORDS => {
                    (self.native)(self.module, first, count, NULL)
                }
                VARARGS => {
                    let shared: Vec<&OwnedRef> = arguments.iter().collect();
                    let tuple = OwnedRef::tuple(api, &shared)?;
                    (self.native)(self.module, tuple.object(), 0, NULL)
                }
                _ => return None,
            };
            OwnedRef::new(api, result)
        }
    }
}

/// What was in a method table before ours.
fn original(function: *mut c_void) -> *mut c_void {
    let ours = WATCHES.iter().find(|watch| watch.ours as *mut c_void == function);
    ours.map_or(function, |watch| watch.original.load(Ordering::Acquire))
}

/// The collector of the main interpreter.
pub(super) struct Collector {
    api: &'static PythonApi,
    watched: [Builtin; 6],
    get_threshold: Builtin,
    is_enabled: Builtin,
    get_count: Builtin,
    get_freeze_count: Builtin,
}

// SAFETY: used with the interpreter's lock held, whatever the thread.
unsafe impl Send for Collector {}

impl Collector {
    /// `None`: the functions are not as every CPython has them.
    pub(super) fn find(api: &'static PythonApi, gc: &OwnedRef) -> Option<Self> {
        let find = |name| Builtin::find(api, gc, name);
        let collect = find(c"collect").filter(|one| one.flags == FASTCALL | KEYWORDS)?;
        Some(Self {
            api,
            watched: [
                find(c"enable")?,
                find(c"disable")?,
                find(c"set_threshold")?,
                find(c"freeze")?,
                find(c"unfreeze")?,
                collect,
            ],
            get_threshold: find(c"get_threshold")?,
            is_enabled: find(c"isenabled")?,
            get_count: find(c"get_count")?,
            get_freeze_count: find(c"get_freeze_count")?,
        })
    }

    /// Puts our functions in their places. `None`: the method table cannot be written.
    pub(super) fn watch(&self) -> Option<()> {
        for builtin in &self.watched {
            place_of(builtin.method.addr()).filter(|place| place.is_writable)?;
        }
        for (builtin, watch) in self.watched.iter().zip(&WATCHES) {
            watch.original.store(builtin.native as *mut c_void, Ordering::Release);
            watch.method.store(builtin.method, Ordering::Release);
            // SAFETY: the method lives as long as the interpreter's code.
            let place = unsafe { &(*builtin.method).function };
            place.store(watch.ours as *mut c_void, Ordering::Release);
        }
        Some(())
    }

    fn run(&self, function: WatchedFunction, numbers: &[u32]) -> Option<OwnedRef> {
        self.watched[function as usize].call(self.api, numbers)
    }

    /// A collection of a generation, to be run.
    pub(super) fn collection(&self, generation: i64) -> Option<CollectCall> {
        let collect = &self.watched[WatchedFunction::Collect as usize];
        Some(CollectCall {
            api: self.api,
            native: collect.native,
            module: collect.module,
            generation: OwnedRef::integer(self.api, generation)?.release(),
        })
    }

    pub(super) fn enable(&self) {
        self.run(WatchedFunction::Enable, &[]);
    }

    pub(super) fn disable(&self) {
        self.run(WatchedFunction::Disable, &[]);
    }

    pub(super) fn set_thresholds(&self, values: &[u32]) {
        self.run(WatchedFunction::SetThreshold, values);
    }

    pub(super) fn freeze(&self) {
        self.run(WatchedFunction::Freeze, &[]);
    }

    pub(super) fn unfreeze(&self) {
        self.run(WatchedFunction::Unfreeze, &[]);
    }

    /// What `gc.get_threshold()` returns.
    pub(super) fn thresholds(&self) -> Option<Vec<u32>> {
        let values = self.get_threshold.call(self.api, &[])?;
        let value = |item: OwnedRef| u32::try_from(item.number()?).ok();
        values.items().map(value).collect()
    }

    pub(super) fn is_enabled(&self) -> Option<bool> {
        Some(self.is_enabled.call(self.api, &[])?.number()? != 0)
    }

    /// Objects in the youngest generation.
    pub(super) fn waiting(&self) -> Option<u64> {
        let first = self.get_count.call(self.api, &[])?.items().next()?;
        u64::try_from(first.number()?).ok()
    }

    pub(super) fn frozen(&self) -> Option<u64> {
        let count = self.get_freeze_count.call(self.api, &[])?;
        u64::try_from(count.number()?).ok()
    }
}

/// A call of `gc.collect()` that is still to be made. It runs Python code, in which a thread may end
/// when the interpreter does: nothing here is dropped then, and it is made outside of
/// [`guarded`], which would take that for a fault.
pub(super) struct CollectCall {
    api: &'static PythonApi,
    native: Native,
    module: Object,
    /// The generation: a small integer, of which there is one.
    generation: Object,
}

impl CollectCall {
    /// Collects. The lock is held, and no exception is set before or after.
    pub(super) fn run(self) {
        let arguments = [self.generation];
        // SAFETY: the lock is held; a function of this kind, see `Collector::find`.
        unsafe {
            let result = (self.native)(self.module, arguments.as_ptr().cast(), 1, NULL);
            if result.is_null() {
                (self.api.PyErr_Clear)()
            } else {
                (self.api.Py_DecRef)(result)
            }
            (self.api.Py_DecRef)(self.generation);
        }
    }
}

/// Gives the places back.
pub(super) fn unwatch() {
    for watch in &WATCHES {
        let (method, original) = (&watch.method, watch.original.load(Ordering::Acquire));
        // SAFETY: null, or as `watch` found it.
        if let Some(method) = unsafe { method.load(Ordering::Acquire).as_ref() } {
            // Only if ours is there.
            let _ = method.function.compare_exchange(
                watch.ours as *mut c_void,
                original,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }
}
