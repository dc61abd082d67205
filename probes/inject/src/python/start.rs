//! Finds an interpreter as it starts, before any user code.
//!
//! In a program that contains a CPython from its start (for later loads see `late`), the table of built-in modules
//! (`PyImport_Inittab`, a public variable that embedders change before `Py_Initialize`) is replaced by a copy. In the
//! copy the function that creates the module `_codecs` is ours: it calls the real one, and appends a step of ours to
//! the module's definition. Each interpreter, subinterpreters included, imports `_codecs` for `encodings` when it looks
//! for the encoding of file names (`init_fs_encoding` in Python/pylifecycle.c, 3.8 to 3.15): after the import system
//! works and before `site` or any other user code. (`_abc`, imported by `io`, is not loaded without `site` by 3.14.8,
//! 3.14.9 and 3.15; the first such version was not determined.) The lock is held then. Afterwards this costs nothing.
//! (An audit hook would be as early, but cannot be removed, and an argument tuple is created for each audited event; a
//! polling thread is milliseconds late, and `os.fork` warns about it.)

use super::api::{NULL, Object, PythonApi, api, find};
use super::object::{OwnedRef, object_head};
use crate::process_ring::report_absence;
use crate::recording::{expected, guarded};
use gctrace_ring::Absence;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// `PyInit_*`.
type Init = unsafe extern "C" fn() -> *mut c_void;

/// `struct _inittab` (Include/cpython/import.h). The last entry has no name.
#[repr(C)]
#[derive(Clone, Copy)]
struct InittabEntry {
    name: *const c_char,
    init: Option<Init>,
}

/// A module that each interpreter creates once, after the import system works and before user code.
const EARLY: &CStr = c"_codecs";

/// Maximum length of a table of built-in modules: 3.15 has about 40 entries, frozen programs a few
/// hundred.
const LONGEST: usize = 10_000;

static REAL: OnceLock<Init> = OnceLock::new();

/// Whether to search for a CPython: collections or allocations are requested, and none was found
/// yet.
static WAITING: AtomicBool = AtomicBool::new(false);

/// Called once, before the program's own code. Does nothing in a program without CPython.
pub(crate) fn begin() {
    WAITING.store(true, Ordering::Release);
    search_in(libc::RTLD_DEFAULT);
    if is_waiting() && is_pypy() {
        report_absence(Absence::PyPy);
    }
}

/// Whether the program is PyPy; its `main` calls this function.
fn is_pypy() -> bool {
    // SAFETY: looks a name up.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pypy_main_startup".as_ptr()) }.is_null()
}

/// Whether a CPython is still searched for.
#[inline]
pub(super) fn is_waiting() -> bool {
    WAITING.load(Ordering::Acquire)
}

/// Searches for a CPython in a library, or in everything visible to the program; the first one
/// found is used.
pub(super) fn search_in(library: *mut c_void) {
    let Some(api) = find(library) else { return };
    if !WAITING.swap(false, Ordering::AcqRel) {
        return;
    }
    // SAFETY: only reads a flag.
    let is_up = unsafe { (api.Py_IsInitialized)() } != 0;
    if is_up || !exchange(library) {
        // SAFETY: may be called at any time by any thread after initialization; before it, the call
        // has no effect.
        unsafe { (api.Py_AddPendingCall)(pending, std::ptr::null_mut()) };
    }
}

/// Runs in the main thread of an initialized interpreter.
unsafe extern "C" fn pending(_argument: *mut c_void) -> c_int {
    install();
    0
}

/// Hooks into the interpreter that the calling thread runs.
fn install() {
    guarded(|| {
        if let Some(api) = expected(api()) {
            super::install(api);
        }
    });
}

/// Replaces the table; `false` if that is impossible.
fn exchange(library: *mut c_void) -> bool {
    // SAFETY: a variable of this name has this type in every CPython; no code uses it before
    // Py_Initialize.
    unsafe {
        let place = libc::dlsym(library, c"PyImport_Inittab".as_ptr()).cast::<*mut InittabEntry>();
        if place.is_null() || (*place).is_null() {
            return false;
        }
        let length = (0..LONGEST).find(|at| (*(*place).add(*at)).name.is_null());
        let Some(length) = length else { return false };
        let mut table = std::slice::from_raw_parts(*place, length + 1).to_vec();
        let early = table
            .iter_mut()
            .find(|module| !module.name.is_null() && CStr::from_ptr(module.name) == EARLY);
        let Some(early) = early else { return false };
        let Some(real) = early.init else { return false };
        let Some(()) = expected(REAL.set(real).ok()) else { return false };
        early.init = Some(init);
        *place = table.leak().as_mut_ptr();
        true
    }
}

/// Creates `_codecs`, or returns its definition.
unsafe extern "C" fn init() -> *mut c_void {
    // Set before the table was replaced.
    let Some(real) = expected(REAL.get()) else { return NULL };
    // SAFETY: called as the interpreter would have called it.
    let made = unsafe { real() };
    guarded(|| {
        if let Some(api) = expected(api())
            && !made.is_null()
            && !extend(api, made)
        {
            super::install(api);
        }
    });
    made
}

/// Appends a step to the module's creation: from 3.13 on `init` always runs in the main
/// interpreter, the steps (`Py_mod_exec`, PEP 489) in the importing one. `false` if there are no
/// steps (3.8).
fn extend(api: &'static PythonApi, definition: Object) -> bool {
    static STEPS: OnceLock<usize> = OnceLock::new();
    let Some(place) = slots_of(api, definition) else { return false };
    let steps = *STEPS.get_or_init(|| {
        // SAFETY: the definition's own array, zero-terminated and short.
        let slots = unsafe {
            let first = *place;
            let length =
                (0..LONGEST).take_while(|at| !first.is_null() && (*first.add(*at)).kind != 0);
            std::slice::from_raw_parts(first, length.count())
        };
        let mut steps = slots.to_vec();
        steps.push(ModuleSlot { kind: EXEC, value: step as *mut c_void });
        steps.push(ModuleSlot { kind: 0, value: NULL });
        steps.leak().as_mut_ptr().expose_provenance()
    });
    // SAFETY: static and writable; `steps` lives for ever.
    unsafe { *place = std::ptr::with_exposed_provenance_mut(steps) };
    true
}

/// `PyModuleDef_Slot` (Include/moduleobject.h).
#[repr(C)]
#[derive(Clone, Copy)]
struct ModuleSlot {
    kind: c_int,
    value: *mut c_void,
}

/// `Py_mod_exec`.
const EXEC: c_int = 2;

/// Where a `PyModuleDef` (part of the stable ABI) has its slots. After the object header (larger in free-threaded
/// builds) come `m_init`, `m_index`, `m_copy`, `m_name`, `m_doc`, `m_size`, `m_methods`. `None` if the object is not
/// one: a module that exists already.
fn slots_of(api: &'static PythonApi, object: Object) -> Option<*mut *mut ModuleSlot> {
    // SAFETY: the lock is held, the object alive.
    let kind = unsafe { OwnedRef::new(api, (api.PyObject_Type)(object)) }?;
    if kind.attribute(c"__name__")?.text()? != "moduledef" {
        return None;
    }
    let head = object_head(api)?;
    // SAFETY: within the definition, as its type shows.
    unsafe {
        let name = object.byte_add(head + 24).cast::<*const c_char>().read();
        let is_early = !name.is_null() && CStr::from_ptr(name) == EARLY;
        if is_early { Some(object.byte_add(head + 56).cast()) } else { None }
    }
}

/// Runs in each interpreter that creates the module.
unsafe extern "C" fn step(_module: Object) -> c_int {
    install();
    0
}
