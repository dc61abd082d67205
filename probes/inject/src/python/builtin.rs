//! Builtins of C modules: found, called, and the place of their C function in the module's method table.
//!
//! CPython keeps the C function of a builtin in the method table of its module (`struct PyMethodDef`, the
//! same in 3.8 to 3.15) and reads it at each call. Whoever puts a function of ours there replaces no
//! attribute: the builtin, its type, its signature and the frames remain the program's.

use super::api::{NULL, Object, PythonApi};
use super::object::{OwnedRef, object_head};
use crate::loaded::place_of;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// `struct PyMethodDef` of the interpreter.
#[repr(C)]
pub(super) struct NativeMethod {
    name: *const c_char,
    function: AtomicPtr<c_void>,
    flags: c_int,
    doc: *const c_char,
}

/// A C function behind a builtin. It takes two to four arguments, depending on its flags; passing on
/// more than it takes changes nothing in the calling conventions of x86-64 and aarch64.
pub(super) type Native =
    unsafe extern "C-unwind" fn(Object, *const c_void, usize, Object) -> Object;

// Flags of methods (Include/methodobject.h).
const VARARGS: c_int = 0x1;
pub(super) const KEYWORDS: c_int = 0x2;
const NOARGS: c_int = 0x4;
const ONE: c_int = 0x8;
pub(super) const FASTCALL: c_int = 0x80;

/// A function in a method table with ours in its place, and the original function.
pub(super) struct StandIn {
    method: AtomicPtr<NativeMethod>,
    original: AtomicPtr<c_void>,
    ours: Native,
}

impl StandIn {
    /// For no method yet.
    pub(super) const fn new(ours: Native) -> Self {
        Self {
            method: AtomicPtr::new(std::ptr::null_mut()),
            original: AtomicPtr::new(std::ptr::null_mut()),
            ours,
        }
    }

    /// Whether it is the function of a method.
    pub(super) fn is(&self, function: *mut c_void) -> bool {
        self.ours as *mut c_void == function
    }

    /// The original function of the table.
    pub(super) fn original(&self) -> *mut c_void {
        self.original.load(Ordering::Acquire)
    }

    /// Puts ours in the place of a builtin's function.
    pub(super) fn stand_before(&self, builtin: &Builtin) {
        self.original.store(builtin.native as *mut c_void, Ordering::Release);
        self.method.store(builtin.method, Ordering::Release);
        // SAFETY: the method lives as long as the interpreter's code.
        let place = unsafe { &(*builtin.method).function };
        place.store(self.ours as *mut c_void, Ordering::Release);
    }

    /// Calls the original function.
    ///
    /// # Safety
    /// In place of a builtin's function, and with its arguments.
    pub(super) unsafe fn call_original(
        &self,
        module: Object,
        first: *const c_void,
        second: usize,
        third: Object,
    ) -> Object {
        // SAFETY: set before ours was put in its place, and of this type.
        unsafe {
            let original = std::mem::transmute::<*mut c_void, Native>(self.original());
            original(module, first, second, third)
        }
    }

    /// Gives the place back, if ours is in it.
    pub(super) fn withdraw(&self) {
        // SAFETY: null, or as `stand_before` found it.
        if let Some(method) = unsafe { self.method.load(Ordering::Acquire).as_ref() } {
            let _ = method.function.compare_exchange(
                self.ours as *mut c_void,
                self.original(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }
}

/// A builtin of a module.
pub(super) struct Builtin {
    method: *mut NativeMethod,
    pub(super) native: Native,
    pub(super) flags: c_int,
    /// Its first argument, kept alive by the builtin.
    pub(super) module: Object,
    _builtin: OwnedRef,
}

impl Builtin {
    /// `None`: it is no builtin of this name. `original`: returns the original function for ours.
    pub(super) fn find(
        api: &'static PythonApi,
        module: &OwnedRef,
        name: &CStr,
        original: impl Fn(*mut c_void) -> *mut c_void,
    ) -> Option<Self> {
        let builtin = module.attribute(name)?;
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
            // SAFETY: a function, called as its flags demand.
            native: unsafe { std::mem::transmute::<*mut c_void, Native>(function) },
            flags: entry.flags & (VARARGS | KEYWORDS | NOARGS | ONE | FASTCALL),
            module,
            _builtin: builtin,
        })
    }

    /// Whether its function may be replaced in the method table. The table is in an object of the loader, or was made
    /// while the program ran.
    pub(super) fn is_writable(&self) -> bool {
        let address = self.method.addr();
        let Some(place) = place_of(address) else { return is_writable_memory(address) };
        place.is_writable
    }

    /// Calls it, unseen by a function of ours in its place. May run any Python code if it collects, else
    /// none. An exception is cleared.
    pub(super) fn call(&self, api: &'static PythonApi, numbers: &[u32]) -> Option<OwnedRef> {
        if self.flags == NOARGS {
            // SAFETY: the lock is held.
            return unsafe { OwnedRef::new(api, (self.native)(self.module, NULL, 0, NULL)) };
        }
        let arguments: Vec<OwnedRef> = numbers
            .iter()
            .map(|number| OwnedRef::integer(api, i64::from(*number)))
            .collect::<Option<_>>()?;
        let objects: Vec<Object> = arguments.iter().map(OwnedRef::object).collect();
        let (first, count) = (objects.as_ptr().cast::<c_void>(), objects.len());
        // SAFETY: the lock is held; arguments are alive, and passed as the flags demand.
        unsafe {
            let result = match self.flags {
                ONE => (self.native)(self.module, *objects.first()?, 0, NULL),
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

/// Whether memory of no loaded object may be written, by the kernel's list of this process.
fn is_writable_memory(address: usize) -> bool {
    if crate::confined::is_noticed() {
        return false;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let is_within = |range: &str| {
        let (start, end) = range.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        Some((start..usize::from_str_radix(end, 16).ok()?).contains(&address))
    };
    let mut lines = maps.lines().filter_map(|line| line.split_once(' '));
    lines.any(|(range, rest)| is_within(range) == Some(true) && rest.starts_with("rw"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_allocated_is_writable() {
        let allocated = Box::new(7_u64);
        assert!(is_writable_memory((&raw const *allocated).addr()));
        assert!(!is_writable_memory(memory_that_was_allocated_is_writable as *const () as usize));
        assert!(!is_writable_memory(8));
    }
}
