//! Programs that load CPython after their start, by `dlopen`: bootloaders of frozen programs,
//! editors, servers.
//!
//! - A path to a libpython is opened here first, as the program is about to do anyway; then its table of built-in
//!   modules is replaced before any code can initialize it.
//! - If it is loaded with another library (a plugin that needs it) or by its bare name, it is found among the loaded
//!   libraries when the interpreter starts, or at the next `dlopen` of anything.
//!   among the loaded libraries when the interpreter starts, or at the next `dlopen` of anything.

use super::start;
use crate::dlopen::Open;
use crate::recording::guarded;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// Prefix of its file names.
const LIBPYTHON: &[u8] = b"libpython";

/// Whether a library was opened since the loaded ones were last checked.
static OPENED: AtomicBool = AtomicBool::new(false);

/// The program is about to open a library, by the real `open`.
pub(crate) fn opens(open: Open, name: &[u8], flags: i32) {
    if !start::is_waiting() {
        return;
    }
    may_begin(open);
    if is_libpython(name) && name.contains(&b'/') {
        let name = [name, b"\0"].concat();
        // SAFETY: the program's own next call, with the same name and flags; the handle is kept.
        let library = unsafe { open(name.as_ptr().cast(), flags) };
        if !library.is_null() {
            start::search_in(library);
        }
    }
    OPENED.store(true, Ordering::Release);
}

/// An interpreter may be about to start: searches for it among the libraries loaded since the last
/// call.
pub(crate) fn may_begin(open: Open) {
    if !start::is_waiting() || !OPENED.swap(false, Ordering::AcqRel) {
        return;
    }
    start::search_in(libc::RTLD_DEFAULT);
    if start::is_waiting()
        && let Some(name) = loaded_libpython()
    {
        // SAFETY: a file that is loaded already, as the flag requires; the handle is kept.
        let library = unsafe { open(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !library.is_null() {
            start::search_in(library);
        }
    }
}

fn is_libpython(name: &[u8]) -> bool {
    name.windows(LIBPYTHON.len()).any(|part| part == LIBPYTHON)
}

/// The name of a libpython in this process, as the loader knows it.
fn loaded_libpython() -> Option<CString> {
    unsafe extern "C" fn visit(
        object: *mut libc::dl_phdr_info,
        _size: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's description of an object, and the pointer passed below.
        let (object, found) = unsafe { (&*object, &mut *found.cast::<Option<CString>>()) };
        guarded(|| {
            if object.dlpi_name.is_null() {
                return;
            }
            // SAFETY: a C string that lives as long as the object is loaded; the loader's lock keeps it loaded.
            let name = unsafe { CStr::from_ptr(object.dlpi_name) };
            let file = name.to_bytes().rsplit(|byte| *byte == b'/').next();
            if file.is_some_and(is_libpython) {
                *found = Some(name.to_owned());
            }
        });
        c_int::from(found.is_some())
    }
    let mut found: Option<CString> = None;
    // SAFETY: the callback gets a pointer to `found` and nothing else.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    found
}
