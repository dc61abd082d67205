//! Libraries that the program opens at run time: reported to the modules that wait for one.
//!
//! The library's `dlopen` interposes the C library's. It checks the name, then jumps to the real function with
//! registers and stack unchanged: the loader sees the real caller (its RUNPATH counts). No thread polls.
//!
//! A jump does not return: other libraries that the opened library brings along are seen later, at the next `dlopen`
//! or, for CPython, at the next `setlocale`. Every interpreter calls `setlocale` early in its initialization
//! (`preconfig.c`, 3.8 to 3.15); other programs call it rarely.

use crate::arch::stand_before;
use crate::recording::guarded;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// dlopen(3).
pub(crate) type Open = unsafe extern "C" fn(*const c_char, i32) -> *mut c_void;

/// Interposes the C library's; see the module.
///
/// # Safety
/// As of dlopen(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlopen(_name: *const c_char, _flags: i32) -> *mut c_void {
    stand_before!(before)
}

/// Interposes the C library's; see the module.
///
/// # Safety
/// As of setlocale(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn setlocale(_category: i32, _locale: *const c_char) -> *mut c_char {
    stand_before!(before_setlocale)
}

/// Checks the library that the program is about to open; returns the real function's address.
unsafe extern "C" fn before(name: *const c_char, flags: i32) -> *const c_void {
    let Some(open) = real() else { return refuse as *const c_void };
    guarded(|| {
        // SAFETY: the program passes a C string or null.
        let name = if name.is_null() { None } else { Some(unsafe { CStr::from_ptr(name) }) };
        notify(open, name, flags);
    });
    open as *const c_void
}

/// Returns the real function's address. An interpreter may be about to start.
unsafe extern "C" fn before_setlocale(_category: i32, _locale: *const c_char) -> *const c_void {
    guarded(|| {
        if let Some(open) = real() {
            crate::python::may_begin(open);
        }
    });
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut known = REAL.load(Ordering::Relaxed);
    if known.is_null() {
        // SAFETY: looks for the next function of this name; every C library has it.
        known = unsafe { libc::dlsym(libc::RTLD_NEXT, c"setlocale".as_ptr()) };
        REAL.store(known, Ordering::Relaxed);
    }
    if known.is_null() { no_locale as *const c_void } else { known }
}

/// Used if there is no setlocale at all.
unsafe extern "C" fn no_locale(_category: i32, _locale: *const c_char) -> *mut c_char {
    std::ptr::null_mut()
}

/// Used if there is no dlopen at all.
unsafe extern "C" fn refuse(_name: *const c_char, _flags: i32) -> *mut c_void {
    std::ptr::null_mut()
}

fn real() -> Option<Open> {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut known = REAL.load(Ordering::Relaxed);
    if known.is_null() {
        // SAFETY: looks for the next function of this name.
        known = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
        REAL.store(known, Ordering::Relaxed);
    }
    // SAFETY: null, or the function of this name and type.
    unsafe { std::mem::transmute::<*mut c_void, Option<Open>>(known) }
}

/// The loaded library that contains an address, opened again; null if there is none.
pub(crate) fn library_of(address: *const c_void) -> *mut c_void {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr fills it or leaves it zeroed, and both are valid values.
    let found = unsafe {
        libc::dladdr(address, found.as_mut_ptr());
        found.assume_init()
    };
    match real() {
        Some(open) if !found.dli_fname.is_null() => {
            // SAFETY: the loader's name of a file that is loaded already, as the flag requires.
            unsafe { open(found.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
        }
        _ => std::ptr::null_mut(),
    }
}

fn notify(open: Open, name: Option<&CStr>, flags: i32) {
    let name = name.map(CStr::to_bytes).unwrap_or_default();
    crate::cupti::opens(name);
    crate::python::opens(open, name, flags);
}
