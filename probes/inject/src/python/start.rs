//! Being there when an interpreter comes up, before any code of the user's.
//!
//! Where the program holds a CPython from its start (all but those that load libpython late), its table of
//! built-in modules (`PyImport_Inittab`, a public variable that embedders change before `Py_Initialize`) is
//! exchanged for a copy in which the function that makes the module `_abc` is ours, and calls the real one. Each
//! interpreter, subinterpreters included, imports `_abc` for the sake of `io` when it opens its standard
//! streams: after the import system is up and before `site` or any other code of the user's. The lock is held
//! then. That costs nothing afterwards. (An audit hook would be as early, but stays for good and has an argument
//! tuple made for each audited event; a thread that polls comes milliseconds late, and `os.fork` warns of it.)

use super::api::Api;
use super::api::find;
use std::ffi::CStr;
use std::ffi::c_char;
use std::ffi::c_void;
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;

/// `PyInit_*`.
type Init = unsafe extern "C" fn() -> *mut c_void;

/// `struct _inittab` (Include/cpython/import.h). The last has no name.
#[repr(C)]
#[derive(Clone, Copy)]
struct Builtin {
    name: *const c_char,
    init: Option<Init>,
}

/// A module that each interpreter makes once, after importing works and before the user's code.
const EARLY: &CStr = c"_abc";

/// No table of built-in modules is longer: 3.15 has about 40, frozen programs a few hundred.
const LONGEST: usize = 10_000;

static REAL: OnceLock<Init> = OnceLock::new();

/// To be called before the program's own code. Does nothing in a program without CPython.
pub(crate) fn begin() {
    let Some(api) = find(libc::RTLD_DEFAULT) else {
        return;
    };
    // SAFETY: reads a flag.
    if unsafe { (api.Py_IsInitialized)() } == 0 {
        exchange(libc::RTLD_DEFAULT);
    }
}

/// Exchanges the table; `false` where it cannot be.
fn exchange(library: *mut c_void) -> bool {
    // SAFETY: a variable of this name has this type in every CPython; nobody uses it before Py_Initialize.
    unsafe {
        let place = libc::dlsym(library, c"PyImport_Inittab".as_ptr()).cast::<*mut Builtin>();
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
        if REAL.set(real).is_err() {
            return false;
        }
        early.init = Some(init);
        *place = table.leak().as_mut_ptr();
        true
    }
}

/// Makes `_abc`, and hooks into the interpreter that asks for it.
unsafe extern "C" fn init() -> *mut c_void {
    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| {
        if let Some(api) = super::api::api() {
            install_once(api);
        }
    }));
    match REAL.get() {
        // SAFETY: called as the interpreter would have called it.
        Some(real) => unsafe { real() },
        None => std::ptr::null_mut(), // Cannot be: set before the table was exchanged.
    }
}

fn install_once(api: &'static Api) {
    super::install(api);
}
